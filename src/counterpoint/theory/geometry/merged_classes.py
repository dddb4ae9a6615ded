r"""Classes that share one vector: the risk of the merged problem, and the exact end of a descent where they coincide.

Let P in {0, 1}^(C x M) say which of M vectors each of C classes has. The Gram matrix of all classes is then
:math:`A = P A_M P^\top`, and S(P A_M P^T) is again convex in A_M: the merged problem has the same kind of solution as
the full one, with fewer classes. Classes whose vectors nearly coincide at the end of a descent are merged, and the
smaller problem is solved exactly; the certificate of the full one says whether they may be.
"""

# C classes, M distinct vectors

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterpoint.theory.geometry.class_risk import ClassRisk
from counterpoint.theory.geometry.correlation_dual import certify
from counterpoint.theory.geometry.correlation_solver import Risk, Solution, minimise_over_correlations
from counterpoint.theory.geometry.risk_rows import RiskAt

NEARLY_ONE = 1 - 1e-3  # cosine of classes that are tried as one
STRETCH = 1e-9  # of the certificate, up to which they are one


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


def merge_what_coincides(risk: ClassRisk, solution: Solution, tolerance: float) -> Solution:
    """The exact solution in which nearly equal class means are equal, if the certificate prefers it."""
    groups_C = coinciding(solution.gram_CC, NEARLY_ONE)
    num_groups = int(groups_C.max()) + 1
    if num_groups in (1, risk.num_classes):
        return solution
    members_CM = torch.nn.functional.one_hot(groups_C, num_groups).double()
    merged = MergedRisk(risk, members_CM)
    small = minimise_over_correlations(merged, tolerance=min(tolerance, 1e-12))
    gram_CC = merged.expand(small.gram_CC)
    at = risk.at(gram_CC)
    certificate = certify(at, gram_CC)
    bound = max(certificate.lower_bound, solution.lower_bound)
    if certificate.stretch > STRETCH:
        return solution  # they are near, and yet apart
    return replace(
        solution,
        gram_CC=gram_CC,
        factor_CR=members_CM @ small.factor_CR,
        value=at.value,
        lower_bound=min(bound, at.value),
        scale=certificate.scale,
        iterations=solution.iterations + small.iterations,
        is_certified=True,
    )


def coinciding(gram_CC: Tensor, cosine: float) -> Tensor:
    """Number of each class's group, (C,), where classes of at least this cosine are of one group.

    >>> coinciding(torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]), 0.999)
    tensor([0, 1, 1])
    """
    first_C = (gram_CC >= cosine).to(torch.int8).argmax(dim=1)  # the first class that is near
    for _ in range(len(first_C)):
        further_C = first_C[first_C]
        if torch.equal(further_C, first_C):
            break
        first_C = further_C
    return torch.unique(first_C, return_inverse=True)[1]
