"""Train an encoder by contrast: two views of a sample are pulled together, samples are pushed apart.
Labels are used by supervised methods only.

Methods (`counterpoint list methods` describes them): {methods}.

examples:
  counterpoint train --data digits --method ncl --out runs/ncl
  counterpoint train --data photos/ --encoder resnet18 --epochs 100
  counterpoint train --data vectors.npy --views.noise 0.1 --seed 1
  counterpoint train --recipe mio-cifar10-resnet18 --data cifar10 --epochs 20
  counterpoint train --config run.yaml --seeds 5
  torchrun --nproc-per-node 2 -m counterpoint train --config run.yaml

Every setting of `counterpoint list settings` can be given, as --NAME VALUE or by --set NAME=VALUE. What is left at auto
is chosen for the data and written, with its reason, to RUN/resolved.yaml; a recipe takes the settings of a published
table (counterpoint list recipes). The last lines say whether the features are good (not with -q), and name the run
folder."""

from typing import Any

from counterpoint.cli.arguments import JsonFlags, chosen, option
from counterpoint.cli.outputs import print_trained
from counterpoint.core.errors import UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.core.terminal_text import shown
from counterpoint.integrations.job_launch import LaunchSettings, launch
from counterpoint.methods.catalogue import CATALOGUE as METHODS

__doc__ = str(__doc__).format(methods=", ".join(METHODS))

PLACE, SUMMARY = 10, "train an encoder by contrast"
SETTINGS = tuple(TrainSettings.model_fields)
# Settings of sections that are often given; the help shows them.
OFTEN = (
    "source.labels", "source.image_size", "source.holdout", "views.preset", "projector.kind", "projector.features",
    "loss.name", "optim.name", "optim.learning_rate", "engine.device", "engine.precision", "engine.workers",
)  # fmt: skip


class TrainFlags(LaunchSettings, JsonFlags):
    """Settings of ``train`` beside those of training itself."""

    config: str | None = option("YAML file with any of the settings below; flags win over it")
    resume: bool = option("continue the run in --out if there is one", False)
    overwrite: bool = option("replace the run in --out if there is one (not those of several seeds)", False)
    seeds: int | None = option(
        "number of runs to train, with --seed and the seeds after it, in seed-* folders of --out"
    )
    diagnosis: bool = option("say at the end whether the features are good, as `counterpoint diagnose` does", True)


def run(flags: TrainFlags, settings: dict[str, Any]) -> None:
    """Train, say whether the features are good, and name the run folder."""
    if flags.launch is not None:
        if flags.overwrite:
            raise UsageError("a launched run is never replaced, as its job may begin again; choose another --out")
        words = () if flags.seeds is None else ("--seeds", str(flags.seeds))
        job = launch(flags, settings, (*words, *(() if flags.diagnosis else ("--no-diagnosis",))))
        print(f"job {job.job_id}: {shown(job.paths.stderr)}")
        return
    if chosen(flags, LaunchSettings):
        raise UsageError("--nodes, --per-node and --minutes go with --launch slurm (or local)")
    from counterpoint.engine.progress import Reporter  # deferred: see `cli.verbs`
    from counterpoint.runs.training import train_from  # deferred: loads torch
    from counterpoint.runs.user_inputs import UserInputs  # deferred: loads torch

    how = chosen(flags, TrainFlags, but=("config", "diagnosis", "as_json", "quiet"))
    trained = train_from(settings, UserInputs(), reporter=Reporter(quiet=flags.quiet), **how)
    print_trained(trained, judged=flags.diagnosis and (flags.as_json or not flags.quiet), as_json=flags.as_json)
