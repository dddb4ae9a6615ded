"""What a metric of an evaluation takes and gives."""

# N bank samples, Q queries, D features

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from counterpoint.evaluation.intervals import Proportion, wilson


@dataclass(frozen=True)
class Labelled:
    """Features with their classes, and the settings of the votes.

    Attributes:
        bank_ND: features of labelled samples.
        labels_N: their classes, int64, from 0.
        queries_QD: features of the samples that are asked about.
        labels_Q: their classes.
        k: neighbours that vote.
        temperature: of their votes.
    """

    bank_ND: Tensor
    labels_N: Tensor
    queries_QD: Tensor
    labels_Q: Tensor
    k: int
    temperature: float


@dataclass(frozen=True)
class Estimate:
    """A figure that is no share of the queries, with its 95 % interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Score:
    """What a metric found, and the settings that the figure depends on."""

    outcome: Proportion | Estimate
    settings: Mapping[str, Any]


def share_correct(predicted_Q: Tensor, labels_Q: Tensor) -> Proportion:
    """The share of queries that get their own class."""
    return wilson(int((predicted_Q == labels_Q).sum()), len(labels_Q))
