r"""Classes that share one vector: the risk of the merged problem, and whether its optimum is that of the full one.

Let P in {0, 1}^(C x M) say which of M vectors each of C classes has. The Gram matrix of all classes is then
:math:`A = P A_M P^\top`, and S(P A_M P^T) is again convex in A_M: the merged problem has the same kind of solution as
the full one, with fewer classes. Its optimum is optimal for all C classes if and only if the dual matrix

.. math:: Z = G + \mathrm{diag}(y), \qquad y_i = -\sum_j G_{ij} A_{ij}

of the full problem is positive semi-definite, G being the gradient of S at A. For classes m, m' of one vector and of
equal proportion, :math:`e_m - e_{m'}` is an eigenvector of Z, of eigenvalue :math:`y_m - G_{mm'}`: below zero, the risk
falls where they part. That number is the ``splitting_margin``.
"""

# C classes, M distinct vectors

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.theory.geometry.bracketed_root import root_between
from counterpoint.theory.geometry.correlation_dual import multipliers
from counterpoint.theory.geometry.correlation_solver import Risk, minimise_over_correlations
from counterpoint.theory.geometry.risk_rows import RiskAt

SOLVER_TOLERANCE = 1e-12  # the margin's error is about the square root of the risk's
ROOT_TOLERANCE = 1e-14


@dataclass(frozen=True)
class MergedRisk:
    r"""S(P A_M P^T) as a function of A_M.

    With a direction D of zero diagonal, the gradient is :math:`P^\top G P` and the curvature
    :math:`P^\top H[P D P^\top] P`, both without their diagonal: classes of one vector have cosine 1 whatever A_M is.

    Attributes:
        risk: S on all C classes.
        members_CM: P, one 1 in each row.
    """

    risk: Risk
    members_CM: Tensor

    @property
    def num_classes(self) -> int:
        """M."""
        return self.members_CM.shape[1]

    def at(self, gram_CC: Tensor) -> RiskAt:
        """S and its derivatives at the merged Gram matrix A_M, (M, M): to a solver, M is the number of classes."""
        full = self.risk.at(self.expand(gram_CC))
        return replace(
            full,
            gradient_CC=self._pull_back(full.gradient_CC),
            curvature=lambda direction_MM: self._pull_back(full.curvature(self.expand(direction_MM))),
            curvature_diagonal_CC=self._pull_back(full.curvature_diagonal_CC),
            own_slope_C=self.members_CM.T @ full.own_slope_C,
        )

    def expand(self, matrix_MM: Tensor) -> Tensor:
        """P X P^T."""
        return self.members_CM @ matrix_MM.to(self.members_CM) @ self.members_CM.T

    def _pull_back(self, matrix_CC: Tensor) -> Tensor:
        """P^T X P without its diagonal."""
        return (self.members_CM.T @ matrix_CC @ self.members_CM).fill_diagonal_(0.0)


def membership(num_classes: int, group: Sequence[int]) -> Tensor:
    """P for one group of classes that share a vector; the others keep theirs, in their order.

    Args:
        num_classes: C.
        group: places of the classes that merge, at least 2, each in [0, C).

    Returns:
        float64 tensor (C, C - len(group) + 1) of zeros and ones.

    Raises:
        UsageError: fewer than two places, one named twice, or one that is no class.

    >>> membership(3, [1, 2])
    tensor([[1., 0.],
            [0., 1.],
            [0., 1.]], dtype=torch.float64)
    """
    places = sorted(group)
    if len(places) < 2 or len(set(places)) < len(places) or places[0] < 0 or places[-1] >= num_classes:
        raise UsageError(f"group must name 2 or more different classes, 0 to {num_classes - 1}, got {list(group)}")
    first, members = places[0], set(places)
    label_C = torch.tensor([first if c in members else c for c in range(num_classes)])
    return (label_C[:, None] == label_C.unique()[None, :]).double()


def merged_optimum(risk: Risk, group: Sequence[int]) -> Tensor:
    """Gram matrix (C, C) of the best geometry in which the classes of ``group`` share one vector.

    With two vectors left, the risk is a convex function of one cosine: its least value is at -1 where the risk rises
    from there, as it does for a loss that grows with each cosine, and else at a root of its slope. With more, the
    solver of the full problem takes the merged risk.

    Raises:
        UsageError: as ``membership``.
    """
    merged = MergedRisk(risk, membership(risk.num_classes, group))
    if merged.num_classes == 1:
        return torch.ones(risk.num_classes, risk.num_classes, dtype=torch.float64)
    if merged.num_classes == 2:
        return merged.expand(_two_vectors(_best_cosine(merged)))
    return merged.expand(minimise_over_correlations(merged, tolerance=SOLVER_TOLERANCE).gram_CC)


def dual_matrix(gradient_CC: Tensor, gram_CC: Tensor) -> Tensor:
    r"""Z = G + diag(y) with y_i = -sum_j G_ij A_ij: positive semi-definite, with ZA = 0, where A is optimal.

    >>> dual_matrix(torch.tensor([[0.0, 0.5], [0.5, 0.0]]), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    return gradient_CC + torch.diag(multipliers(gradient_CC, gram_CC))


def splitting_margin(dual_CC: Tensor, group: Sequence[int]) -> float:
    """Eigenvalue of Z on the directions that part the classes of ``group``, over the size of its two terms.

    Returns:
        (y_m - G_mm') / (|y_m| + |G_mm'|), from -1 to 1: >= 0 where the classes stay merged. NaN where both vanish.
    """
    first, second = group[0], group[1]
    own, between = float(dual_CC[first, first]), float(dual_CC[first, second])
    size = abs(own) + abs(between)
    return (own - between) / size if size > 0 else float("nan")


def least_eigenvalue(dual_CC: Tensor) -> float:
    """Least eigenvalue of Z over its largest in size; >= 0 up to rounding where the geometry is optimal."""
    eigenvalues_C = torch.linalg.eigvalsh(dual_CC)
    return float(eigenvalues_C[0] / eigenvalues_C.abs().max())


def _best_cosine(merged: MergedRisk) -> float:
    """Cosine of two vectors at which the risk is least."""

    def slope(cosine: float) -> float:
        return float(merged.at(_two_vectors(cosine)).gradient_CC[0, 1])

    if slope(-1.0) >= 0:
        return -1.0
    if slope(1.0) <= 0:
        return 1.0
    return root_between(slope, -1.0, 1.0, tolerance=ROOT_TOLERANCE)


def _two_vectors(cosine: float) -> Tensor:
    """Gram matrix of two unit vectors."""
    return torch.tensor([[1.0, cosine], [cosine, 1.0]], dtype=torch.float64)
