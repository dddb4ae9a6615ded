"""What findings are drawn from: plain records that load without torch, so that a report can judge anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from counterpoint.core.errors import nearest

# What a remedy may advise to change. Each names a setting or a step that only some runs have.
Lever = Literal[
    "learning rate", "temperature", "views", "preview", "epochs", "representation", "projector", "features",
    "relu-gelu", "directclr",
]  # fmt: skip
REPRESENTATION, EMBEDDING, UNTRAINED = "representation", "embedding", "untrained representation"


@dataclass(frozen=True)
class Measurements:
    """Figures of one place (representation, embedding, untrained...), each also an attribute by its metric's name.

    Attributes:
        num_samples: how many vectors.
        num_dims: of how many dimensions.
        figures: by metric; None where something needed was not given, or the figure does not exist.
    """

    num_samples: int
    num_dims: int
    figures: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        """The figure of a metric."""
        if name in self.__dict__.get("figures", {}):
            return self.figures[name]
        raise AttributeError(f"no metric is called {name!r}{nearest(name, self.__dict__.get('figures', {}))}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``findings.json``."""
        return {"num_samples": self.num_samples, "num_dims": self.num_dims, **self.figures}


@dataclass(frozen=True)
class Accuracy:
    """An accuracy with its 95 % interval, as far as findings need it."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Evidence:
    """All that findings may draw on; None where it is not known.

    Attributes:
        places: measurements by place; the embedding's are always there.
        loss: last training loss.
        chance: its value for an encoder that has learned nothing.
        floor: its lowest possible value.
        learned: kNN accuracy of the representation.
        baseline: kNN accuracy of the best baseline.
        is_nonnegative: the embedding has no negative entries, so that silent dimensions and low ranks are part of the
            design.
        levers: what the run can change, as its method and settings have it; nothing for features from anywhere.
    """

    places: Mapping[str, Measurements]
    loss: float | None = None
    chance: float | None = None
    floor: float | None = None
    learned: Accuracy | None = None
    baseline: Accuracy | None = None
    is_nonnegative: bool = False
    levers: frozenset[Lever] = frozenset()


def gain_accuracies(accuracies: Sequence[Accuracy]) -> tuple[Accuracy | None, Accuracy | None]:
    """Of the kNN accuracies of an evaluation, that of the representation and that of the best baseline."""
    learned = next((each for each in accuracies if each.name == REPRESENTATION), None)
    others = [each for each in accuracies if each.name not in (REPRESENTATION, EMBEDDING)]
    return learned, max(others, key=lambda each: each.value, default=None)
