"""`counterpoint reproduce`: a figure of a paper made again, as a table on standard output and on a page."""

import argparse
import json

from counterpoint.cli.parsers import Parser
from counterpoint.core.files import finite_or_null
from counterpoint.core.shown import shown, shown_lines
from counterpoint.papers.reproductions import CATALOGUE as FIGURES
from counterpoint.papers.reproductions import figure_named, numbers_file, reproduce

FIGURES_FOLDER = "runs/reproduce"

PLACE, SUMMARY = 100, "make a figure of one of the papers again"
TEACH = """Make a figure of one of the papers again: what the paper says, what comes out here, whether both agree,
and the figure drawn. Without a figure, list those that can be made. FIGURE.json has the numbers, FIGURE.html the
drawing.

examples:
  counterpoint reproduce
  counterpoint reproduce directclr-fig6
  counterpoint reproduce imbalanced-fig1 --data cifar10 --seed 1"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("figure", metavar="FIGURE", nargs="?", help="which one (default: list them)")
    parser.add_argument(
        "--out", default=FIGURES_FOLDER, metavar="FOLDER", help=f"where both files go (default {FIGURES_FOLDER})"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random (default 0)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a reduced size that takes seconds; writes FIGURE-quick.json and FIGURE-quick.html",
    )
    parser.add_argument("--data", metavar="DATA", help="images, where the figure is about images (default: the digits)")
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def run(flags: argparse.Namespace) -> int:
    """Make a figure again, print what came out and draw it; without a figure, list them."""
    if flags.figure is None:
        print(_listed(as_json=flags.json))
        return 0
    figure_named(flags.figure)
    from counterpoint.report.theory_pages.theory_document import check_theory_target  # deferred: loads NumPy and Pillow
    from counterpoint.report.theory_pages.theory_page import write_reproduction  # deferred: loads torch

    page = numbers_file(flags.figure, flags.out, quick=flags.quick).with_suffix(".html")
    check_theory_target(page)
    made = reproduce(
        flags.figure, out=flags.out, seed=flags.seed, quick=flags.quick, data=flags.data, quiet=flags.quiet
    )
    write_reproduction(made, page)
    if flags.json:
        print(json.dumps(finite_or_null(made.to_dict()), indent=1))
    else:
        print(f"{shown_lines(made)}\n\nDrawn in {shown(page)}.")
    return 0


def _listed(*, as_json: bool) -> str:
    """All figures with their sentences."""
    if as_json:
        return json.dumps([{"name": name, "summary": figure.summary} for name, figure in FIGURES.items()], indent=1)
    width = max(map(len, FIGURES))
    return "\n".join(f"{name:<{width}} {figure.summary}" for name, figure in FIGURES.items())
