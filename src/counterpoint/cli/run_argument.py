"""What verbs about one run share: its argument, and its folder on standard output."""

import argparse
import os

from counterpoint.core.ranks import read_ranks
from counterpoint.core.rundir import Run


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run folder."""
    parser.add_argument("run", metavar="RUN", help="run folder")


def print_folder(run: Run) -> None:
    """Name the run folder, once for all ranks."""
    if read_ranks(os.environ).rank == 0:
        print(run.path)
