"""Which of several encoders is likely best, judged without labels: the record, its text and its plain values."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from counterpoint.core.written_tables import aligned

WIDTH = 100  # columns of the text
DECIDING = ("score", "overlap", "effective_rank")  # figures that people see


@dataclass(frozen=True)
class Ranker:
    """How one figure ranks encoders.

    Attributes:
        name: of the figure, a metric of ``diagnostics``.
        features: what it is a figure of.
        probe: Spearman's correlation with the linear probe of the representation, and the ends of its 95 % interval.
        knn: the same with its kNN accuracy.
    """

    name: str
    features: str
    probe: tuple[float, float, float]
    knn: tuple[float, float, float]

    @property
    def key(self) -> str:
        """Name and features."""
        return f"{self.name} of {self.features}"

    def __str__(self) -> str:
        ends = [f"{value:+.2f} ({low:+.2f} to {high:+.2f})" for value, low, high in (self.probe, self.knn)]
        return f"{self.key} {ends[0]}, {ends[1]}"


@dataclass(frozen=True)
class Candidate:
    """One encoder.

    Attributes:
        name: of its run, with the step of a checkpoint.
        figures: by ``Ranker.key``.
        faults: titles of severe findings that need no labels; an encoder with one stands behind all without.
        behind: the deciding figure of the first one minus its own; 0 of the first one.
        low: of the 95 % interval of that difference, over samples.
        high: of the 95 % interval.
    """

    name: str
    figures: Mapping[str, float]
    faults: tuple[str, ...]
    behind: float
    low: float
    high: float

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Selection:
    """Encoders in the order in which they are likely best.

    Attributes:
        candidates: the likely best one first.
        rankers: the figures that were looked at; the first one decides.
        source: name of the samples.
        num_samples: that were compared.
    """

    candidates: tuple[Candidate, ...]
    rankers: tuple[Ranker, ...]
    source: str
    num_samples: int

    @property
    def undecided(self) -> tuple[str, ...]:
        """Those of which nobody can tell whether they are as good as the first one."""
        first, *others = self.candidates
        alike = [each for each in others if bool(each.faults) == bool(first.faults)]
        return tuple(each.name for each in alike if not each.is_told_apart)

    @property
    def verdict(self) -> str:
        """One sentence."""
        first = self.candidates[0]
        if first.faults:
            return f"Every encoder has a serious fault; of the likely best one, {first.name}: {first.faults[0]}."
        if self.undecided:
            return f"Cannot tell {first.name} from {', '.join(self.undecided)} by these samples."
        return f"Likely best: {first.name}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told = {"verdict": self.verdict, "undecided": list(self.undecided)}
        about = {"source": self.source, "num_samples": self.num_samples}
        candidates = [{**asdict(each), "told_apart": each.is_told_apart} for each in self.candidates]
        return {**told, **about, "candidates": candidates, "figures": [asdict(each) for each in self.rankers]}

    @property
    def _shown(self) -> list[Ranker]:
        """The figures that decide."""
        return [each for each in self.rankers if each.features == self.rankers[0].features and each.name in DECIDING]

    def __str__(self) -> str:
        shown = self._shown
        head = ["encoder", "behind", "95 % interval", *(ranker.name.replace("_", " ") for ranker in shown), "fault"]
        rows = [
            [
                each.name,
                f"{each.behind:.3f}" if place else "-",
                f"{each.low:+.3f} to {each.high:+.3f}" if place else "-",
                *(f"{each.figures[ranker.key]:.4g}" for ranker in shown),
                each.faults[0] if each.faults else "",
            ]
            for place, each in enumerate(self.candidates)
        ]
        lines = aligned([head, *rows], f"l{'r' * (len(head) - 2)}l")
        return "\n".join([self.verdict, "", *lines, "", *self._remarks()])

    def _remarks(self) -> Iterator[str]:
        """What a reader must know about the table, a paragraph each."""
        decides = self.rankers[0]
        words = (
            f"{self.num_samples:,} samples of {self.source}, the same for all, and the same views of them, the usual "
            f"ones of such samples. Figures are of the {decides.features}. Behind: how far its {decides.name}, which "
            "adds overlap of views and log of the effective rank, lies below the first one's, with the interval of "
            "that difference over samples; where it holds 0 nobody can tell. Encoders with a serious fault stand last.",
            "This is a guess, which orders encoders about as kNN does, and hardly as a linear probe: Spearman's "
            "correlation with the probe, then with kNN, over trainings on two sets of photographs (95 % interval): "
            f"{'; '.join(map(str, self._shown))}; other figures: --json. With labels of a few hundred samples "
            "counterpoint evaluate says more.",
        )
        yield from (textwrap.fill(each, WIDTH) for each in words)
