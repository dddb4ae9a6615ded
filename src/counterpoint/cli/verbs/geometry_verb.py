"""`counterpoint geometry`."""

from pathlib import Path

from counterpoint.cli.geometry_flags import GeometryFlags, check_together
from counterpoint.core.rundir import open_run

PLACE, SUMMARY = 90, "the geometry that minimises a loss for your class proportions"
TEACH = """Compute the geometry that minimises a contrastive loss for your class proportions: where a perfect
encoder puts the classes, with a certificate, and whether small classes merge. Without --loss it is the InfoNCE of the
paper on imbalanced classes (mean over the negatives, temperature 1); a loss by name is taken as it trains (sum over its
negatives, its temperature). With --run all of that is read from a labelled run, and where its classes lie is measured
beside the optimum.

examples:
  counterpoint geometry --run runs/simclr
  counterpoint geometry 0.5 0.25 0.25 --negatives 512 --supervised
  counterpoint geometry 5000 400 60 --normalize --loss infonce --temperature 0.2
  counterpoint geometry 1/3 1/3 1/3 --threshold --phase-diagram
  counterpoint geometry 0.6 0.2 0.2 --rebalance --deviation 0.1"""


def run(flags: GeometryFlags) -> int:
    """Solve and print; with a run, measure first."""
    check_together(flags)
    if flags.run is not None:
        open_run(Path(flags.run))  # before torch is loaded
    from counterpoint.cli.geometry_answer import answer_run, answer_shares  # deferred: loads torch

    return answer_shares(flags) if flags.run is None else answer_run(flags)
