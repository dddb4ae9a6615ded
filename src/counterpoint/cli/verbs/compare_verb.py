"""`counterpoint compare`."""

import argparse
from pathlib import Path

from counterpoint.cli.outputs import add_forms, check_page, print_found
from counterpoint.cli.parsers import Parser
from counterpoint.core.rundir import open_run, seed_folders

PLACE, SUMMARY = 35, "which differences between runs are real, in pairs and over seeds"
TEACH = """Compare evaluated runs, and files that `counterpoint evaluate` wrote of encoders or features from elsewhere:
figure by figure on the same queries, in pairs, with the 95 % interval of each difference, its p (corrected by Holm) and
whether it is real. Runs whose settings differ in the seed alone are taken together as one method, and so are the seed-*
folders of one folder; their differences are also compared over seeds, with how many seeds would be needed to tell.
Whether the intervals of two figures overlap is no such test.

examples:
  counterpoint compare runs/simclr runs/ncl
  counterpoint compare simclr-0 simclr-1 ncl-0 ncl-1 --out comparison.html
  counterpoint compare runs/simclr runs/ncl --metrics knn --markdown
  counterpoint compare runs/ncl evaluations/timm-resnet18-digits.json"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="evaluated run folders, folders with the seeds of one in seed-*, or files that evaluate wrote",
    )
    parser.add_argument("--metrics", metavar="NAMES", default="", help="of the evaluations, separated by commas")
    parser.add_argument("--features", metavar="NAMES", default="", help="such as representation,embedding")
    parser.add_argument(
        "--evaluation", metavar="NAME", default="", help="a file of evaluations/ (default: the runs' own samples)"
    )
    add_forms(parser)
    parser.add_argument("--out", metavar="FILE", help="also write an HTML page that opens from disk")


def run(flags: argparse.Namespace) -> int:
    """Compare, print, and write the page."""
    for path in (Path(run) for run in flags.runs if not Path(run).is_file()):
        for folder in seed_folders(path) or [path]:
            open_run(folder)
    target = Path(flags.out) if flags.out else None
    if target is not None:
        from counterpoint.report.comparison_page import COMPARISON_PAGE  # deferred: loads NumPy and Pillow

        check_page(COMPARISON_PAGE, target)
    from counterpoint.runs.comparison import compare  # deferred: loads NumPy and SciPy

    found = compare(
        flags.runs, metrics=_names(flags.metrics), features=_names(flags.features), evaluation=flags.evaluation
    )
    if target is not None:
        from counterpoint.report.comparison_page import (  # deferred: loads NumPy and Pillow
            COMPARISON_PAGE,
            render_comparison,
        )
        from counterpoint.report.document import write_page  # deferred: loads NumPy and Pillow

        write_page(COMPARISON_PAGE, target, lambda: render_comparison(found))
    print_found(found, flags, target)
    return 0


def _names(words: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(filter(None, map(str.strip, words.split(","))))
