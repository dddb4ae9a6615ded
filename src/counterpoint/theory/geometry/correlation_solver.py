"""Minimise a risk over correlation matrices, with a certificate."""

# C classes, R columns of the factor

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.theory.geometry.correlation_descent import Descent, Point, descend, point_at
from counterpoint.theory.geometry.correlation_dual import certify, finish_on_face
from counterpoint.theory.geometry.risk_rows import RiskAt

_SLOPES = (1e-2, 1e-4, 1e-7, 1e-10, 1e-13)  # of the descent, each followed by a certificate
_MOST_GROWTHS = 3
_ROUNDING = 4e-16
_CLASS_SLOPE = (
    1e-6  # relative gradient of every class, and stretch of the certificate: rare classes hardly enter the gap
)


class Risk(Protocol):
    """A function of symmetric matrices of unit diagonal."""

    @property
    def num_classes(self) -> int:
        """C."""
        ...

    def at(self, gram_CC: Tensor) -> RiskAt:
        """Value and derivatives."""
        ...


@dataclass(frozen=True)
class Solution:
    """A correlation matrix and how good it is.

    Attributes:
        gram_CC: A, positive semi-definite with unit diagonal.
        factor_CR: V with V V^T = A; its columns are the principal axes, longest first.
        value: the risk.
        lower_bound: no correlation matrix has a smaller risk (where the risk is convex).
        scale: what the gap is compared with.
        iterations: Newton steps.
        is_certified: the gap is within the tolerance.
        status: what kind of answer it is, in words.
        is_global: a solution of a convex problem, certified or not; else a local one, or not known.
    """

    gram_CC: Tensor
    factor_CR: Tensor
    value: float
    lower_bound: float
    scale: float
    iterations: int
    is_certified: bool
    status: str = ""
    is_global: bool = False

    @property
    def relative_gap(self) -> float:
        """Distance from the lower bound as a share of the scale."""
        return max(0.0, self.value - self.lower_bound) / self.scale


def minimise_over_correlations(
    risk: Risk, *, rank: int | None = None, tolerance: float = 1e-8, start: Tensor | None = None
) -> Solution:
    r"""Minimise a convex risk over correlation matrices, to a certified relative gap.

    Where the answer has rank C - 1, as it has for mild imbalance, Newton's method on the rank-one dual
    (``correlation_dual``) finds it from the simplex in a few steps. Else trust-region descent on a factor
    (``correlation_descent``) does, dropping columns that vanish. The certificate (``correlation_dual``) judges both,
    and where it finds a direction that the factor has no column for, one is added.

    Args:
        risk: value, gradient and curvature of S on symmetric matrices of unit diagonal.
        rank: most columns of the factor; fewer than C - 1 give a local minimum and no certificate but the bound.
        tolerance: relative gap, > 0.
        start: factor, (C, R); default is the simplex, or its image in fewer columns.

    Returns:
        The solution; ``is_certified`` says whether the gap was reached.

    Raises:
        UsageError: rank < 1 or tolerance <= 0.
    """
    if rank is not None and rank < 1:
        raise UsageError(f"rank must be >= 1, got {rank}; C - 1 always suffices")
    if not tolerance > 0:
        raise UsageError(f"tolerance must be > 0, got {tolerance}; 1e-8 is common")
    most_columns = risk.num_classes if rank is None else rank
    is_whole = most_columns >= risk.num_classes - 1
    factor_CR = simplex(risk.num_classes) if start is None else start
    if start is None and most_columns < factor_CR.shape[1]:
        # Helmert's first columns are 0 for the last classes; a fixed random direction leaves every row one.
        generator = torch.Generator().manual_seed(0)
        factor_CR = factor_CR @ torch.randn(factor_CR.shape[1], most_columns, generator=generator, dtype=torch.float64)
    best = _Best(risk.at, tolerance)
    # mild imbalance ends here, without a descent
    if is_whole and best.offer_finish(factor_CR @ factor_CR.T):
        return best.solution()
    # Rough descents first: they show which columns vanish or are missing, and make the later ones short.
    for slope in _SLOPES:
        is_done = best.offer(descend(risk.at, factor_CR[:, :most_columns], slope=slope))
        is_done = is_done or (is_whole and best.offer_finish(best.point.gram_CC))
        if (is_done or _grow(best, most_columns, slope)) and best.is_settled:
            break
        factor_CR = best.point.factor_CR
    return best.solution()


def _grow(best: "_Best", most_columns: int, slope: float) -> bool:
    """Add columns and descend again, while the certificate asks for it; whether that ended with a certificate."""
    for _ in range(_MOST_GROWTHS):
        wider_CR = best.wider_factor(most_columns)
        if wider_CR is None:
            return False
        if best.offer(descend(best.risk, wider_CR, slope=slope)):
            return True
    return False


def simplex(num_classes: int) -> Tensor:
    """Vectors of a regular simplex, (C, C - 1): cosines are all -1/(C - 1).

    >>> simplex(3) @ simplex(3).T
    tensor([[ 1.0000, -0.5000, -0.5000],
            [-0.5000,  1.0000, -0.5000],
            [-0.5000, -0.5000,  1.0000]], dtype=torch.float64)
    """
    # Helmert's basis of the vectors that sum to zero
    rows_RC = torch.eye(num_classes, dtype=torch.float64)[1:]
    below_RC = torch.tril(torch.ones(num_classes, num_classes, dtype=torch.float64), -1)[1:]
    index_R1 = torch.arange(1, num_classes, dtype=torch.float64)[:, None]
    basis_RC = (below_RC - index_R1 * rows_RC) / (index_R1 * (index_R1 + 1)).sqrt()
    # rows of C - 1 orthonormal columns have squared length (C - 1) / C
    return basis_RC.T * (num_classes / (num_classes - 1)) ** 0.5


class _Best:
    """The best point so far, the best lower bound so far, and the work done."""

    def __init__(self, risk: Callable[[Tensor], RiskAt], tolerance: float) -> None:
        self.risk, self.tolerance = risk, tolerance
        self.iterations, self.lower_bound, self.scale, self.stretch = 0, -float("inf"), 1.0, float("inf")
        self._point: Point | None = None

    @property
    def point(self) -> Point:
        """The point of least risk."""
        assert self._point is not None
        return self._point

    @property
    def is_certified(self) -> bool:
        """Whether the gap is within the tolerance."""
        return self._point is not None and self.point.at.value - self.lower_bound <= self.tolerance * self.scale

    @property
    def is_settled(self) -> bool:
        """Whether every class, however rare, is where it should be."""
        return self.point.relative_slope <= _CLASS_SLOPE and self.stretch <= _CLASS_SLOPE

    def offer(self, descent: Descent) -> bool:
        """Take a descent's end, and its bound; whether that certifies."""
        self.iterations += descent.iterations
        self._take(descent.point)
        return self.is_certified

    def offer_finish(self, gram_CC: Tensor) -> bool:
        """Try the rank-one dual from here; whether that certifies. Where it fails all is left as it was."""
        finish = finish_on_face(self.risk, gram_CC)
        if finish is None:
            return False
        self.iterations += finish.iterations
        values_C, vectors_CC = torch.linalg.eigh(0.5 * (finish.gram_CC + finish.gram_CC.T))
        # Eigenvalues that are negative by rounding are cut off; a matrix further from semi-definite is left.
        if float(values_C[0]) >= -1e-6 * float(values_C[-1]):
            is_kept_C = values_C > 1e-13 * values_C[-1]
            factor_CR = vectors_CC[:, is_kept_C] * values_C[is_kept_C].sqrt()
            self._take(point_at(self.risk, factor_CR / factor_CR.norm(dim=1, keepdim=True)))
        return self.is_certified

    def wider_factor(self, most_columns: int) -> Tensor | None:
        """Add the columns along which the dual matrix is negative; None where there are none or no room."""
        point = self.point
        room = most_columns - point.factor_CR.shape[1]
        # Z has its meaning at a stationary point only.
        if room <= 0 or point.relative_slope > 1e-3:
            return None
        dual_CC = point.at.gradient_CC + torch.diag(point.multipliers_C)
        values_C, vectors_CC = torch.linalg.eigh(dual_CC)
        # Along e with e' Z e < 0 the risk falls, to second order, where classes move by e into a new dimension.
        num_new = min(room, int((values_C < -1e-12 * values_C.abs().max()).sum()))
        if num_new == 0:
            return None
        # not from 0, where the slope along a new column vanishes
        return torch.cat([point.factor_CR, 0.1 * vectors_CC[:, :num_new]], dim=1)

    def solution(self) -> Solution:
        """The record; the factor is turned to its principal axes."""
        point = self.point
        axes_RR = torch.linalg.eigh(point.factor_CR.T @ point.factor_CR)[1]
        turned_CR = (point.factor_CR @ axes_RR).flip(1)
        return Solution(
            point.gram_CC,
            turned_CR,
            point.at.value,
            # rounding may put the bound above the value
            min(self.lower_bound, point.at.value),
            self.scale,
            self.iterations,
            self.is_certified,
        )

    def _take(self, point: Point) -> None:
        """Keep the point if it is better, and the bound if it is."""
        certificate = certify(point.at, point.gram_CC)
        # a bound holds whichever point it came from
        self.lower_bound = max(self.lower_bound, certificate.lower_bound)
        # Where rounding cannot tell two values apart, the later point has the smaller slope as a rule.
        if self._point is None or point.at.value <= self._point.at.value + _ROUNDING * abs(point.at.value):
            self._point, self.scale, self.stretch = point, certificate.scale, certificate.stretch
