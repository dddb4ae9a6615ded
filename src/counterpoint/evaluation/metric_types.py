"""Input and result of a metric of an evaluation: labelled features, and a share or another figure with its interval."""

# N bank samples, Q queries, D features

import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import torch
from scipy.special import stdtrit
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels
from counterpoint.core.paired_shares import Z_95
from counterpoint.core.schemas import ClassShare, EvaluationRow, packed_hits
from counterpoint.core.stored_rows import Rows, load
from counterpoint.diagnostics.evidence import Interval

MIN_QUERIES = 10  # fewer give no figure
INVERSE_PENALTY = 0.1  # C of logistic regression on standardised features


class Once:
    """Values that several metrics of the same features need; each is computed by the first metric that needs it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._slots: dict[Hashable, tuple[Lock, list[Any]]] = {}

    def __call__(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the result of ``compute``, which is called once for each key; other threads wait for it meanwhile."""
        with self._lock:
            lock, slot = self._slots.setdefault(key, (Lock(), []))
        with lock:
            if not slot:
                slot.append(compute())
            return slot[0]


@dataclass(frozen=True)
class Labelled:
    """Features with their classes, and the settings of votes and probes.

    Attributes:
        bank_ND: features of labelled samples; for a metric ``in_parts`` perhaps ``StoredRows``.
        labels_N: classes of these samples, int64, from 0.
        queries_QD: features of the queries.
        labels_Q: classes of the queries.
        k: number of neighbours that vote.
        temperature: temperature of the votes.
        inverse_penalty: inverse strength C of a linear probe's squared penalty.
        predicted_Q: classes that the queries get from the classifier that was trained with the encoder; None if there
            is none.
        class_names: names of all classes, for records; empty for classes without names.
        once: values computed from these features; a changed copy begins without them.
    """

    bank_ND: Tensor
    labels_N: Tensor
    queries_QD: Tensor
    labels_Q: Tensor
    k: int
    temperature: float
    inverse_penalty: float = INVERSE_PENALTY
    predicted_Q: Tensor | None = None
    class_names: tuple[str, ...] = ()
    once: Once = field(init=False, default_factory=Once, compare=False, repr=False)

    def in_memory(self) -> "Labelled":
        """The same features with a tensor as bank, for metrics that take all of it at once."""
        is_in_memory = isinstance(self.bank_ND, Tensor)  # its type is only promised
        return self if is_in_memory else replace(self, bank_ND=load(self.bank_ND))


def check_known(bank_ND: Rows, labels_N: Tensor, queries_QD: Tensor) -> None:
    """Require labelled features and queries that a classifier can take.

    Raises:
        TypeError: anything that is not a dense floating tensor, or two precisions.
        ValueError: rows that are not finite (the first are named), shapes that do not fit, or samples without a label.
    """
    check_bank(bank_ND, labels_N)
    check_queries(queries_QD, bank_ND.shape[1])
    if queries_QD.dtype != bank_ND.dtype:
        raise TypeError(f"queries and bank must have the same dtype, got {queries_QD.dtype} and {bank_ND.dtype}")


def check_bank(bank_ND: Rows, labels_N: Tensor) -> None:
    """Require labelled samples as ``check_known`` does."""
    if isinstance(bank_ND, Tensor):  # stored rows were checked when they were written, or when their file was opened
        check_features(bank_ND, "bank", min_rows=1)
    check_labels(labels_N, len(bank_ND))
    if int(labels_N.min()) < 0:
        raise ValueError(f"labels must be >= 0, got {int(labels_N.min())}; leave samples without a label out")


def check_queries(queries_QD: Tensor, num_features: int) -> None:
    """Require queries as ``check_known`` does, for a bank with this number of features."""
    check_features(queries_QD, "queries", min_rows=1)
    if queries_QD.shape[1] != num_features:
        raise ValueError(f"queries must have as many features as the bank, {num_features}, got {queries_QD.shape[1]}")


@dataclass(frozen=True)
class Proportion:
    """A share with its 95 % interval; ``hits`` are the queries that were right, as ``packed_hits`` writes them."""

    correct: int
    total: int
    value: float
    low: float
    high: float
    hits: str | None = field(default=None, repr=False)


def wilson(correct: int, total: int) -> Proportion:
    r"""Wilson's score interval, which stays inside [0, 1] and is right for shares near 0 and 1.

    .. math:: \frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}

    Source: wilson1927.

    Args:
        correct: number of successes, 0 <= correct <= total.
        total: number of trials, >= 1.

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
class Score:
    """The figure of a metric, and the settings that it depends on.

    Attributes:
        outcome: the figure; an ``Interval`` if it is not a share of the queries.
        settings: settings that the figure depends on, plain values by name.
        classes: share of queries that are right, by the number of each class that has queries; for accuracies only.
    """

    outcome: Proportion | Interval
    settings: Mapping[str, Any]
    classes: Mapping[int, Proportion] = field(default_factory=dict)


def row_of(features: str, protocol: str, score: Score, class_names: Sequence[str] = ()) -> EvaluationRow:
    """The row of an evaluation's record for a score.

    Args:
        features: name of the features from which the figure was computed.
        protocol: a metric's name, perhaps with a condition (``core.metric``).
        score: the figure.
        class_names: names of all classes; if empty, the shares of the classes are left out.
    """
    outcome = score.outcome
    figure: dict[str, Any] = {"low": outcome.low, "high": outcome.high}
    if isinstance(outcome, Interval):
        figure["value"] = outcome.value
    else:
        figure |= {"accuracy": outcome.value, "correct": outcome.correct, "total": outcome.total}
        figure |= {} if outcome.hits is None else {"hits": outcome.hits}
    if score.classes and class_names:
        figure["classes"] = {
            class_names[number]: ClassShare(correct=share.correct, total=share.total)
            for number, share in score.classes.items()
        }
    return EvaluationRow(features=features, protocol=protocol, settings=dict(score.settings), **figure)


def accuracy(predicted_Q: Tensor, labels_Q: Tensor, settings: Mapping[str, Any]) -> Score:
    """The share of queries that get their own class, in all and by class.

    >>> score = accuracy(torch.tensor([0, 0, 2]), torch.tensor([0, 2, 2]), {})
    >>> score.outcome.value, {label: share.value for label, share in score.classes.items()}
    (0.6666666666666666, {0: 1.0, 2: 0.5})
    """
    is_right_Q = predicted_Q == labels_Q
    classes_C, class_Q, total_C = labels_Q.unique(return_inverse=True, return_counts=True)
    correct_C = torch.bincount(class_Q[is_right_Q], minlength=len(classes_C))
    counts = zip(classes_C.tolist(), correct_C.tolist(), total_C.tolist(), strict=True)
    classes = {label: wilson(correct, total) for label, correct, total in counts}
    overall = replace(wilson(int(is_right_Q.sum()), len(labels_Q)), hits=packed_hits(is_right_Q.tolist()))
    return Score(overall, settings, classes)


def mean_share(shares: Sequence[Proportion]) -> Interval:
    r"""Mean of independent shares, each counted alike however many trials it has; NaN without shares.

    .. math:: \bar p - \tfrac1K \sqrt{\textstyle\sum_k (p_k - l_k)^2}, \quad
        \bar p + \tfrac1K \sqrt{\textstyle\sum_k (u_k - p_k)^2}

    with Wilson's ends l and u of each share: the interval of one share is its own, and it has a width where all are 0
    or 1.

    Source: zou2009.

    >>> estimate = mean_share([wilson(8, 10), wilson(8, 10)])
    >>> [round(part, 3) for part in (estimate.low, estimate.value, estimate.high)]
    [0.581, 0.8, 0.901]
    """
    if not shares:
        return Interval(math.nan)
    mean = math.fsum(share.value for share in shares) / len(shares)
    below = math.sqrt(math.fsum((share.value - share.low) ** 2 for share in shares)) / len(shares)
    above = math.sqrt(math.fsum((share.high - share.value) ** 2 for share in shares)) / len(shares)
    return Interval(mean, mean - below, mean + above)


def t_interval(values: Sequence[float]) -> Interval:
    """Mean of repetitions with Student's 95 % interval; without an interval if there is only one value.

    Source: student1908.

    >>> estimate = t_interval([0.7, 0.8, 0.9])
    >>> [round(part, 3) for part in (estimate.low, estimate.value, estimate.high)]
    [0.552, 0.8, 1.048]
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean)
    half = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)
