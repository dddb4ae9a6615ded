"""Continue an interrupted run from its newest undamaged checkpoint. The result is the same, bit for bit,
as if it had never stopped (same machine, same number of threads).

For a folder with several seeds (train --seeds), all unfinished runs continue.

examples:
  counterpoint resume runs/ncl"""

from pathlib import Path

from counterpoint.cli.arguments import JsonFlags, option
from counterpoint.cli.outputs import print_trained
from counterpoint.core.rundir import RunFolder, open_run

PLACE, SUMMARY = 20, "continue an interrupted run"


class ResumeFlags(JsonFlags):
    """Settings of ``resume``: the run, and whether it is diagnosed at the end."""

    run: str = option("run folder", ..., place="RUN")
    diagnosis: bool = option("say at the end whether the features are good, as `counterpoint diagnose` does", True)


def run(flags: ResumeFlags) -> None:
    """Continue, say whether the features are good, and name the run folder."""
    folder = RunFolder(Path(flags.run))
    if not folder.holds_seeds:
        open_run(folder.path, needs_status=False)
    from counterpoint.runs.training import resume, resume_seeds  # deferred: loads torch

    quiet = flags.quiet
    runs = resume_seeds(folder, quiet=quiet) if folder.holds_seeds else resume(folder.path, quiet=quiet)
    print_trained(runs, judged=flags.diagnosis and (flags.as_json or not quiet), as_json=flags.as_json)
