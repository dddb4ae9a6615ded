"""Fine-tune: train the whole encoder of a run, or one trained elsewhere, on labelled samples, with a
classifier on top, and compare its accuracy with that of a linear probe on the frozen encoder, on the same queries.

The defaults are 30 epochs with LARS on crops and flips. The new run can be resumed like any other, and
`counterpoint evaluate` shows its classifier in the table.

examples:
  counterpoint fine-tune runs/ncl
  counterpoint fine-tune runs/ncl --source.label-share 0.1 --seed 1
  counterpoint fine-tune runs/photos --data pets/ --optim.learning-rate 0.1
  counterpoint fine-tune --encoder timm:resnet18 --weights m.pth --data pets/"""

from typing import Any

import counterpoint as cp
from counterpoint.cli.arguments import JsonFlags, option
from counterpoint.cli.outputs import print_found
from counterpoint.core.errors import UsageError

PLACE, SUMMARY = 25, "train a run's encoder further, with labels"
SETTINGS = ("data", "method", "out", "encoder", "stem", "epochs", "batch_size", "seed", "source")
SETTINGS += ("views", "projector", "optim", "engine")
OFTEN = ("source.label_share",)


class FineTuneFlags(JsonFlags):
    """Settings of ``fine-tune``: the encoder that is trained further, and the queries."""

    run: str | None = option("run folder, or anything that --init of train accepts", place="RUN")
    weights: str | None = option("instead of a run, with --encoder: weights of any framework, as evaluate takes")
    test_data: str | None = option("separate queries; all of --data is then used for training")
    test_labels: str | None = option("file with labels for them: .csv (file,label) or .npy")
    config: str | None = option("YAML file with any setting of training; flags win over it")
    overwrite: bool = option("replace the run in --out if there is one", False)


def run(flags: FineTuneFlags, settings: dict[str, Any]) -> None:
    """Fine-tune, print the table, and name the run folder."""
    subject = flags.run or flags.weights
    if subject is None or (flags.run is not None and flags.weights is not None):
        raise UsageError("give a run folder, or --encoder NAME --weights FILE, and one of them only")
    how = {"overwrite": flags.overwrite, "quiet": flags.quiet}
    result = cp.fine_tune(subject, test_data=flags.test_data, test_labels=flags.test_labels, **how, **settings)
    print_found(result, as_json=flags.as_json, folder=result.run.path)
