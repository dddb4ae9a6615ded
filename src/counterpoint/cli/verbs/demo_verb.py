"""`counterpoint demo`."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.cli.parsers import Parser
from counterpoint.core.errors import RunError
from counterpoint.core.run_records import BASELINES
from counterpoint.core.terminal_text import shown

if TYPE_CHECKING:
    from counterpoint.evaluation.evaluation_result import Evaluation

PLACE, SUMMARY = 120, "two cases, one where learning pays and one where it does not"
TEACH = """Train, evaluate and diagnose on two sets, and write a page about each. On drawn patterns learning pays:
pixels say little of them, and the views change what pixels say. On scikit-learn's handwritten digits it does not, since
raw pixels do as well; there SimCLR and NCL (non-negative contrastive learning) stand side by side. Takes about two
minutes on two cores.

example:
  counterpoint demo --out runs/demo"""


@dataclass(frozen=True)
class Case:
    """One set of the demo.

    Attributes:
        data: its name.
        words: what is to be seen, said before.
        methods: trained on it, one after the other.
        page: file of the report.
        settings: of training.
    """

    data: str
    words: str
    methods: tuple[str, ...]
    page: str
    settings: Mapping[str, Any] = field(default_factory=dict)


# What the pictures differ in, but not turns and mirror images: these would make one class of two.
PATTERN_VIEWS = {"preset": "none", "crop_scale": [0.3, 1.0], "jitter": 0.8, "jitter_strength": 0.6}
CASES = (
    Case(
        "patterns-rendered",
        "1 of 2: drawn patterns. Place, width, light, grey levels and noise dominate their pixels. The views change "
        "just these:\nthe set is made so that learning pays.",
        ("simclr",),
        "patterns.html",
        {"epochs": 16, "batch_size": 128, "views": PATTERN_VIEWS},
    ),
    Case(
        "digits",
        "2 of 2: handwritten digits of 8 x 8 pixels, so easy that learning can add little. What differs between the "
        "methods\nis what single dimensions mean.",
        ("simclr", "ncl"),
        "report.html",
        {"epochs": 50},
    ),
)


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--out", default="runs/demo", metavar="FOLDER", help="where runs and reports go (default runs/demo)"
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="train for fewer or more epochs than by default")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier demo there")


def run(flags: argparse.Namespace) -> int:
    """Train, evaluate and diagnose on each set, and write the reports."""
    folder = Path(flags.out)
    if folder.exists() and not flags.overwrite:
        raise RunError(f"{folder} exists; replace it with --overwrite, or choose another --out")
    from counterpoint.report.page import report  # deferred: loads NumPy and Pillow

    ends = []
    for case in CASES:
        print(f"{case.words}\n")
        made = _train(case, folder, flags)
        page = report(list(made), out=folder / case.page)
        ends.append(f"{paid(case.data, list(made.values())[-1])}\n  {shown(page)}")
    print("\n".join(["What was seen:", *ends]))
    return 0


def _train(case: Case, folder: Path, flags: argparse.Namespace) -> dict[Path, "Evaluation"]:
    """The runs of one set, each evaluated and diagnosed."""
    from counterpoint.engine.progress import Reporter  # deferred: see `cli.verbs`
    from counterpoint.evaluation.protocol import evaluate  # deferred: loads torch and scikit-learn
    from counterpoint.runs.inspection import diagnose  # deferred: loads torch
    from counterpoint.runs.training import train_from  # deferred: loads torch
    from counterpoint.runs.user_inputs import Given  # deferred: loads torch

    reporter, found = Reporter(quiet=flags.quiet), {}
    for method in case.methods:
        name = method if len(case.methods) > 1 else case.data
        asked = {**case.settings, "data": case.data, "method": method, "out": str(folder / name)}
        if flags.epochs is not None:
            asked["epochs"] = flags.epochs
        made = train_from(asked, Given(), overwrite=flags.overwrite, reporter=reporter)
        found[made.path] = evaluate(made, quiet=True)
        print(f"\n{method} on {found[made.path]}\n\n{method}: {diagnose(made, quiet=True)}\n")
    return found


def paid(data: str, evaluation: "Evaluation") -> str:
    """Whether learning paid, by kNN: the interval of the representation lies above those of all baselines."""
    votes = {row.features: row for row in evaluation.rows if row.protocol == "knn"}
    learned = votes["representation"]
    best = max((row for name, row in votes.items() if name in BASELINES), key=lambda row: row.accuracy or 0.0)
    is_better = (learned.low or 0.0) > (best.high or 0.0)
    verdict = "learning pays" if is_better else "no measurable gain from learning"
    shares = f"{learned.accuracy:.1%} with what was learned, {best.accuracy:.1%} with {best.features}"
    return f"{data}: {verdict}: kNN {shares}"
