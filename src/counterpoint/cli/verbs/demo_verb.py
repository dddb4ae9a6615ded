"""Train SimCLR without labels on 4,000 drawn patterns, evaluate and diagnose it, and write a page. Pixels say
little of the patterns, and the views change what pixels say: the set is made so that learning pays. Takes about a
minute on two cores.

example:
  counterpoint demo --out runs/demo"""

from pathlib import Path

import counterpoint as cp
from counterpoint.cli.arguments import VerbFlags, option
from counterpoint.core.errors import RunError
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 120, "train on a set where learning pays, and say what was learned"
DATA = "patterns-rendered"
# Views change what the pictures differ in, without turns and mirror images: these would make one class of two.
VIEWS = {"preset": "none", "crop_scale": [0.3, 1.0], "jitter": 0.8, "jitter_strength": 0.6}
EPOCHS = 5


class DemoFlags(VerbFlags):
    """Settings of ``demo``: the folder, and the number of epochs."""

    out: str = option("folder of the run and its report", "runs/demo")
    epochs: int = option("train for fewer or more epochs", EPOCHS)
    overwrite: bool = option("replace an earlier demo there", False)


def run(flags: DemoFlags) -> None:
    """Train, evaluate, diagnose, and write the page; the sentence comes last."""
    if Path(flags.out).exists() and not flags.overwrite:
        raise RunError(f"{flags.out} exists; replace it with --overwrite, or choose another --out")
    how = {"overwrite": flags.overwrite, "quiet": flags.quiet}
    cp.train(DATA, method="simclr", out=flags.out, epochs=flags.epochs, batch_size=128, views=VIEWS, **how)
    print(f"\n{cp.evaluate(flags.out, quiet=True)}\n")
    findings = cp.diagnose(flags.out, quiet=True)
    print(f"{findings}\n\nThe page: {shown(cp.report(flags.out))}\n{findings.verdict}")
