"""`counterpoint resume`."""

from pathlib import Path

from counterpoint.cli.arguments import RunFlags, option
from counterpoint.cli.outputs import print_trained
from counterpoint.core.rundir import RunFolder, open_run

PLACE, SUMMARY = 20, "continue an interrupted run, or any run to more epochs"
TEACH = """Continue an interrupted run from its newest undamaged checkpoint. The result is the same, bit for bit,
as if it had never stopped (same machine, same number of threads).

--epochs continues any run, finished or not, up to this total. Weights and optimiser are kept; from there on the
learning rate follows its schedule over the new total, and the run records that it was continued. For a folder with
several seeds (train --seeds), all unfinished runs continue.

examples:
  counterpoint resume runs/ncl
  counterpoint resume runs/ncl --epochs 200"""


class ResumeFlags(RunFlags):
    """How a run goes on."""

    epochs: int | None = option("total number of epochs (default: as planned)")
    allow_changed: bool = option("continue even if settings changed that no weight depends on", False)
    diagnosis: bool = option("say at the end whether the features are good, as `counterpoint diagnose` does", True)


def run(flags: ResumeFlags) -> None:
    """Go on, say whether the features are good, and name the run folder."""
    folder = RunFolder(Path(flags.run))
    how = {"epochs": flags.epochs, "allow_changed": flags.allow_changed, "quiet": flags.quiet}
    if not folder.holds_seeds:
        open_run(folder.path, needs_status=False)
    from counterpoint.runs.training import resume, resume_seeds  # deferred: loads torch

    runs = resume_seeds(folder, **how) if folder.holds_seeds else resume(folder.path, **how)
    print_trained(runs, judged=flags.diagnosis and not flags.quiet)
