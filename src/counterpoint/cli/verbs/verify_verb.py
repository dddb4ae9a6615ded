"""`counterpoint verify`."""

import argparse
import json
from pathlib import Path

from counterpoint.cli.parsers import Parser, add_run
from counterpoint.core.rundir import open_run
from counterpoint.core.terminal_text import shown_lines

DIFFERS = 1  # exit code

PLACE, SUMMARY = 60, "re-hash a run and replay one saved step"
TEACH = """Verify a run: every file against its hash, that each is of this run and of its present weights, settings and
data against what the run began with, and one saved step taken again and compared bit for bit. Leaves with code 1 if
anything differs. Nothing in the run is changed.

examples:
  counterpoint verify runs/ncl
  counterpoint verify runs/ncl --json"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def run(flags: argparse.Namespace) -> int:
    """Verify, and print what was found."""
    open_run(Path(flags.run), may_be_mixed=True)
    from counterpoint.runs.verification import verify  # deferred: loads torch

    verification = verify(flags.run, quiet=flags.quiet)
    print(json.dumps(verification.to_dict(), indent=1) if flags.json else shown_lines(verification))
    return 0 if verification.is_intact else DIFFERS
