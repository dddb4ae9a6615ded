"""Linear probe: multinomial logistic regression on frozen, standardised features, to a stated optimality.

The search is L-BFGS that starts from the curvature of the features, in one thread: shared by two, its blocks wait for
each other beside a busy process, which took 10 times as long. scikit-learn's ``LogisticRegression`` takes longer to the
same norm of the gradient, also in one thread: 0.10 s against 0.06 of 2,000 x 64, 1.7 against 0.6 of 8,000 x 256, more
than 10 against 5 of 50,000 x 512, ten classes, on a machine with much else to do (``python
benchmarks/classifier_peers.py``).
"""

# N labelled samples, Q queries, D features, C classes; weights have a last column for the intercept

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.metric import accuracy_metric
from counterpoint.core.numerics import rowwise
from counterpoint.core.processor_routines import add_product_, multiply
from counterpoint.core.stored_rows import Rows, row_slices
from counterpoint.core.thread_parts import one_thread, ordered_map
from counterpoint.evaluation.metric_types import INVERSE_PENALTY, Labelled, Score, accuracy, check_bank, check_queries

OPTIMALITY = 1e-5  # Euclidean norm of the gradient at which the search ends
MAX_STEPS = 1000
MEMORY = 10  # steps that L-BFGS remembers
BLOCK = 2048  # samples that one thread takes at a time
# Second moments are used if features are few enough to pay: at 4 samples for each they took as long as they saved.
SAMPLES_FOR_A_FEATURE, WIDEST = 16, 4096
SAMPLES_OF_MOMENTS = 8  # for each feature; more change them little
SUFFICIENT = 1e-4  # of the decrease that the slope promises (Armijo)
LEAST_STEP = 1e-10  # rounding leaves no decrease to be found below


def errors(p_CB: Tensor, class_1B: Tensor) -> Tensor:
    """The gradient of the log losses in the logits, p - [y = c], in place of the probabilities."""
    return p_CB.scatter_add_(0, class_1B, p_CB.new_full((), -1.0).expand(class_1B.shape))


@dataclass(frozen=True)
class SoftmaxRegression:
    r"""Logistic regression with a penalty on the weights and none on the intercept.

    .. math:: L(W) = -\frac1N \sum_n \log \operatorname{softmax}(W^\top x_n + b)_{y_n} + \frac{\lambda}{2} |W|^2

    Two classes have one weight vector, the difference of theirs, and its penalty, as is usual: that doubles
    :math:`\lambda` for the two of them.

    Attributes:
        x_ND: features, perhaps on disk; sums over samples are float64, products have the precision of the features.
        class_N: class numbers 0 ... C-1, each of which occurs.
        inverse_penalty: C = 1 / (N lambda), as scikit-learn counts it.
    """

    x_ND: Rows
    class_N: Tensor
    inverse_penalty: float

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
        return int(self.class_N.max()) + 1

    @property
    def penalty(self) -> float:
        """Weight of the penalty, lambda."""
        return (2 if self.num_classes == 2 else 1) / (self.inverse_penalty * len(self.x_ND))

    def loss_and_slope(self, w_CD: Tensor) -> tuple[float, Tensor]:
        """L and its gradient in float64."""
        w_CD_low = w_CD.to(self.x_ND.dtype)
        slope_CD, total = torch.zeros_like(w_CD), torch.zeros((), dtype=torch.float64)

        def compute(first: int) -> tuple[Tensor, Tensor, Tensor]:
            x_BD, class_1B = self.x_ND[first : first + BLOCK], self.class_N[None, first : first + BLOCK]
            # Classes in rows: with ten in columns the softmax would take as long as the products.
            intercept_CB = w_CD_low[:, -1:].repeat(1, len(x_BD))
            log_p_CB = add_product_(intercept_CB, w_CD_low[:, :-1], x_BD.T).log_softmax(dim=0)
            loss = -log_p_CB.gather(0, class_1B).sum(dtype=torch.float64)
            error_CB = errors(log_p_CB.exp_(), class_1B)
            return loss, multiply(error_CB, x_BD), error_CB.sum(dim=1, dtype=torch.float64)

        def add(_: int, part: tuple[Tensor, Tensor, Tensor]) -> None:
            total.add_(part[0])
            slope_CD[:, :-1].add_(part[1])
            slope_CD[:, -1].add_(part[2])

        ordered_map(range(0, len(self.x_ND), BLOCK), compute, add)
        slope_CD /= len(self.x_ND)
        slope_CD[:, :-1].add_(w_CD[:, :-1], alpha=self.penalty)
        return float(total) / len(self.x_ND) + self.penalty / 2 * float(w_CD[:, :-1].square().sum()), slope_CD


@dataclass(frozen=True)
class Fit:
    """Fitted weights, with the loss and the norm of its gradient.

    Attributes:
        weight_CD: weights of each class, float64.
        intercept_C: intercept of each class, float64.
        loss: value of the loss L at these weights.
        slope: Euclidean norm of the gradient of L there, at most ``OPTIMALITY`` if the search has converged.
        steps: number of steps of L-BFGS.
    """

    weight_CD: Tensor
    intercept_C: Tensor
    loss: float
    slope: float
    steps: int

    @property
    def optimality(self) -> str:
        """The stated norm of the gradient in words, or the norm at which the search ended before."""
        if self.slope <= OPTIMALITY:
            return f"gradient norm at most {OPTIMALITY:g}"
        return f"gradient norm {self.slope:.1e} after {self.steps} steps"

    def predict(self, x_QD: Tensor) -> Tensor:
        """Predict class numbers; of equal logits the smaller number."""
        return torch.addmm(self.intercept_C.to(x_QD.dtype), x_QD, self.weight_CD.T.to(x_QD.dtype)).argmax(dim=1)


@one_thread()
def fit(problem: SoftmaxRegression) -> Fit:
    """Minimise L by L-BFGS until the norm of its gradient is at most ``OPTIMALITY``.

    Source: liu1989, with the second moments of the features in place of a multiple of the identity as first
    curvature, the form of boehning1992's bound on the Hessian: correlated features then cost no more steps than others
    (15 instead of 139 for 30 of them that hold four classes apart by a third of their spread).
    """
    curvature = _Curvature(problem)
    w_CD = torch.zeros(problem.num_classes, problem.x_ND.shape[1] + 1, dtype=torch.float64)
    loss, slope_CD = problem.loss_and_slope(w_CD)
    # Rounding of the loss, below which it does not tell a decrease.
    rounding, steps = 10 * torch.finfo(problem.x_ND.dtype).eps, 0
    while slope_CD.norm() > OPTIMALITY and steps < MAX_STEPS:
        direction_CD = curvature.direction(slope_CD)
        promised, length = _dot(slope_CD, direction_CD), 1.0
        while True:
            new_loss, new_slope_CD = problem.loss_and_slope(w_CD + length * direction_CD)
            if new_loss <= loss + SUFFICIENT * length * promised + rounding * loss or length < LEAST_STEP:
                break
            length /= 2
        if length < LEAST_STEP:
            break
        curvature.learn(length * direction_CD, new_slope_CD - slope_CD)
        w_CD, loss, slope_CD, steps = w_CD + length * direction_CD, new_loss, new_slope_CD, steps + 1
    return Fit(w_CD[:, :-1], w_CD[:, -1], loss, float(slope_CD.norm()), steps)


class _Curvature:
    """The approximate Hessian of L-BFGS: the second moments of the features, and the last steps."""

    def __init__(self, problem: SoftmaxRegression) -> None:
        self._pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=MEMORY)
        self._share = 1 / problem.num_classes  # of each class, before anything is learned
        self._scale = 1.0
        # Cholesky factor of share x mean(x x^T) + lambda; None if it does not pay.
        self._factor_DD = None
        num_samples, num_features = problem.x_ND.shape
        if num_features <= min(WIDEST, num_samples // SAMPLES_FOR_A_FEATURE):
            # Rows from everywhere, as samples may be sorted by class.
            sampled_MD = problem.x_ND[:: num_samples // (SAMPLES_OF_MOMENTS * num_features)]
            moments_DD = torch.zeros(num_features, num_features, dtype=torch.float64)
            ordered_map(
                sampled_MD.split(BLOCK), lambda x_BD: x_BD.T @ x_BD, lambda _, part_DD: moments_DD.add_(part_DD)
            )
            moments_DD *= self._share / len(sampled_MD)
            moments_DD.diagonal().add_(problem.penalty)
            self._factor_DD = torch.linalg.cholesky(moments_DD)

    def direction(self, slope_CD: Tensor) -> Tensor:
        """The direction of descent: minus the inverse Hessian times the slope (the two loops of liu1989)."""
        direction_CD, parts = -slope_CD, []
        for step_CD, change_CD, product in reversed(self._pairs):
            parts.append(_dot(step_CD, direction_CD) / product)
            direction_CD.sub_(change_CD, alpha=parts[-1])
        direction_CD = self._first_inverse(direction_CD).mul_(self._scale)
        for (step_CD, change_CD, product), part in zip(self._pairs, reversed(parts), strict=True):
            direction_CD.add_(step_CD, alpha=part - _dot(change_CD, direction_CD) / product)
        return direction_CD

    def learn(self, step_CD: Tensor, change_CD: Tensor) -> None:
        product = _dot(step_CD, change_CD)
        # L is convex: a product that is not positive is rounding.
        if product > 0:
            self._pairs.append((step_CD, change_CD, product))
            self._scale = product / _dot(change_CD, self._first_inverse(change_CD))

    def _first_inverse(self, slope_CD: Tensor) -> Tensor:
        """The inverse of the first curvature times a slope."""
        result_CD = slope_CD / self._share
        if self._factor_DD is not None:
            result_CD[:, :-1] = torch.cholesky_solve(slope_CD[:, :-1].T, self._factor_DD).T
        return result_CD


def _dot(a_CD: Tensor, b_CD: Tensor) -> float:
    return float(torch.dot(a_CD.view(-1), b_CD.view(-1)))


@dataclass(frozen=True)
class Scaling:
    """A standardisation of features.

    Attributes:
        mean_D: mean of each feature, float64.
        deviation_D: deviation of each feature, float64; infinite for a constant feature, which becomes 0.
    """

    mean_D: Tensor
    deviation_D: Tensor

    def __call__(self, x_ND: Tensor) -> Tensor:
        """Features with the mean subtracted, divided by the deviation."""
        # In place: rows on disk pass here at every step of a search, and new memory costs as much as the division.
        return rowwise(lambda rows_ND: (rows_ND.double() - self.mean_D).div_(self.deviation_D).to(rows_ND.dtype), x_ND)

    def of_rows(self, rows_ND: Rows) -> Rows:
        """Standardise rows that may lie on disk, which are then scaled each time that they are read."""
        return self(rows_ND) if isinstance(rows_ND, Tensor) else rows_ND.changed(self)


def fit_scaling(bank_ND: Rows) -> Scaling:
    """Fit a standardisation to the mean and standard deviation of labelled samples.

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
    total_D, parts = torch.zeros(x_ND.shape[1], dtype=torch.float64), row_slices(len(x_ND), BLOCK)
    ordered_map(parts, lambda rows: function(x_ND[rows].double()).sum(dim=0), lambda _, part_D: total_D.add_(part_D))
    return total_D / len(x_ND)


def numbered(labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The classes that occur, ascending, and for each sample the place of its class among them.

    Raises:
        ValueError: fewer than two classes, from which no classifier can be trained.
    """
    classes_C, class_N = labels_N.long().unique(return_inverse=True)
    if len(classes_C) < 2:
        raise ValueError(f"a linear probe needs samples of at least 2 classes, got only class {int(classes_C[0])}")
    return classes_C, class_N


@dataclass(frozen=True)
class Probe:
    """A linear classifier of features, as it was fitted.

    Attributes:
        classes_C: classes that the probe was fitted to, ascending.
        scaling: standardisation of the features.
        solution: weights on the standardised features, with the loss and the norm of its gradient.
    """

    classes_C: Tensor
    scaling: Scaling
    solution: Fit

    def predict(self, queries_QD: Tensor) -> Tensor:
        """Classes of features, int64 (q,).

        Raises:
            ValueError: rows that are not finite, or of another width than the labelled ones.
        """
        check_queries(queries_QD, len(self.scaling.mean_D))
        return self.classes_C[self.solution.predict(self.scaling(queries_QD))]


def fit_probe(bank_ND: Rows, labels_N: Tensor, *, inverse_penalty: float = INVERSE_PENALTY) -> Probe:
    """Fit a linear probe to labelled features.

    Features are standardised by the labelled samples' mean and deviation. The loss is that of ``SoftmaxRegression``,
    minimised until the norm of its gradient is at most 1e-5; nothing is random and no learning rate is to be tuned.

    Args:
        bank_ND: features of labelled samples, in memory or on disk.
        labels_N: classes of these samples, whole numbers.
        inverse_penalty: inverse strength C > 0 of the squared penalty on the weights.

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


def probe_of(labelled: Labelled) -> Probe:
    """The probe of some features, fitted once."""
    return labelled.once(
        "fitted probe", lambda: fit_probe(labelled.bank_ND, labelled.labels_N, inverse_penalty=labelled.inverse_penalty)
    )


def probe_score(labelled: Labelled) -> Score:
    """Accuracy of the probe on the queries."""
    probe = probe_of(labelled)
    predicted_Q = labelled.once("probe's classes", lambda: probe.predict(labelled.queries_QD))
    return accuracy(predicted_Q, labelled.labels_Q, probe_settings(probe, labelled.inverse_penalty))


def probe_settings(probe: Probe, inverse_penalty: float) -> dict[str, Any]:
    """Settings that the figure of a probe depends on."""
    settings = {"model": "logistic regression", "C": inverse_penalty, "features": "standardised"}
    return {**settings, "optimality": probe.solution.optimality}


METRICS = (
    accuracy_metric(
        name="linear probe",
        title="Linear probe",
        short="linear probe",
        definition="Share of queries that a linear classifier, fitted to the frozen features of labelled samples, "
        "classifies correctly.",
        source="alain2017",
        measure=probe_score,
        wording="a linear classifier fitted to the frozen vectors of the bank names each query",
        headline="representation",
        in_parts=True,
    ),
)
