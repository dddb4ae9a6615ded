"""Linear probe: multinomial logistic regression on frozen, standardised features, to a stated optimality."""

# N labelled samples, Q queries, D features

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.metric import accuracy_metric
from counterpoint.core.numerics import rowwise
from counterpoint.core.stored_rows import ChangedRows, ReadRows, Rows, row_slices
from counterpoint.core.thread_parts import in_order
from counterpoint.evaluation.metric_types import INVERSE_PENALTY, Labelled, Score, accuracy, check_bank, check_queries
from counterpoint.evaluation.softmax_regression import Fit, SoftmaxRegression, fit

ROWS = 2048  # that one thread standardises at a time


@dataclass(frozen=True)
class Scaling:
    """How features are standardised.

    Attributes:
        mean_D: float64.
        deviation_D: float64; infinite where a feature is constant, which becomes 0.
    """

    mean_D: Tensor
    deviation_D: Tensor

    def __call__(self, x_ND: Tensor) -> Tensor:
        """Features with the mean subtracted, divided by the deviation."""
        # In place: rows on disk pass here at every step of a search, and new memory costs as much as the division.
        return rowwise(lambda rows_ND: (rows_ND.double() - self.mean_D).div_(self.deviation_D).to(rows_ND.dtype), x_ND)

    def of_rows(self, rows_ND: Rows) -> ReadRows:
        """The same of rows that may lie on disk, which are then scaled each time that they are read."""
        return self(rows_ND) if isinstance(rows_ND, Tensor) else ChangedRows(rows_ND, self)


def fit_scaling(bank_ND: Rows) -> Scaling:
    """Mean and standard deviation of the labelled samples.

    >>> fit_scaling(torch.tensor([[1.0, 7.0], [3.0, 7.0]]))(torch.tensor([[4.0, 7.0]]))
    tensor([[2., 0.]])
    """
    mean_D = _column_means(bank_ND, lambda rows_ND: rows_ND)
    deviation_D = _column_means(bank_ND, lambda rows_ND: (rows_ND - mean_D).square_()).sqrt_()
    # The mean of a constant is rounded: its deviation is no more than that, and nothing to divide by.
    rounding_D = len(bank_ND) * torch.finfo(torch.float64).eps * mean_D.abs()
    deviation_D[deviation_D <= rounding_D] = torch.inf
    return Scaling(mean_D, deviation_D)


def _column_means(x_ND: Rows, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Mean over the rows of a function of them, in float64."""
    total_D = torch.zeros(x_ND.shape[1], dtype=torch.float64)

    def add(_: slice, part_D: Tensor) -> None:
        total_D.add_(part_D)

    in_order(row_slices(len(x_ND), ROWS), lambda own: function(x_ND[own].double()).sum(dim=0), add)
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
    """A linear classifier of features, as it was fitted.

    Attributes:
        classes_C: those it knows, ascending.
        scaling: of the features.
        found: weights on the standardised features, with the loss and the norm of its gradient.
    """

    classes_C: Tensor
    scaling: Scaling
    found: Fit

    def predict(self, queries_QD: Tensor) -> Tensor:
        """Classes of features, int64 (q,).

        Raises:
            ValueError: rows that are not finite, or of another width than the labelled ones.
        """
        check_queries(queries_QD, len(self.scaling.mean_D))
        return self.classes_C[self.found.predict(self.scaling(queries_QD))]


def fit_probe(bank_ND: Rows, labels_N: Tensor, *, inverse_penalty: float = INVERSE_PENALTY) -> Probe:
    """Fit to labelled features.

    Features are standardised by the labelled samples' mean and deviation. The loss is that of ``SoftmaxRegression``,
    minimised until the norm of its gradient is at most 1e-5; nothing is random and no learning rate is to be tuned.

    Args:
        bank_ND: features of labelled samples, in memory or on disk.
        labels_N: their classes, whole numbers.
        inverse_penalty: C > 0 of the squared penalty on the weights.

    Raises:
        ValueError: fewer than two classes, rows that are not finite, or an argument out of range.

    >>> bank, labels = torch.tensor([[0.0], [1.0], [4.0], [5.0]]), torch.tensor([2, 2, 7, 7])
    >>> fit_probe(bank, labels).predict(torch.tensor([[1.5], [3.5]]))
    tensor([2, 7])
    """
    check_bank(bank_ND, labels_N)
    check_positive(inverse_penalty, "inverse_penalty")
    classes_C, class_N = numbered(labels_N)
    scaling = fit_scaling(bank_ND)
    return Probe(classes_C, scaling, fit(SoftmaxRegression(scaling.of_rows(bank_ND), class_N, inverse_penalty)))


def probe_of(known: Labelled) -> Probe:
    """The probe of some features, fitted once."""
    return known.once(
        "fitted probe", lambda: fit_probe(known.bank_ND, known.labels_N, inverse_penalty=known.inverse_penalty)
    )


def probe_score(known: Labelled) -> Score:
    """Accuracy of the probe on the queries."""
    probe = probe_of(known)
    predicted_Q = known.once("probe's classes", lambda: probe.predict(known.queries_QD))
    return accuracy(predicted_Q, known.labels_Q, probe_settings(probe, known.inverse_penalty))


def probe_settings(probe: Probe, inverse_penalty: float) -> dict[str, Any]:
    """What the figure of a probe depends on."""
    settings = {"model": "logistic regression", "C": inverse_penalty, "features": "standardised"}
    return {**settings, "optimality": probe.found.optimality}


METRICS = (
    accuracy_metric(
        name="linear probe",
        title="Linear probe",
        short="linear probe",
        definition="Share of queries that get their own class from a linear classifier that was fitted to the frozen "
        "features of labelled samples.",
        source="alain2017",
        measure=probe_score,
        wording="a linear classifier fitted to the frozen vectors of the bank names each query",
        headline="representation",
        in_parts=True,
    ),
)
