"""What findings are drawn from: plain records that load without torch, so that a report can judge anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, Field

from counterpoint.core.errors import nearest
from counterpoint.core.run_records import BASELINES, EvaluationRow, Figure, Record
from counterpoint.diagnostics.pair_look import PairLook

# What a remedy may advise to change. Each names a setting or a step that only some runs have.
Lever = Literal[
    "learning rate", "temperature", "views", "preview", "epochs", "representation", "projector", "features",
    "relu-gelu", "directclr", "batch",
]  # fmt: skip
REPRESENTATION, EMBEDDING, UNTRAINED = "representation", "embedding", "untrained representation"


class Measurements(Record):
    """Figures of one place (representation, embedding, untrained...), each also an attribute by its metric's name.

    A figure is None where something needed was not given, or where it does not exist.

    Attributes:
        num_samples: how many vectors.
        num_dims: of how many dimensions.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Figure] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    num_samples: int = 0
    num_dims: int = 0

    @property
    def figures(self) -> Mapping[str, Any]:
        """By metric."""
        return self.model_extra or {}

    def __getattr__(self, name: str) -> Any:
        """The figure of a metric."""
        if name.startswith("_"):
            raise AttributeError(name)  # of pydantic, perhaps before there are figures
        # Called only where there is no such field, hence for figures.
        if name in self.figures:
            return self.figures[name]
        raise AttributeError(f"no metric is called {name!r}{nearest(name, self.figures)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``findings.json``."""
        return self.model_dump()


@dataclass(frozen=True)
class Evidence:
    """All that findings may draw on; None where it is not known.

    Attributes:
        places: measurements by place; the embedding's are always there.
        loss: last training loss.
        chance: its value for an encoder that has learned nothing.
        floor: its lowest possible value.
        learned: kNN accuracy of the representation.
        baseline: kNN accuracy of the best baseline, on the same queries.
        is_nonnegative: the embedding has no negative entries, so that silent dimensions and low ranks are part of the
            design.
        is_supervised: the encoder learned from labels, which draws the samples of a class together.
        weight_change: how far training has moved the encoder's weights, over their length before; None where that is
            not known.
        pairs: whom the loss looks at, and which samples lie too near.
        levers: what the run can change, as its method and settings have it; nothing for features from anywhere.
    """

    places: Mapping[str, Measurements]
    loss: float | None = None
    chance: float | None = None
    floor: float | None = None
    learned: EvaluationRow | None = None
    baseline: EvaluationRow | None = None
    is_nonnegative: bool = False
    is_supervised: bool = False
    weight_change: float | None = None
    pairs: PairLook | None = None
    levers: frozenset[Lever] = frozenset()


def gain_accuracies(rows: Sequence[EvaluationRow]) -> tuple[EvaluationRow | None, EvaluationRow | None]:
    """Of an evaluation, the kNN accuracy of the representation and that of the best baseline."""
    known = [row for row in rows if row.protocol == "knn" and row.accuracy is not None]
    learned = next((row for row in known if row.features == REPRESENTATION), None)
    others = [row for row in known if row.features in BASELINES]
    return learned, max(others, key=lambda row: row.accuracy or 0.0, default=None)


def unjudged(learned: EvaluationRow | None, baseline: EvaluationRow | None) -> tuple[str, ...]:
    """What cannot be judged about a run without an evaluation, or with one that lacks what the check compares."""
    if learned is None:
        lacking = "no evaluation, which needs labels"
    elif baseline is None:
        lacking = "an evaluation without a baseline"
    elif learned.minus(baseline) is None:
        lacking = "an evaluation that does not keep which queries were right; evaluate again"
    else:
        return ()
    return (f"whether learning helped ({lacking})",)
