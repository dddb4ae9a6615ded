"""What a metric of an evaluation takes, and what it gives: a share with its interval, or another figure."""

# N bank samples, Q queries, D features

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from counterpoint.core.checks import check_features, check_labels

Z_95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution
INVERSE_PENALTY = 0.1  # C of logistic regression on standardised features


@dataclass(frozen=True)
class Labelled:
    """Features with their classes, and the settings of votes and probes.

    Attributes:
        bank_ND: features of labelled samples.
        labels_N: their classes, int64, from 0.
        queries_QD: features of the samples that are asked about.
        labels_Q: their classes.
        k: neighbours that vote.
        temperature: of their votes.
        similarity: by which they are the nearest, ``cosine`` or ``euclidean``.
        weighting: of their votes, as in ``evaluation.knn.Vote``.
        inverse_penalty: C of a linear probe's squared penalty.
    """

    bank_ND: Tensor
    labels_N: Tensor
    queries_QD: Tensor
    labels_Q: Tensor
    k: int
    temperature: float
    similarity: str = "cosine"
    weighting: str = "exp"
    inverse_penalty: float = INVERSE_PENALTY


def check_known(bank_ND: Tensor, labels_N: Tensor, queries_QD: Tensor) -> None:
    """Require labelled features and queries that a classifier can take.

    Raises:
        TypeError: anything that is no dense floating tensor.
        ValueError: rows that are not finite (the first are named), shapes that do not fit, or samples without a label.
    """
    check_features(bank_ND, "bank", min_rows=1)
    check_features(queries_QD, "queries", min_rows=1)
    check_labels(labels_N, len(bank_ND))
    if queries_QD.shape[1] != bank_ND.shape[1]:
        raise ValueError(
            f"queries must have as many features as the bank, {bank_ND.shape[1]}, got {queries_QD.shape[1]}"
        )
    if int(labels_N.min()) < 0:
        raise ValueError(f"labels must be >= 0, got {int(labels_N.min())}; leave samples without a label out")


@dataclass(frozen=True)
class Proportion:
    """A share with its 95 % interval."""

    correct: int
    total: int
    value: float
    low: float
    high: float


def wilson(correct: int, total: int) -> Proportion:
    r"""Wilson's score interval, which stays inside [0, 1] and is right for shares near 0 and 1.

    .. math:: \frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}

    Source: wilson1927.

    Args:
        correct: successes, 0 <= correct <= total.
        total: trials, >= 1.

    Raises:
        ValueError: counts out of range.

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4902, 0.9433)
    """
    if not 0 <= correct <= total or total < 1:
        raise ValueError(f"correct must lie between 0 and total >= 1, got {correct} of {total}")
    share = correct / total
    # wilson1927: both ends solve (p - x)^2 = z^2 x (1 - x) / n.
    spread = Z_95 * math.sqrt(share * (1 - share) / total + Z_95**2 / (4 * total**2))
    centre, scale = share + Z_95**2 / (2 * total), 1 + Z_95**2 / total
    low = (centre - spread) / scale if correct > 0 else 0.0  # exactly: the ends must hold the share
    high = (centre + spread) / scale if correct < total else 1.0
    return Proportion(correct, total, share, low, high)


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
