"""A run as one frozen record: all that the page knows about it.

What another command has not made yet is None or empty, and its section says which command makes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.run_records import EpochRecord, RunStatus
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, UNTRAINED, Measurements

PLACES = (REPRESENTATION, EMBEDDING, UNTRAINED)


@dataclass(frozen=True)
class Split:
    """How the labelled samples were divided into a bank and queries."""

    source: str
    num_bank: float | None
    num_queries: float | None
    num_classes: float | None
    num_unlabelled: float | None
    class_names: tuple[str, ...]
    how: str


@dataclass(frozen=True)
class EvaluationRow:
    """One figure with its 95 % interval, and the counts where it is a share of the queries."""

    features: str
    protocol: str
    value: float | None
    correct: float | None
    total: float | None
    low: float | None
    high: float | None
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Evaluation:
    """``evaluation.json``."""

    split: Split
    rows: tuple[EvaluationRow, ...]

    def row(self, features: str, protocol: str) -> EvaluationRow | None:
        """Find the row of some features under some protocol."""
        matches = (row for row in self.rows if (row.features, row.protocol) == (features, protocol))
        return next(matches, None)


@dataclass(frozen=True)
class Verdict:
    """The diagnosis in one sentence."""

    level: str
    sentence: str


@dataclass(frozen=True)
class Finding:
    """One check: what was measured, beside its reference."""

    name: str
    level: str
    title: str
    measured: float | None
    reference: float | None
    reference_name: str
    text: str
    remedy: str


@dataclass(frozen=True)
class Concept:
    """One dimension of the embedding, with the samples that activate it most."""

    dim: float | None
    fires: float | None
    mean_activation: float | None
    expected_activation: float | None
    purity: float | None
    top_class: str  # empty where no class is above its share of all samples
    thumbnails: tuple[float | None, ...]
    values: tuple[float | None, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """``findings.json``."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    places: Mapping[str, Measurements]
    concepts: tuple[Concept, ...]
    num_samples: float | None
    sparsity_threshold: float | None


@dataclass(frozen=True)
class Histogram:
    """Counts of positive and of negative cosines in shared bins."""

    edges: NDArray[np.float64]
    positive: NDArray[np.float64]
    negative: NDArray[np.float64]


@dataclass(frozen=True)
class Arrays:
    """``arrays.npz``."""

    spectra: Mapping[str, NDArray[np.float64]]
    thumbnails: NDArray[np.uint8] | None
    cosines: Histogram | None


@dataclass(frozen=True, eq=False)
class RunRecord:
    """Everything the page knows about one run; two records are equal only when they are the same one.

    ``gaps`` says by verb why what it makes could not be made.
    """

    name: str
    order: int
    card: RunStatus
    settings: Mapping[str, str]
    asked: frozenset[str]
    reasons: Mapping[str, str]
    epochs: tuple[EpochRecord, ...]
    evaluation: Evaluation | None
    diagnosis: Diagnosis | None
    arrays: Arrays
    gaps: Mapping[str, str]

    @property
    def is_on_array(self) -> bool:
        """Whether it was trained on an array in memory, of which its folder holds no copy."""
        return self.settings.get("data") == "array"

    def place(self, name: str) -> Measurements | None:
        """Return the measurements of a place, if they were made."""
        return self.diagnosis.places.get(name) if self.diagnosis else None
