r"""Descent on the factor of a correlation matrix: A = V V^T with rows of V on the unit sphere.

Trust-region Newton on the product of spheres: the Newton system is solved by conjugate gradients, preconditioned row by
row and cut off at the border of the region. A saddle of the factor is not a trap once V has as many columns as the rank
of the optimum needs (Burer and Monteiro).
"""

# C classes, R columns of the factor

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.theory.geometry.correlation_dual import multipliers
from counterpoint.theory.geometry.risk_rows import RiskAt

_MOST_STEPS = 300  # of Newton's method
_MOST_PRODUCTS = 500  # Hessian-vector products per step
_EPSILON = torch.finfo(torch.float64).eps
_KEEP = 1e-7  # singular values below this share of the largest are dropped: they change the risk by its square


@dataclass(frozen=True)
class Point:
    """A factor and the risk there.

    Attributes:
        factor_CR: V, rows of unit length.
        gram_CC: V V^T.
        at: value and derivatives of the risk.
        multipliers_C: y of the unit-length constraints.
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


@dataclass(frozen=True)
class Descent:
    """Where a descent ended.

    Attributes:
        point: the last point.
        iterations: Newton steps taken.
    """

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
        risk: from a correlation matrix to value and derivatives.
        factor_CR: start, (C, R); columns that vanish on the way are dropped.
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
