"""`counterpoint runs`."""

import argparse
from pathlib import Path

from counterpoint.cli.outputs import add_forms, print_found
from counterpoint.cli.parsers import Parser

PLACE, SUMMARY = 65, "list runs, sorted and filtered"
TEACH = """List the runs under a folder: status, method, data, encoder, epochs, accuracies with their intervals (if
it was evaluated), the worst finding (if it was diagnosed), size and date. A run that is "stopped" goes on with
`counterpoint resume`.

examples:
  counterpoint runs
  counterpoint runs --where method=ncl status=done "epochs>=10" --sort knn -r
  counterpoint runs experiments --json"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default="runs", help="that holds them (default: runs)")
    parser.add_argument("--sort", metavar="COLUMN", default="name", help="such as knn, epochs, size, date")
    parser.add_argument("-r", "--reverse", action="store_true", help="the largest first")
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        nargs="+",
        action="extend",
        default=[],
        help='such as method=ncl, name=digits-*, "epochs>=10"',
    )
    add_forms(parser)


def run(flags: argparse.Namespace) -> int:
    """List them."""
    from counterpoint.runs.run_table import list_runs  # deferred: see `cli.verbs`

    found = list_runs(Path(flags.folder), where=flags.where, sort=flags.sort, reverse=flags.reverse)
    print_found(found, flags, None)
    return 0
