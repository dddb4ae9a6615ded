"""`counterpoint search`."""

import argparse
from pathlib import Path
from typing import Any

from counterpoint.cli.arguments import add_looking, look_from
from counterpoint.cli.outputs import add_forms, check_page, print_found
from counterpoint.cli.parsers import Parser, add_run
from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import open_run

PLACE, SUMMARY = 53, "find the samples most like a picture, a row or a name, and why"
TEACH = """Find the samples of a collection that are most like a query: a picture file, a folder of pictures, an array
file, the number of a row, or the name of a sample. Each hit comes with the share of random pairs that are less similar
and, where dimensions have a meaning (non-negative embeddings, as of ncl), with those that it shares with the query. The
index is kept in the run folder; every sample is compared, but in very large collections.

examples:
  counterpoint search runs/photos holiday.jpg --out hits.html
  counterpoint search runs/photos 17 cats/4.jpg -k 5 --json
  counterpoint search runs/photos new.jpg --to other_photos/
  counterpoint search runs/photos --duplicates --out copies.html"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument("queries", metavar="QUERY", nargs="*", help="picture, folder, array file, row, or sample name")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="hits of each query (default 10)")
    parser.add_argument("--to", metavar="DATA", help="search in other samples (default: the run's own)")
    parser.add_argument(
        "--layer",
        default="auto",
        help="auto (default: the embedding where its dimensions have a meaning or pairs were trained, else the "
        "representation), embedding, representation, or a module of the backbone",
    )
    parser.add_argument("--duplicates", action="store_true", help="instead of queries: groups of near-duplicates")
    parser.add_argument("--threshold", type=float, metavar="X", help="with --duplicates: least cosine of a pair")
    parser.add_argument("--rebuild", action="store_true", help="make the index again")
    add_forms(parser)
    parser.add_argument("--out", metavar="PATH", help="an HTML page with pictures")
    add_looking(parser, "step of a kept checkpoint whose encoder is taken (default: the last state)")


def run(flags: argparse.Namespace) -> int:
    """Answer, print, and draw the page."""
    open_run(Path(flags.run))  # before torch is loaded
    _check(flags)
    target = Path(flags.out) if flags.out else None
    if target is not None:
        from counterpoint.report.search_page import SEARCH_PAGE  # deferred: loads NumPy and Pillow

        check_page(SEARCH_PAGE, target)
    found = _found(flags)
    if target is not None:
        from counterpoint.report.document import write_page  # deferred: loads NumPy and Pillow
        from counterpoint.report.search_page import SEARCH_PAGE, render_search  # deferred: loads NumPy and Pillow

        write_page(SEARCH_PAGE, target, lambda: render_search(found))
    print_found(found, flags, target)
    return 0


def _check(flags: argparse.Namespace) -> None:
    """Refuse flags that have no effect, before the work."""
    if flags.duplicates == bool(flags.queries):
        raise UsageError("--duplicates takes no QUERY" if flags.queries else "give at least one QUERY, or --duplicates")
    if flags.threshold is not None and not flags.duplicates:
        raise UsageError("--threshold goes with --duplicates")


def _found(flags: argparse.Namespace) -> Any:
    """The answer to queries, or the groups of near-duplicates."""
    from counterpoint.search.duplicates import duplicates  # deferred: loads torch
    from counterpoint.search.searching import search  # deferred: loads torch

    names = ("layer", "rebuild", "to", "quiet")
    options = {**look_from(flags), **{name: getattr(flags, name) for name in names}, "pictures": flags.out is not None}
    if flags.duplicates:
        return duplicates(flags.run, threshold=flags.threshold, **options)
    return search(flags.run, flags.queries, k=flags.k, **options)
