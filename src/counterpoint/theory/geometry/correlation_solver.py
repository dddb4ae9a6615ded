r"""Minimise a risk over correlation matrices, with a certificate, and the descent that most answers come from.

The descent is on the factor of A = V V^T, with rows of V on the unit sphere: trust-region Newton on the product of
spheres, whose system is solved by conjugate gradients, preconditioned row by row and cut off at the border of the
region. A saddle of the factor is not a trap once V has as many columns as the rank of the optimum needs (Burer and
Monteiro).
"""

# C classes, R columns of the factor

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.theory.geometry.correlation_dual import certify, finish_on_face, multipliers
from counterpoint.theory.geometry.risk_rows import RiskAt

_SLOPES = (1e-2, 1e-4, 1e-7, 1e-10, 1e-13)  # of the descent, each followed by a certificate
_MOST_GROWTHS = 3
_ROUNDING = 4e-16
# Relative gradient of every class, and stretch of the certificate: rare classes hardly enter the gap.
_CLASS_SLOPE = 1e-6
_MOST_STEPS = 300  # of Newton's method
_MOST_PRODUCTS = 500  # Hessian-vector products per step
_EPSILON = torch.finfo(torch.float64).eps
_KEEP = 1e-7  # singular values below this share of the largest are dropped: they change the risk by its square


class Risk(Protocol):
    """A function of symmetric matrices of unit diagonal."""

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
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
        value: risk of ``gram_CC``.
        lower_bound: number that the risk of no correlation matrix is below (if the risk is convex).
        scale: size of the risk that the gap is compared with.
        iterations: number of Newton steps.
        is_certified: whether the gap is within the tolerance.
        status: kind of answer, in words.
        is_global: whether it is a solution of a convex problem, certified or not; else it is a local one, or not known.
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
    (``descend``) does, dropping columns that vanish. The certificate (``correlation_dual``) judges both, and where it
    finds a direction that the factor has no column for, one is added.

    Args:
        risk: risk S, which gives its value, gradient and curvature at symmetric matrices of unit diagonal.
        rank: largest number of columns of the factor; fewer than C - 1 give a local minimum and only a bound.
        tolerance: largest relative gap that counts as certified, > 0.
        start: factor to start from, (C, R); None is the simplex, or its image in fewer columns.

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
        # settled: every class, however rare, is where it should be
        is_done = is_done or _grow(best, most_columns, slope)
        if is_done and max(best.point.relative_slope, best.stretch) <= _CLASS_SLOPE:
            break
        factor_CR = best.point.factor_CR
    return best.solution()


def _grow(best: "_Best", most_columns: int, slope: float) -> bool:
    """Add columns and descend again, while the certificate asks for it; tell whether that ended with a certificate."""
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


@dataclass(frozen=True)
class Point:
    """A factor and the risk there.

    Attributes:
        factor_CR: V, rows of unit length.
        gram_CC: V V^T.
        at: value and derivatives of the risk.
        multipliers_C: multipliers y of the unit-length constraints.
        slope_CR: Riemannian gradient, 2 (G + diag(y)) V.
    """

    factor_CR: Tensor
    gram_CC: Tensor
    at: RiskAt
    multipliers_C: Tensor
    slope_CR: Tensor

    @property
    def relative_slope(self) -> float:
        """Length of a class's gradient as a share of the forces that cancel in it, where that is largest.

        Where no force is left (the spectral loss), of what a change of its cosines by 1 % would bring.
        """
        forces_C = self.at.gradient_CC.abs().sum(dim=1)
        # the least number keeps a flat risk, whose slope is 0 too, from 0 / 0
        size_C = (forces_C + 0.01 * self.at.curvature_diagonal_CC.abs().sum(dim=1)).clamp_min(1e-300)
        return float((self.slope_CR.norm(dim=1) / (2 * size_C)).max())


class Descent(NamedTuple):
    """End of a descent, and the number of its Newton steps."""

    point: Point
    iterations: int


@dataclass(frozen=True)
class _Step:
    """A step of the trust-region problem, the change its model predicts, and whether the border cut it off."""

    step_CR: Tensor
    model_change: float
    is_cut: bool
    length: float


def point_at(risk: Callable[[Tensor], RiskAt], factor_CR: Tensor) -> Point:
    """Evaluate the risk at a factor, whose rows are brought to unit length."""
    factor_CR = factor_CR / factor_CR.norm(dim=1, keepdim=True)
    gram_CC = factor_CR @ factor_CR.T
    gram_CC.fill_diagonal_(1.0)
    at = risk(gram_CC)
    y_C = multipliers(at.gradient_CC, gram_CC)
    return Point(factor_CR, gram_CC, at, y_C, 2 * (at.gradient_CC @ factor_CR + y_C[:, None] * factor_CR))


def descend(risk: Callable[[Tensor], RiskAt], factor_CR: Tensor, *, slope: float) -> Descent:
    """Minimise the risk over factors of a given shape, to a stationary point.

    Args:
        risk: function of a correlation matrix that gives the risk's value and derivatives.
        factor_CR: factor to start from, (C, R); columns that vanish on the way are dropped.
        slope: relative length of the gradient at which to stop.

    Returns:
        The last point; check its ``relative_slope``.
    """
    point, radius = point_at(risk, factor_CR), 1.0
    # twice the distance of the farthest two factors, 2 sqrt(C)
    largest_radius = 4 * math.sqrt(len(factor_CR))
    for iteration in range(_MOST_STEPS):
        if point.relative_slope <= slope:
            return Descent(point, iteration)
        step = _trust_region_step(point, radius)
        trial = point_at(risk, point.factor_CR + step.step_CR)
        # The error of a value, by the size of what cancels in it. On both sides of the ratio it gives agreement 1 to
        # changes that are too small for the value to tell, so that steps continue while the slope still falls.
        rounding = 10 * _EPSILON * max(abs(point.at.value), float(point.multipliers_C.abs().sum()))
        agreement = (point.at.value - trial.at.value + rounding) / (rounding - step.model_change)
        if -step.model_change < 0.01 * rounding and trial.relative_slope >= point.relative_slope:
            return Descent(point, iteration)  # as far as rounding lets the value tell
        if agreement < 0.25:
            radius = 0.25 * min(radius, step.length)
        elif agreement > 0.75 and step.is_cut:
            radius = min(2 * radius, largest_radius)
        # else the point stays, and the next step is sought in a smaller region
        if agreement > 0.05:
            # Directions that no class uses any more are dropped, after turning the factor to its principal axes.
            squares_R, axes_RR = torch.linalg.eigh(trial.factor_CR.T @ trial.factor_CR)  # of singular values, ascending
            is_used_R = squares_R > (_KEEP**2) * squares_R[-1]
            point = trial if bool(is_used_R.all()) else point_at(risk, trial.factor_CR @ axes_RR[:, is_used_R])
    return Descent(point, _MOST_STEPS)


def _trust_region_step(point: Point, radius: float) -> _Step:
    """Minimise the quadratic model within the radius by conjugate gradients (Steihaug and Toint)."""
    scale_C1 = _preconditioner(point)
    # H times the step is summed up beside the step: the model's value then takes no product of its own
    step_CR, product_CR = torch.zeros_like(point.factor_CR), torch.zeros_like(point.factor_CR)
    residual_CR = point.slope_CR
    solved_CR = residual_CR / scale_C1
    direction_CR = -solved_CR
    energy = first_energy = _dot(residual_CR, solved_CR)
    # Forcing term min(0.1, slope), squared as energies are: far away a rough step will do, near by Newton's rate stays.
    target = first_energy * min(0.1, point.relative_slope) ** 2
    for _ in range(_MOST_PRODUCTS):
        curved_CR = _hessian_product(point, direction_CR)
        curvature = _dot(direction_CR, curved_CR)
        length = energy / curvature if curvature > 0 else math.inf
        # Negative curvature, or the border lies nearer than the next iterate: this direction is followed to the border.
        if curvature <= 0 or float((step_CR + length * direction_CR).norm()) >= radius:
            # The positive root of |step + length direction| = radius.
            along, square = _dot(step_CR, direction_CR), _dot(direction_CR, direction_CR)
            missing = max(radius**2 - _dot(step_CR, step_CR), 0.0)
            length = (-along + math.sqrt(along**2 + square * missing)) / square
            step_CR, product_CR = step_CR + length * direction_CR, product_CR + length * curved_CR
            return _Step(step_CR, _model(point, step_CR, product_CR), True, radius)
        step_CR, product_CR = step_CR + length * direction_CR, product_CR + length * curved_CR
        residual_CR = residual_CR + length * curved_CR
        solved_CR = residual_CR / scale_C1
        energy, last = _dot(residual_CR, solved_CR), energy
        if energy <= target:
            break
        direction_CR = (energy / last) * direction_CR - solved_CR
    return _Step(step_CR, _model(point, step_CR, product_CR), False, float(step_CR.norm()))


def _hessian_product(point: Point, change_CR: Tensor) -> Tensor:
    """Riemannian Hessian of the risk times a tangent vector."""
    factor_CR, at = point.factor_CR, point.at
    gram_change_CC = change_CR @ factor_CR.T
    gram_change_CC = gram_change_CC + gram_change_CC.T
    # 2 v_i . change_i vanishes for a tangent up to rounding
    gram_change_CC.fill_diagonal_(0.0)
    product_CR = at.gradient_CC @ change_CR + point.multipliers_C[:, None] * change_CR
    product_CR = 2 * (product_CR + at.curvature(gram_change_CC) @ factor_CR)
    # back into the tangent space: no part along a row of V
    return product_CR - (product_CR * factor_CR).sum(dim=1, keepdim=True) * factor_CR


def _preconditioner(point: Point) -> Tensor:
    """Mean curvature of each row, from its multiplier and the diagonal of the risk's Hessian; (C, 1), positive."""
    # The Hessian of row i along a unit tangent t is 2 (y_i + sum_j H_ij (v_j . t)^2); of the R - 1 directions of t the
    # mean square of v_j . t is (1 - a_ij^2) / (R - 1).
    spread_CC = point.at.curvature_diagonal_CC * (1 - point.gram_CC.square())
    scale_C = point.multipliers_C.abs() + spread_CC.sum(dim=1) / max(point.factor_CR.shape[1] - 1, 1)
    return 2 * scale_C.clamp_min(1e-12 * float(scale_C.max()) + 1e-300)[:, None]


def _model(point: Point, step_CR: Tensor, product_CR: Tensor) -> float:
    return _dot(point.slope_CR, step_CR) + 0.5 * _dot(step_CR, product_CR)


def _dot(left: Tensor, right: Tensor) -> float:
    return float(torch.dot(left.flatten(), right.flatten()))


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
        """Tell whether the gap is within the tolerance."""
        return self._point is not None and self.point.at.value - self.lower_bound <= self.tolerance * self.scale

    def offer(self, descent: Descent) -> bool:
        """Take a descent's end, and its bound; tell whether that certifies."""
        self.iterations += descent.iterations
        self._keep_better(descent.point)
        return self.is_certified

    def offer_finish(self, gram_CC: Tensor) -> bool:
        """Try the rank-one dual from here; tell whether that certifies. If it fails, all is left as it was."""
        finish = finish_on_face(self.risk, gram_CC)
        if finish is None:
            return False
        self.iterations += finish.iterations
        values_C, vectors_CC = torch.linalg.eigh(0.5 * (finish.gram_CC + finish.gram_CC.T))
        # Eigenvalues that are negative by rounding are cut off; a matrix further from semi-definite is left.
        if float(values_C[0]) >= -1e-6 * float(values_C[-1]):
            is_kept_C = values_C > 1e-13 * values_C[-1]
            factor_CR = vectors_CC[:, is_kept_C] * values_C[is_kept_C].sqrt()
            self._keep_better(point_at(self.risk, factor_CR / factor_CR.norm(dim=1, keepdim=True)))
        return self.is_certified

    def wider_factor(self, most_columns: int) -> Tensor | None:
        """Add the columns along which the dual matrix is negative; None if there are none or no room."""
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

    def _keep_better(self, point: Point) -> None:
        """Keep the point if it is better, and the bound if it is."""
        certificate = certify(point.at, point.gram_CC)
        # a bound holds whichever point it came from
        self.lower_bound = max(self.lower_bound, certificate.lower_bound)
        # Where rounding cannot tell two values apart, the later point has the smaller slope as a rule.
        if self._point is None or point.at.value <= self._point.at.value + _ROUNDING * abs(point.at.value):
            self._point, self.scale, self.stretch = point, certificate.scale, certificate.stretch
