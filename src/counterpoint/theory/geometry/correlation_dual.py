r"""The dual problem over correlation matrices: a lower bound for any answer, and Newton's method where its rank is one.

For a convex risk, :math:`S(B) \ge S(A) + \langle G, B - A\rangle` with :math:`G = \nabla S(A)`, and over correlation
matrices B

.. math:: \min_B \langle G, B\rangle = \max_y \Big\{-\sum_i y_i : Z = G + \mathrm{diag}(y) \succeq 0\Big\}.

Any y that makes Z positive semi-definite therefore certifies an answer, however it was found. At the optimum Z A = 0.
Where A has rank C - 1, Z has rank one, so that

.. math:: G_{ij} = z_i z_j \; (i \ne j), \qquad A z = 0, \qquad A_{ii} = 1

with a vector z > 0 in place of a factor of A. Newton's method solves these equations; its linear systems are symmetric,
and the Schur complement of the Hessian's diagonal preconditions them with one C x C factorisation.
"""

# C classes

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.thread_parts import one_blas_thread
from counterpoint.theory.geometry.risk_rows import RiskAt

_SMALLEST_SHARE = 1e-20  # of the largest multiplier, below which none is taken: it is divided by its root
_MOST_STEPS = 15  # of Newton's method
_MOST_PRODUCTS = 200  # Hessian products per Newton step
_FARTHEST = 2.0  # change of log z per step
_ROUNDING = 1e-14


@dataclass(frozen=True)
class DualCertificate:
    """A lower bound of the risk over all correlation matrices.

    Attributes:
        lower_bound: number that the risk of no correlation matrix is below.
        scale: size of the risk and of its first-order change, which gaps are compared with.
        stretch: delta, the share by which the multipliers of stationarity had to grow: 0 at the optimum. It is free
            of scale, so that rare classes count as much as frequent ones, which in the gap they do not.
    """

    lower_bound: float
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


def certify(at: RiskAt, gram_CC: Tensor) -> DualCertificate:
    r"""Lower bound of the risk from its value and gradient at one correlation matrix.

    The multipliers of stationarity are scaled up until Z is positive semi-definite. With :math:`D = \mathrm{diag}(y)`
    and :math:`-(1 + \delta)` the smallest eigenvalue of :math:`D^{-1/2} G D^{-1/2}`, :math:`(1 + \delta) y` does, and
    costs :math:`\delta \sum_i y_i`. Scaling, unlike shifting, treats rare classes as frequent ones. A rounding error of
    the eigenvalue is added to delta.

    Args:
        at: value and derivatives of a convex risk at ``gram_CC``.
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
        return DualCertificate(at.value, max(abs(at.value), torch.finfo(y_C.dtype).tiny), 0.0)
    # y_i is a diagonal entry of Z, so that one below 0 certifies nothing; a tiny one costs the bound little
    y_C = y_C.clamp_min(_SMALLEST_SHARE * largest)
    root_C = y_C.sqrt()
    # Z = D^1/2 (D^-1/2 G D^-1/2 + I) D^1/2 has the signs of the inner matrix's eigenvalues
    scaled_CC = gradient_CC / root_C[:, None] / root_C[None, :]
    eigenvalues_C = torch.linalg.eigvalsh(scaled_CC)
    rounding = 4 * torch.finfo(y_C.dtype).eps * float(eigenvalues_C.abs().max())
    stretch = max(0.0, rounding - float(eigenvalues_C[0]) - 1)
    # S(A) - <G, A> - sum (1 + delta) y, at most S(A) + <G, B - A> for every correlation matrix B
    bound = at.value + first_order - float(((1 + stretch) * y_C).sum())
    return DualCertificate(bound, max(abs(at.value), abs(first_order)), stretch)


class FaceFinish(NamedTuple):
    """End of Newton's method, and the number of its steps.

    A has a unit diagonal and is positive semi-definite up to rounding where the method converged to the optimum.
    """

    gram_CC: Tensor
    iterations: int


class _Residual(NamedTuple):
    outer_CC: Tensor  # z z^T with zero diagonal
    # G log(z z^T / G), to first order z z^T - G; nearly linear in A where the risk is made of exponentials
    pairs_CC: Tensor
    means_C: Tensor  # -A z
    size: float  # the larger of both, relative


# NumPy's threads and torch's, each waiting busily, would fight for the same cores: 25 times slower on two of them.
@one_blas_thread()
def finish_on_face(risk: Callable[[Tensor], RiskAt], gram_CC: Tensor) -> FaceFinish | None:
    """Solve the optimality conditions of rank C - 1 from a matrix nearby.

    Args:
        risk: function of a matrix of unit diagonal that gives value and derivatives of a risk growing with each entry.
        gram_CC: matrix to start from, (C, C).

    Returns:
        The solution, or None where the method does not apply (a gradient or curvature that is not positive) or goes
        astray; the caller must certify it.
    """
    at, log_z_C = risk(gram_CC), None
    for iteration in range(_MOST_STEPS):
        # z > 0 asks for G > 0 off the diagonal, and the unknowns are scaled by the diagonal of H
        if not (_is_positive(at.gradient_CC) and _is_positive(at.curvature_diagonal_CC)):
            return None
        # log z as the unknown keeps z > 0 in every step. First the z whose products are nearest to the gradient's
        # entries, by least squares of logarithms: sums are (C - 2) log z_i + sum_j log z_j
        if log_z_C is None:
            num_classes, sums_C = len(gram_CC), at.gradient_CC.clone().fill_diagonal_(1.0).log().sum(dim=1)
            total = float(sums_C.sum()) / (2 * (num_classes - 1))
            # two classes have one equation, z_1 z_2 = G_12: both get the same z
            log_z_C = (sums_C - total) / (num_classes - 2) if num_classes > 2 else 0.5 * sums_C
        z_C = log_z_C.exp()
        outer_CC, means_C = torch.outer(z_C, z_C).fill_diagonal_(0.0), -(gram_CC @ z_C)
        log_ratio_CC = (outer_CC / at.gradient_CC).fill_diagonal_(1.0).log()
        size = max(float(log_ratio_CC.abs().max()), float((means_C.abs() / (gram_CC.abs() @ z_C)).max()))
        residual = _Residual(outer_CC, at.gradient_CC * log_ratio_CC, means_C, size)
        if residual.size <= _ROUNDING:
            return FaceFinish(gram_CC, iteration)
        step = _newton_step(at, gram_CC, z_C, residual)
        if step is None:
            return None
        gram_change_CC, log_z_change_C = step
        farthest = max(float(gram_change_CC.abs().max()), float(log_z_change_C.abs().max()) / _FARTHEST)
        # damped far away: a cosine changes by at most 1; near the solution the whole step is taken
        length = 1.0 / max(1.0, farthest)
        gram_CC, log_z_C = gram_CC + length * gram_change_CC, log_z_C + length * log_z_change_C
        # no cosine is above 1: Newton's method has left for somewhere else
        if float(gram_CC.abs().max()) > 3:
            return None
        at = risk(gram_CC)
    return FaceFinish(gram_CC, _MOST_STEPS)


def _is_positive(matrix_CC: Tensor) -> bool:
    """Tell whether all entries off the diagonal are positive and finite."""
    off_CC = matrix_CC.clone().fill_diagonal_(1.0)
    return bool((off_CC > 0).all()) and bool(torch.isfinite(off_CC).all())


def _newton_step(at: RiskAt, gram_CC: Tensor, z_C: Tensor, residual: _Residual) -> tuple[Tensor, Tensor] | None:
    r"""Changes of A and of log z.

    With X the change of A and w that of log z,

    .. math:: -H X + z_i z_j (w_i + w_j) = -R, \qquad 2 z \circ (X z) + 2 z \circ A (z \circ w) = 2 z \circ r.

    Unknowns are scaled by the diagonal of H and by the Cholesky factor of the Schur complement it leaves.
    """
    num_classes, outer_CC = len(z_C), residual.outer_CC
    diagonal_CC = at.curvature_diagonal_CC
    # 0 on the diagonal of A, which is no unknown
    scale_CC = torch.where(diagonal_CC > 0, diagonal_CC, torch.inf).rsqrt()
    weight_CC = (outer_CC * scale_CC).square()
    # Eliminating X by H's diagonal leaves 2 sum_j (z_i z_j)^2 (w_i + w_j) / H_ij beside the block 2 z_i A_ij z_j.
    schur_CC = 2 * (torch.diag(weight_CC.sum(dim=1)) + weight_CC + gram_CC * torch.outer(z_C, z_C))
    # no exception: a failure only says that the method does not apply here
    lower_CC, failed = torch.linalg.cholesky_ex(schur_CC)
    if int(failed):
        return None

    def unscale(unknowns: np.ndarray) -> tuple[Tensor, Tensor]:
        flat = torch.from_numpy(np.ascontiguousarray(unknowns))
        change_CC = scale_CC * flat[: num_classes**2].view(num_classes, num_classes)
        w_C1 = torch.linalg.solve_triangular(lower_CC.T, flat[num_classes**2 :, None], upper=True)
        return change_CC, w_C1[:, 0]

    def scale(pairs_CC: Tensor, means_C: Tensor) -> np.ndarray:
        solved_C1 = torch.linalg.solve_triangular(lower_CC, means_C[:, None], upper=False)
        return torch.cat([(scale_CC * pairs_CC).flatten(), solved_C1[:, 0]]).numpy()

    def multiply(unknowns: np.ndarray) -> np.ndarray:
        change_CC, w_C = unscale(unknowns)
        pairs_CC = outer_CC * (w_C[:, None] + w_C[None, :]) - at.curvature(change_CC)
        return scale(pairs_CC, 2 * z_C * (change_CC @ z_C + gram_CC @ (z_C * w_C)))

    from scipy.sparse.linalg import LinearOperator, minres  # deferred: equal classes need no step, and it loads slowly

    size = num_classes**2 + num_classes
    operator = LinearOperator((size, size), multiply, dtype=float)  # pyright: ignore[reportCallIssue]
    right = scale(-residual.pairs_CC, 2 * z_C * residual.means_C)
    # MINRES, as the system is symmetric but indefinite: -H above, a positive block below. The tolerance falls with the
    # residual (inexact Newton): far away a rough step will do.
    unknowns, _ = minres(operator, right, rtol=1e-2 * min(1.0, residual.size), maxiter=_MOST_PRODUCTS)
    change_CC, w_C = unscale(unknowns)
    # pairs (i, j) and (j, i) are two unknowns, which rounding lets differ
    return 0.5 * (change_CC + change_CC.T), w_C
