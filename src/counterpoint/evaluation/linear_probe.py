"""Linear probe: multinomial logistic regression on frozen, standardised features, to a stated optimality."""

# N labelled samples, Q queries, D features

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import rowwise
from counterpoint.core.thread_parts import in_order
from counterpoint.evaluation.scoring import INVERSE_PENALTY, Labelled, Score, accuracy, check_known
from counterpoint.evaluation.softmax_regression import Fit, Problem, fit

ROWS = 2048  # that one thread standardises at a time


@dataclass(frozen=True)
class Prepared:
    """Features as a classifier takes them.

    Attributes:
        bank_ND: of labelled samples.
        queries_QD: of those that are asked about.
    """

    bank_ND: Tensor
    queries_QD: Tensor


def standardise(bank_ND: Tensor, queries_QD: Tensor) -> Prepared:
    """Subtract the labelled samples' mean and divide by their standard deviation; a constant feature becomes 0.

    >>> standardise(torch.tensor([[1.0, 7.0], [3.0, 7.0]]), torch.tensor([[4.0, 7.0]])).queries_QD
    tensor([[2., 0.]])
    """
    mean_D = _column_means(bank_ND, lambda rows_ND: rows_ND)
    deviation_D = _column_means(bank_ND, lambda rows_ND: (rows_ND - mean_D).square_()).sqrt_()
    # The mean of a constant is rounded: its deviation is no more than that, and nothing to divide by.
    rounding_D = len(bank_ND) * torch.finfo(torch.float64).eps * mean_D.abs()
    deviation_D[deviation_D <= rounding_D] = torch.inf

    def scaled(rows_ND: Tensor) -> Tensor:
        return ((rows_ND.double() - mean_D) / deviation_D).to(rows_ND.dtype)

    return Prepared(rowwise(scaled, bank_ND), rowwise(scaled, queries_QD))


def _column_means(x_ND: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Mean over the rows of a function of them, in float64."""
    total_D = torch.zeros(x_ND.shape[1], dtype=torch.float64)

    def add(_: Tensor, part_D: Tensor) -> None:
        total_D.add_(part_D)

    in_order(x_ND.split(ROWS), lambda rows_ND: function(rows_ND.double()).sum(dim=0), add)
    return total_D / len(x_ND)


def numbered(labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The classes that occur, ascending, and for each sample the place of its class among them.

    Raises:
        ValueError: fewer than two, of which no classifier can be trained.
    """
    classes_C, class_N = labels_N.long().unique(return_inverse=True)
    if len(classes_C) < 2:
        raise ValueError(f"a linear probe needs samples of at least 2 classes, got only class {int(classes_C[0])}")
    return classes_C, class_N


@dataclass(frozen=True)
class Probe:
    """What a linear probe predicts, and how it was fitted.

    Attributes:
        predicted_Q: classes of the queries, int64.
        found: weights on the standardised features, with the loss and the norm of its gradient.
    """

    predicted_Q: Tensor
    found: Fit


def fit_probe(
    bank_ND: Tensor, labels_N: Tensor, queries_QD: Tensor, *, inverse_penalty: float = INVERSE_PENALTY
) -> Probe:
    """Fit on labelled features and predict the queries' classes.

    Features are standardised by the labelled samples' mean and deviation. The loss is the one of
    ``softmax_regression.Problem``, minimised until the norm of its gradient is at most 1e-5; nothing is random and no
    learning rate is to be tuned.

    Args:
        bank_ND: features of labelled samples.
        labels_N: their classes, whole numbers.
        queries_QD: features to classify.
        inverse_penalty: C > 0 of the squared penalty on the weights.

    Raises:
        ValueError: fewer than two classes, rows that are not finite, or an argument out of range.

    >>> bank, labels = torch.tensor([[0.0], [1.0], [4.0], [5.0]]), torch.tensor([2, 2, 7, 7])
    >>> fit_probe(bank, labels, torch.tensor([[1.5], [3.5]])).predicted_Q
    tensor([2, 7])
    """
    check_known(bank_ND, labels_N, queries_QD)
    check_positive(inverse_penalty, "inverse_penalty")
    classes_C, class_N = numbered(labels_N)
    features = standardise(bank_ND, queries_QD)
    found = fit(Problem(features.bank_ND, class_N, inverse_penalty))
    return Probe(classes_C[found.predict(features.queries_QD)], found)


def probe_score(known: Labelled) -> Score:
    """Accuracy of the probe on the queries."""
    probe = fit_probe(known.bank_ND, known.labels_N, known.queries_QD, inverse_penalty=known.inverse_penalty)
    settings = {"model": "logistic regression", "C": known.inverse_penalty, "features": "standardised"}
    return accuracy(probe.predicted_Q, known.labels_Q, {**settings, "optimality": probe.found.optimality})


METRICS = (
    Metric(
        name="linear probe",
        title="Linear probe",
        short="linear probe",
        definition="Share of queries that get their own class from a linear classifier that was fitted to the frozen "
        "features of labelled samples.",
        source="alain2017",
        measure=probe_score,
        low=0.0,
        high=1.0,
        unit="share",
        interval="95 % Wilson interval over the queries",
        is_higher_better=True,
        wording="a linear classifier fitted to the frozen vectors of the bank names each query",
        headline="representation",
        leads="is ahead",
    ),
)
