"""Which of several encoders is likely best, judged without labels: the record, its text and its plain values."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from counterpoint.core.written_tables import aligned

WIDTH = 100  # columns of the text


@dataclass(frozen=True)
class Ranker:
    """How one figure ranks encoders.

    Attributes:
        name: of the figure, a metric of ``diagnostics``.
        features: what it is a figure of.
        weight: points of probe accuracy that one unit of it adds to the score; 0 where it is only shown.
        correlation: Spearman's, with the linear probe of the representation.
        low: of its 95 % interval.
        high: of its 95 % interval.
    """

    name: str
    features: str
    weight: float
    correlation: float
    low: float
    high: float

    @property
    def key(self) -> str:
        """Name and features."""
        return f"{self.name} of {self.features}"

    def __str__(self) -> str:
        return f"{self.key} {self.correlation:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


@dataclass(frozen=True)
class Candidate:
    """One encoder.

    Attributes:
        name: of its run, with the step of a checkpoint.
        figures: by ``Ranker.key``.
        faults: titles of severe findings that need no labels; an encoder with one stands behind all without.
        behind: the score of the first one minus its own, in points; 0 of the first one.
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
        rankers: the figures that were looked at.
        source: name of the samples.
        num_samples: that were compared.
        views: the preset of the views, which are the same for all.
    """

    candidates: tuple[Candidate, ...]
    rankers: tuple[Ranker, ...]
    source: str
    num_samples: int
    views: str

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
        about = {"source": self.source, "num_samples": self.num_samples, "views": self.views}
        candidates = [{**asdict(each), "told_apart": each.is_told_apart} for each in self.candidates]
        return {**told, **about, "candidates": candidates, "figures": [asdict(each) for each in self.rankers]}

    def __str__(self) -> str:
        shown = [ranker for ranker in self.rankers if ranker.weight] or list(self.rankers)
        head = ["encoder", "behind", "95 % interval", *(ranker.key for ranker in shown), "fault"]
        rows = [
            [
                each.name,
                f"{each.behind:.2f}" if place else "-",
                f"{each.low:+.2f} to {each.high:+.2f}" if place else "-",
                *(f"{each.figures[ranker.key]:.4g}" for ranker in shown),
                each.faults[0] if each.faults else "",
            ]
            for place, each in enumerate(self.candidates)
        ]
        lines = aligned([head, *rows], f"l{'r' * (len(head) - 2)}l")
        return "\n".join([self.verdict, "", *lines, "", *self._remarks()])

    def _remarks(self) -> Iterator[str]:
        """What a reader must know about the table, a paragraph each."""
        words = (
            f"{self.num_samples:,} samples of {self.source}, the same for all, and the same views ({self.views}). "
            "Behind: predicted points of probe accuracy, with the interval over samples of the difference; where it "
            "holds 0 nobody can tell. Encoders with a serious fault stand last.",
            "Spearman's correlation with the linear probe in trainings on photographs that no weight was chosen by "
            f"(95 % interval): {'; '.join(map(str, self.rankers))}. A label says more: see docs/evaluation.md.",
        )
        yield from (textwrap.fill(each, WIDTH) for each in words)
