"""`counterpoint resume`."""

import argparse
from pathlib import Path

from counterpoint.cli.parsers import Parser, add_run, print_folder
from counterpoint.core.rundir import open_run

PLACE, SUMMARY = 20, "continue an interrupted run"
TEACH = """Continue an interrupted run from its newest undamaged checkpoint. The result is the same, bit for bit,
as if it had never stopped (same machine, same number of threads).

example:
  counterpoint resume runs/ncl"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument(
        "--allow-changed", action="store_true", help="go on where something was changed that touches no weight"
    )


def run(flags: argparse.Namespace) -> int:
    """Go on, and name the run folder."""
    open_run(Path(flags.run), needs_status=False)
    from counterpoint.runs.training import resume  # deferred: loads torch

    print_folder(resume(flags.run, allow_changed=flags.allow_changed, quiet=flags.quiet).path)
    return 0
