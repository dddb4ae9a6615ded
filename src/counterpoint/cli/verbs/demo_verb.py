"""Train SimCLR without labels on 4,000 drawn patterns, evaluate and diagnose it, and write a page. Pixels say
little of the patterns, and the views change what pixels say: the set is made so that learning pays. Takes about a
minute on two cores.

example:
  counterpoint demo --out runs/demo"""

from pathlib import Path

from counterpoint.cli.arguments import VerbFlags, option
from counterpoint.core.errors import RunError
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 120, "train on a set where learning pays, and say what was learned"
DATA = "patterns-rendered"
# What the pictures differ in, but not turns and mirror images: these would make one class of two.
VIEWS = {"preset": "none", "crop_scale": [0.3, 1.0], "jitter": 0.8, "jitter_strength": 0.6}
EPOCHS = 5


class DemoFlags(VerbFlags):
    """Where the demo goes, and how long it trains."""

    out: str = option("folder of the run and its report", "runs/demo")
    epochs: int = option("train for fewer or more epochs", EPOCHS)
    overwrite: bool = option("replace an earlier demo there", False)


def run(flags: DemoFlags) -> None:
    """Train, evaluate, diagnose, and write the page; the sentence comes last."""
    if Path(flags.out).exists() and not flags.overwrite:
        raise RunError(f"{flags.out} exists; replace it with --overwrite, or choose another --out")
    from counterpoint.evaluation.protocol import evaluate  # deferred: loads torch and scikit-learn
    from counterpoint.report.page import report  # deferred: loads NumPy and Pillow
    from counterpoint.runs.inspection import diagnose  # deferred: loads torch
    from counterpoint.runs.training import train  # deferred: loads torch

    how = {"overwrite": flags.overwrite, "quiet": flags.quiet}
    train(DATA, method="simclr", out=flags.out, epochs=flags.epochs, batch_size=128, views=VIEWS, **how)
    print(f"\n{evaluate(flags.out, quiet=True)}\n")
    findings = diagnose(flags.out, quiet=True)
    print(f"{findings}\n\nThe page: {shown(report(flags.out))}\n{findings.verdict}")
