"""`counterpoint resume`."""

from pathlib import Path

from counterpoint.cli.arguments import RunFlags, option
from counterpoint.cli.outputs import print_folder
from counterpoint.core.rundir import RunFolder, open_run

PLACE, SUMMARY = 20, "continue an interrupted run"
TEACH = """Continue an interrupted run from its newest undamaged checkpoint. The result is the same, bit for bit,
as if it had never stopped (same machine, same number of threads).

Of a folder with several seeds (train --seeds) all runs go on that are not finished.

example:
  counterpoint resume runs/ncl"""


class ResumeFlags(RunFlags):
    """How a run goes on."""

    allow_changed: bool = option("go on where something was changed that touches no weight", False)


def run(flags: ResumeFlags) -> int:
    """Go on, and name the run folder."""
    folder = RunFolder(Path(flags.run))
    how = {"allow_changed": flags.allow_changed, "quiet": flags.quiet}
    if folder.holds_seeds:
        from counterpoint.runs.seeds import resume_seeds  # deferred: loads torch

        print_folder(resume_seeds(folder, **how).path)
        return 0
    open_run(folder.path, needs_status=False)
    from counterpoint.runs.training import resume  # deferred: loads torch

    print_folder(resume(folder.path, **how).path)
    return 0
