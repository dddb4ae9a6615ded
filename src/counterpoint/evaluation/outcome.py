"""What an evaluation found: rows of figures beside the split they were measured on, as text and as plain values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from counterpoint.core.metric import loaded_metrics
from counterpoint.core.run_records import EvaluationRow, Split
from counterpoint.core.shown import shown
from counterpoint.evaluation.scoring import Estimate, Proportion

CATALOGUE = loaded_metrics("evaluation")
KNN, PROBE = "knn", "linear probe"


@dataclass(frozen=True)
class Row:
    """One figure: which features, which metric with which settings, and the outcome."""

    features: str
    protocol: str
    settings: dict[str, Any]
    outcome: Proportion | Estimate

    @property
    def accuracy(self) -> Proportion:
        """The outcome of a metric that counts queries.

        Raises:
            TypeError: the metric counts none.
        """
        if isinstance(self.outcome, Estimate):
            raise TypeError(f"{self.protocol} is no share of the queries; its figure is outcome.value")
        return self.outcome

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        name = "value" if isinstance(self.outcome, Estimate) else "accuracy"
        known = {key: value for key, value in asdict(self.outcome).items() if key != "hits" or value is not None}
        outcome = {name if key == "value" else key: value for key, value in known.items()}
        found = {"features": self.features, "protocol": self.protocol, "settings": self.settings, **outcome}
        return EvaluationRow.model_validate(found).written()

    def __str__(self) -> str:
        written, outcome = CATALOGUE[self.protocol].written, self.outcome
        ends = [written(end) for end in (outcome.low, outcome.high) if end is not None]
        return f"{self.features:<22}{self.protocol:<15}{written(outcome.value):>9}   {' to '.join(ends)}".rstrip()


@dataclass(frozen=True)
class Evaluation:
    """All rows of one subject, and on which samples; ``facts`` are those of an encoder from elsewhere."""

    rows: tuple[Row, ...]
    split: dict[str, Any]
    facts: Mapping[str, Any] | None = None

    def accuracy(self, features: str, protocol: str = KNN) -> float:
        """The figure of one row.

        Raises:
            KeyError: no such row.
        """
        for row in self.rows:
            if (row.features, row.protocol) == (features, protocol):
                return row.outcome.value
        raise KeyError(f"no row for {features!r} with {protocol!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        facts = {} if self.facts is None else {"encoder": dict(self.facts)}
        split = Split.model_validate(self.split).written()
        return {**facts, "split": split, "rows": [row.to_dict() for row in self.rows]}

    def __str__(self) -> str:
        split = self.split
        counts = f"{split['num_queries']} queries, {split['num_bank']} labelled samples, {split['num_classes']} classes"
        head = f"{shown(split['source'])}: {counts} ({split['how']})"
        if split["num_unlabelled"]:
            head += f"; {split['num_unlabelled']:,} samples without a label take no part"
        names = "accuracy" if all(isinstance(row.outcome, Proportion) for row in self.rows) else "value"
        return "\n".join([head, f"{'features':<22}{'protocol':<15}{names:>9}   95 % interval", *map(str, self.rows)])
