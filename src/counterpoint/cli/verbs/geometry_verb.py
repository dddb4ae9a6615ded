"""Compute the geometry that minimises a contrastive loss for your class proportions: where a perfect
encoder puts the classes, with a certificate, and whether small classes merge. Without --loss it is the InfoNCE of the
paper on imbalanced classes (mean over the negatives, temperature 1); a loss by name is used as in training (sum over
its negatives, its temperature). --run reads all of this from a labelled run and compares its classes with the optimum.

examples:
  counterpoint geometry --run runs/simclr
  counterpoint geometry 0.5 0.25 0.25 --negatives 512 --supervised
  counterpoint geometry 5000 400 60 --normalize --loss infonce --temperature 0.2
  counterpoint geometry 1/3 1/3 1/3 --threshold --phase-diagram
  counterpoint geometry 0.6 0.2 0.2 --rebalance --deviation 0.1"""

from pathlib import Path

from counterpoint.cli.arguments import GeometryFlags
from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import open_run

PLACE, SUMMARY = 90, "the geometry that minimises a loss for your class proportions"
OF_RUN = {"run", "tolerance", "as_json", "quiet"}


def run(flags: GeometryFlags) -> None:
    """Solve and print; with a run, measure first."""
    # Shares or a run, and nothing beside them that has no effect.
    if (flags.run is None) == (not flags.shares):
        raise UsageError("give a SHARE for each class, such as 0.5 0.25 0.25, or --run RUN, and one of them only")
    names = flags.model_fields_set
    if flags.run is not None and (unfit := sorted(names - OF_RUN)):
        raise UsageError(f"--{unfit[0].replace('_', '-')} has no effect here: the run has its own; leave it out")
    if flags.deviation is not None and not flags.rebalance:
        raise UsageError("--deviation is how far --rebalance may stay from the simplex; add --rebalance")
    limits, plans = sorted(names & {"dimension", "nonnegative"}), sorted(names & {"rebalance", "phase_diagram"})
    if limits and plans:
        plan = f"--{plans[0].replace('_', '-')}"
        raise UsageError(f"{plan} is about embeddings of any sign and of enough dimensions; leave out --{limits[0]}")
    if flags.run is not None:
        open_run(Path(flags.run))  # before torch is loaded
    from counterpoint.cli.geometry_answer import answer_run, answer_shares  # deferred: loads torch

    (answer_shares if flags.run is None else answer_run)(flags)
