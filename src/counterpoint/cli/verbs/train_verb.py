"""`counterpoint train`."""

import argparse

from counterpoint.cli.arguments import add_settings, settings_from
from counterpoint.cli.parsers import Parser, print_folder
from counterpoint.methods.catalogue import CATALOGUE as METHODS

PLACE, SUMMARY = 10, "train an encoder by contrast"
TEACH = f"""Train an encoder by contrast: two views of a sample are pulled together, samples are pushed apart.
Labels are used by supervised methods only.

Methods (`counterpoint list methods` describes them): {", ".join(METHODS)}.

examples:
  counterpoint train --data digits --method ncl --out runs/ncl
  counterpoint train --data photos/ --encoder resnet18 --epochs 100
  counterpoint train --data vectors.npy --views.noise 0.1 --seed 1
  counterpoint train --config run.yaml --seed 1
  counterpoint train --recipe mio-cifar10-resnet18 --data cifar10 --epochs 20
  counterpoint train --config run.yaml --seeds 5
  torchrun --nproc-per-node 2 -m counterpoint train --config run.yaml

A method by itself takes the optimiser and the views that suit the data; a recipe takes those of a published table
(counterpoint list recipes), and whatever is given beside it wins.

Every setting can be given: those below by a flag, all others of `counterpoint list settings` by --set NAME=VALUE, or
for short as --NAME VALUE. What is left at auto is chosen for the data and written, with its reason, to
RUN/resolved.yaml. The last line printed names the run folder."""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("--config", metavar="FILE", help="YAML file with any of the settings below; flags win over it")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out if there is one")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out if there is one")
    parser.add_argument(
        "--allow-changed", action="store_true", help="with --resume: take over changed settings that touch no weight"
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="train N runs, of --seed and those after it, in seed-* folders of --out"
    )
    add_settings(parser)


def run(flags: argparse.Namespace) -> int:
    """Train, and name the run folder."""
    asked = settings_from(flags, flags.config)
    from counterpoint.engine.progress import Reporter  # deferred: see `cli.verbs`
    from counterpoint.runs.user_inputs import Given  # deferred: loads torch

    how = {"resume": flags.resume, "overwrite": flags.overwrite, "allow_changed": flags.allow_changed}
    if flags.seeds is not None:
        from counterpoint.runs.seeds import train_seeds  # deferred: loads torch

        print_folder(train_seeds(asked, Given(), flags.seeds, reporter=Reporter(quiet=flags.quiet), **how).path)
        return 0
    from counterpoint.runs.training import train_from  # deferred: loads torch

    print_folder(train_from(asked, Given(), reporter=Reporter(quiet=flags.quiet), **how).path)
    return 0
