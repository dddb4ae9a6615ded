"""`counterpoint demo`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from counterpoint.cli.arguments import VerbFlags, option
from counterpoint.core.errors import RunError
from counterpoint.core.terminal_text import shown

if TYPE_CHECKING:
    from counterpoint.diagnostics.findings import Findings

PLACE, SUMMARY = 120, "two cases, one where learning pays and one where it does not"
TEACH = """Train, evaluate and diagnose on two sets, and write a page about each. On drawn patterns learning pays:
pixels say little of them, and the views change what pixels say. On scikit-learn's handwritten digits it does not, since
raw pixels do as well; there SimCLR and NCL (non-negative contrastive learning) are shown side by side. Takes about two
minutes on two cores.

example:
  counterpoint demo --out runs/demo"""


class DemoFlags(VerbFlags):
    """Where the demo goes, and how long it trains."""

    out: str = option("folder for runs and reports", "runs/demo")
    epochs: int | None = option("train for fewer or more epochs than by default")
    overwrite: bool = option("replace an earlier demo there", False)


class Case(NamedTuple):
    """One set of the demo, with what is to be seen, and the file of its report."""

    data: str
    words: str
    methods: tuple[str, ...]
    page: str
    settings: Mapping[str, Any]


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


def run(flags: DemoFlags) -> None:
    """Train, evaluate and diagnose on each set, and write the reports."""
    folder = Path(flags.out)
    if folder.exists() and not flags.overwrite:
        raise RunError(f"{folder} exists; replace it with --overwrite, or choose another --out")
    from counterpoint.report.page import report  # deferred: loads NumPy and Pillow

    ends = []
    for case in CASES:
        print(f"{case.words}\n")
        made = dict(_trained(case, flags))
        page = report(list(made), out=folder / case.page)
        ends += [f"{path.name}: {findings.verdict}" for path, findings in made.items()]
        ends.append(f"  {shown(page)}")
    print("\n".join(["What was seen:", *ends]))


def _trained(case: Case, flags: DemoFlags) -> Iterator[tuple[Path, "Findings"]]:
    """The runs of one set, each evaluated and diagnosed."""
    from counterpoint.evaluation.protocol import evaluate  # deferred: loads torch and scikit-learn
    from counterpoint.runs.inspection import diagnose  # deferred: loads torch
    from counterpoint.runs.training import train  # deferred: loads torch

    for method in case.methods:
        out = Path(flags.out) / (method if len(case.methods) > 1 else case.data)
        settings = {**case.settings, **({} if flags.epochs is None else {"epochs": flags.epochs})}
        how = {"overwrite": flags.overwrite, "quiet": flags.quiet}
        made = train(case.data, method=method, out=str(out), **settings, **how)
        evaluation = evaluate(made, quiet=True)
        findings = diagnose(made, quiet=True)
        print(f"\n{method} on {evaluation}\n\n{method}: {findings}\n")
        yield made.path, findings
