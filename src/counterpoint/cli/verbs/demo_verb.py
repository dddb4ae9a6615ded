"""`counterpoint demo`."""

import argparse
from pathlib import Path
from typing import Any

from counterpoint.cli.parsers import Parser
from counterpoint.core.errors import RunError
from counterpoint.core.shown import shown

DEMO_METHODS = ("simclr", "ncl")

PLACE, SUMMARY = 120, "train SimCLR and NCL on the digits and compare them"
TEACH = """Train SimCLR and NCL (non-negative contrastive learning) on scikit-learn's handwritten digits, evaluate and
diagnose both, and write one report that sets them side by side. Takes about a minute on two cores.

example:
  counterpoint demo --out runs/demo"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--out", default="runs/demo", metavar="FOLDER", help="where both runs and the report go (default runs/demo)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="train for fewer or more epochs than by default")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier demo there")


def run(flags: argparse.Namespace) -> int:
    """Train, evaluate and diagnose both, and write the report."""
    folder = Path(flags.out)
    if folder.exists() and not flags.overwrite:
        raise RunError(f"{folder} exists; replace it with --overwrite, or choose another --out")
    from counterpoint.engine.progress import Reporter  # deferred: see `cli.verbs`
    from counterpoint.evaluation.protocol import evaluate  # deferred: loads torch and scikit-learn
    from counterpoint.report.page import report  # deferred: loads NumPy and Pillow
    from counterpoint.runs.given import Given  # deferred: loads torch
    from counterpoint.runs.inspection import diagnose  # deferred: loads torch
    from counterpoint.runs.training import train_from  # deferred: loads torch

    reporter, runs = Reporter(quiet=flags.quiet), []
    for method in DEMO_METHODS:
        asked: dict[str, Any] = {"data": "digits", "method": method, "out": str(folder / method)}
        if flags.epochs is not None:
            asked["epochs"] = flags.epochs
        made = train_from(asked, Given(), overwrite=flags.overwrite, reporter=reporter)
        print(f"\n{method} on {evaluate(made, quiet=True)}\n\n{method}: {diagnose(made, quiet=True)}\n")
        runs.append(made.path)
    path = report(runs, out=folder / "report.html")
    print(f"The report that sets them side by side: {shown(path)}")
    return 0
