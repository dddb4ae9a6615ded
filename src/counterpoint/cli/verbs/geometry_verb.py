"""`counterpoint geometry`."""

import argparse

from counterpoint.cli.parsers import Parser

DRAWING = "geometry.html"
DEVIATION = 0.05

PLACE, SUMMARY = 90, "the geometry that minimises a loss for your class proportions"
TEACH = """Compute the geometry that minimises a contrastive loss for your class proportions: where a perfect
encoder puts the classes, with a certificate, and whether small classes merge. Without --loss it is the InfoNCE of the
paper on imbalanced classes (mean over the negatives, temperature 1); a loss by name is taken as it trains (sum over its
negatives, its temperature). The page it draws opens from disk.

examples:
  counterpoint geometry 0.5 0.25 0.25 --negatives 512 --supervised
  counterpoint geometry 5000 400 60 --normalize --loss infonce --temperature 0.2
  counterpoint geometry 1/3 1/3 1/3 --threshold --phase-diagram
  counterpoint geometry 0.6 0.2 0.2 --rebalance --deviation 0.1"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "proportions", metavar="SHARE", nargs="+", help="share of each class: 0.25 or 1/4; with --normalize also counts"
    )
    parser.add_argument("--normalize", action="store_true", help="divide the shares by their sum")
    parser.add_argument(
        "--negatives", metavar="K", help="negatives of each anchor, or inf (default: the loss's own number, else inf)"
    )
    parser.add_argument("--supervised", action="store_true", help="negatives are of other classes only")
    parser.add_argument(
        "--loss",
        metavar="NAME",
        help="a member of the loss catalogue, see `counterpoint list losses` (default: the paper's)",
    )
    parser.add_argument("--temperature", type=float, metavar="T", help="of the loss (default: the loss's own)")
    parser.add_argument(
        "--loss-options", metavar="X", help='further arguments of the loss, such as "{margin: 0.5}" for triplet'
    )
    parser.add_argument(
        "--dimension", type=int, metavar="D", help="of the embedding; below classes - 1 nothing can be certified"
    )
    parser.add_argument("--nonnegative", action="store_true", help="the embedding has no negative entries")
    parser.add_argument(
        "--tolerance", type=float, default=1e-8, metavar="GAP", help="relative duality gap to stop at (default 1e-8)"
    )
    parser.add_argument(
        "--threshold",
        action="store_true",
        help="also the share of one majority class above which the others, all equal, merge, with the paper's bounds",
    )
    parser.add_argument(
        "--rebalance",
        action="store_true",
        help="also how to sample the classes, or weigh their anchors, so that the optimum comes back to the simplex",
    )
    parser.add_argument(
        "--deviation",
        type=float,
        metavar="D",
        help=f"distance of a cosine from the simplex's that --rebalance may leave (default {DEVIATION:g})",
    )
    parser.add_argument(
        "--phase-diagram",
        action="store_true",
        help="also the cosine between minorities over the share of one majority, by negatives and temperature, for as "
        "many classes as there are shares; --negatives adds a line, --temperature a chart",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for scripts; draws only if --out is given")
    parser.add_argument("--out", metavar="FILE", help=f"HTML file with the drawing (default {DRAWING})")


def run(flags: argparse.Namespace) -> int:
    """Solve, print and draw."""
    from counterpoint.cli.geometry_answer import answer_geometry  # deferred: loads torch

    return answer_geometry(flags)
