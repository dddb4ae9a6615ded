"""`counterpoint report`."""

import argparse
from pathlib import Path

from counterpoint.cli.parsers import Parser
from counterpoint.core.rundir import open_run
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 70, "one HTML file that shows what was learned"
TEACH = """Write one self-contained HTML file from one or more run folders: verdict, curves, spectra, concept gallery,
evaluation, configuration. A run that was not evaluated or diagnosed yet is so first. The file opens from disk, without
a network, and can be mailed.

examples:
  counterpoint report runs/ncl
  counterpoint report runs/simclr runs/ncl --out side_by_side.html"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="one or more run folders; several stand side by side")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="HTML file (default: report.html in the run folder, or in the folder above several)",
    )
    parser.add_argument("--bare", action="store_true", help="show what is there; evaluate and diagnose nothing first")


def run(flags: argparse.Namespace) -> int:
    """Write the page, and name it."""
    for path in flags.runs:
        open_run(Path(path))
    from counterpoint.report.page import report  # deferred: loads NumPy and Pillow

    print(shown(report(flags.runs, out=flags.out, bare=flags.bare, quiet=flags.quiet)))
    return 0
