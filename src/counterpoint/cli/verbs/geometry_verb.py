"""`counterpoint geometry`."""

import argparse
from pathlib import Path

from counterpoint.cli.parsers import Parser
from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import open_run

DRAWING = "geometry.html"

OF_RUN = ("--data", "--labels", "--checkpoint")
OF_SHARES = (
    "--normalize", "--negatives", "--supervised", "--loss", "--temperature", "--loss-options", "--dimension",
    "--nonnegative", "--threshold", "--rebalance", "--deviation", "--phase-diagram",
)  # fmt: skip

PLACE, SUMMARY = 90, "the geometry that minimises a loss for your class proportions"
TEACH = """Compute the geometry that minimises a contrastive loss for your class proportions: where a perfect
encoder puts the classes, with a certificate, and whether small classes merge. Without --loss it is the InfoNCE of the
paper on imbalanced classes (mean over the negatives, temperature 1); a loss by name is taken as it trains (sum over its
negatives, its temperature). With --run all of that is read from a labelled run, and where its classes lie is measured
beside the optimum. The page it draws opens from disk.

examples:
  counterpoint geometry --run runs/simclr
  counterpoint geometry 0.5 0.25 0.25 --negatives 512 --supervised
  counterpoint geometry 5000 400 60 --normalize --loss infonce --temperature 0.2
  counterpoint geometry 1/3 1/3 1/3 --threshold --phase-diagram
  counterpoint geometry 0.6 0.2 0.2 --rebalance --deviation 0.1"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "proportions", metavar="SHARE", nargs="*", help="share of each class: 0.25 or 1/4; with --normalize also counts"
    )
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="instead of shares: a labelled run, whose classes are measured beside the optimum of its own loss, "
        "temperature, negatives and class counts",
    )
    parser.add_argument("--data", help="with --run: other samples, or the array it was trained on (default: its own)")
    parser.add_argument(
        "--labels", metavar="FILE", help="with --run: one label per sample (.npy; of a folder also .csv)"
    )
    parser.add_argument("--checkpoint", metavar="STEP", help="with --run: a kept checkpoint (default: the last state)")
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
        help="distance of a cosine from the simplex's that --rebalance may leave (default 0.05)",
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
    """Solve, print and draw; with a run, measure first."""
    check_asked(flags)
    target = None if flags.json and flags.out is None else Path(flags.out or DRAWING)
    if flags.run is not None:
        open_run(Path(flags.run))  # before torch is loaded
        from counterpoint.cli.run_geometry import answer_run  # deferred: loads torch

        return answer_run(flags, target)
    from counterpoint.cli.geometry_answer import answer_geometry  # deferred: loads torch

    return answer_geometry(flags, target)


def check_asked(flags: argparse.Namespace) -> None:
    """Require shares or a run, and with a run nothing that it answers itself.

    Raises:
        UsageError: both, neither, or a flag that goes with the other.
    """
    if (flags.run is None) == (not flags.proportions):
        raise UsageError("give a SHARE for each class, such as 0.5 0.25 0.25, or --run RUN, and one of them only")
    known, others = (OF_RUN, OF_SHARES) if flags.run is not None else (OF_SHARES, OF_RUN)
    for flag in others:
        value = getattr(flags, flag.removeprefix("--").replace("-", "_"))
        if value is not None and value is not False:
            why = "the run has its own" if known is OF_RUN else "it goes with --run"
            raise UsageError(f"{flag} has no effect here: {why}; leave it out")
