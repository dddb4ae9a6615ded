r"""How far a correlation matrix can be from the best one: a lower bound from the dual problem.

For a convex risk, :math:`S(B) \ge S(A) + \langle G, B - A\rangle` with :math:`G = \nabla S(A)`, and over correlation
matrices B

.. math:: \min_B \langle G, B\rangle = \max_y \Big\{-\sum_i y_i : Z = G + \mathrm{diag}(y) \succeq 0\Big\}.

Any y that makes Z positive semi-definite therefore certifies an answer, however it was found.
"""

# C classes

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.theory.geometry.class_risk import RiskAt

_SMALLEST_SHARE = 1e-20  # of the largest multiplier, below which none is taken: it is divided by its root


@dataclass(frozen=True)
class Certificate:
    """A lower bound of the risk over all correlation matrices.

    Attributes:
        lower_bound: no correlation matrix has a smaller risk.
        multipliers_C: y, with which G + diag(y) is positive semi-definite.
        scale: size of the risk and of its first-order change, which gaps are compared with.
        stretch: delta, the share by which those of stationarity had to grow: 0 at the optimum. It is free
            of scale, so that rare classes count as much as frequent ones, which in the gap they do not.
    """

    lower_bound: float
    multipliers_C: Tensor
    scale: float
    stretch: float

    def relative_gap(self, value: float) -> float:
        """Distance of a value from the lower bound, as a share of the scale."""
        return max(0.0, value - self.lower_bound) / self.scale


def multipliers(gradient_CC: Tensor, gram_CC: Tensor) -> Tensor:
    r"""Multipliers that stationarity asks for, :math:`y_i = -\sum_j G_{ij} A_{ij}`.

    Where A is optimal, Z A = 0, whose diagonal this is.
    """
    return -(gradient_CC * gram_CC).sum(dim=1)


def certify(at: RiskAt, gram_CC: Tensor) -> Certificate:
    r"""Lower bound of the risk from its value and gradient at one correlation matrix.

    The multipliers of stationarity are scaled up until Z is positive semi-definite. With :math:`D = \mathrm{diag}(y)`
    and :math:`-(1 + \delta)` the smallest eigenvalue of :math:`D^{-1/2} G D^{-1/2}`, :math:`(1 + \delta) y` does, and
    costs :math:`\delta \sum_i y_i`. Scaling, unlike shifting, treats rare classes as frequent ones. A rounding error of
    the eigenvalue is added to delta.

    Args:
        at: the risk at ``gram_CC``; convex.
        gram_CC: correlation matrix, (C, C).

    Returns:
        The bound, valid whatever ``gram_CC`` is.

    >>> gradient = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)  # S(A) = 2 A_12
    >>> opposite = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    >>> at = RiskAt(-2.0, gradient, torch.zeros_like, torch.zeros_like(gradient), torch.zeros(2))
    >>> round(certify(at, opposite).lower_bound, 9)
    -2.0
    """
    gradient_CC = at.gradient_CC
    y_C = multipliers(gradient_CC, gram_CC)
    first_order = float(y_C.sum())  # -<G, A>
    largest = max(float(y_C.max()), float(gradient_CC.abs().max()))
    if largest == 0:  # a flat risk
        return Certificate(at.value, y_C, max(abs(at.value), torch.finfo(y_C.dtype).tiny), 0.0)
    y_C = y_C.clamp_min(_SMALLEST_SHARE * largest)
    root_C = y_C.sqrt()
    scaled_CC = gradient_CC / root_C[:, None] / root_C[None, :]
    eigenvalues_C = torch.linalg.eigvalsh(scaled_CC)
    rounding = 4 * torch.finfo(y_C.dtype).eps * float(eigenvalues_C.abs().max())
    stretch = max(0.0, rounding - float(eigenvalues_C[0]) - 1)
    y_C = (1 + stretch) * y_C
    scale = max(abs(at.value), abs(first_order))
    return Certificate(at.value + first_order - float(y_C.sum()), y_C, scale, stretch)
