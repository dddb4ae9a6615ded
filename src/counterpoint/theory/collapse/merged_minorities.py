r"""The best geometry in which minority classes share one vector, and whether they stay together.

It is optimal for all C classes if and only if the dual matrix

.. math:: Z = G + \mathrm{diag}(y), \qquad y_i = -\sum_j G_{ij} A_{ij}

of the full problem is positive semi-definite, G being the gradient of S at A. For classes m, m' of one vector and of
equal proportion, :math:`e_m - e_{m'}` is an eigenvector of Z, of eigenvalue :math:`y_m - G_{mm'}`: below zero, the risk
falls where they part. That number is the ``splitting_margin``.

One majority and C - 1 equal minorities need three classes only, whatever C. By symmetry one minority m stands for all
as anchor, and the C - 2 others are one class to it while they are merged. The risk of the merged geometry is therefore
that of the majority, m and the rest R,

.. math:: \lambda = \big(\lambda_1, \lambda_m, (C-2) \lambda_m\big), \qquad w = (\lambda_1, 1 - \lambda_1, 0)

for any cosine x between majority and minorities, with negatives of any class or of other classes. Its gradient G' gives
that of all classes, :math:`G_{1m} = (G'_{1m} + G'_{1R}) / (C-1)` and :math:`G_{mm'} = 2 G'_{mR} / ((C-1)(C-2))`, and
with it the dual matrix Z, whose eigenvalues are :math:`y_m - G_{mm'}`, C - 2 times, and those of

.. math:: \begin{pmatrix} y_1 & \sqrt{C-1}\, G_{1m} \\ \sqrt{C-1}\, G_{1m} & y_m + (C-2) G_{mm'} \end{pmatrix}
"""

# C classes, M distinct vectors

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.theory.collapse.risk_setting import RiskSetting, root_between
from counterpoint.theory.geometry.correlation_dual import multipliers
from counterpoint.theory.geometry.correlation_solver import Risk, minimise_over_correlations
from counterpoint.theory.geometry.geometry_cases import MergedRisk

SOLVER_TOLERANCE = 1e-12  # the margin's error is about the square root of the risk's
ROOT_TOLERANCE = 1e-14


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
    # a group is known by its first member
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
    # nothing to choose: all cosines are 1
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


@dataclass(frozen=True)
class MergedMinorities:
    """The best geometry with merged minorities, and the slopes of the risk there, times C - 1.

    Attributes:
        num_classes: C.
        cosine: x, of the minorities with the majority.
        cross: (C - 1) G_1m.
        between: (C - 1) G_mm'.
    """

    num_classes: int
    cosine: float
    cross: float
    between: float

    @property
    def own(self) -> float:
        """(C - 1) y_m, the multiplier of a minority."""
        return -(self.cosine * self.cross + (self.num_classes - 2) * self.between)

    @property
    def margin(self) -> float:
        """As ``splitting_margin``: >= 0 where the minorities stay merged, NaN where the loss is indifferent."""
        size = abs(self.own) + abs(self.between)
        return (self.own - self.between) / size if size > 0 else math.nan

    @property
    def least_eigenvalue(self) -> float:
        """Least eigenvalue of Z over its largest in size."""
        minorities = self.num_classes - 1
        # Z on span(e_1, the sum of the minorities), in its orthonormal basis
        corner, across = -minorities * self.cosine * self.cross, math.sqrt(minorities) * self.cross
        together = self.own + (self.num_classes - 2) * self.between
        block = torch.tensor([[corner, across], [across, together]], dtype=torch.float64)
        eigenvalues = [self.own - self.between, *torch.linalg.eigvalsh(block).tolist()]
        return min(eigenvalues) / max(map(abs, eigenvalues))

    @property
    def gram(self) -> Tensor:
        """Cosines of all classes, the majority first."""
        gram_CC = torch.ones(self.num_classes, self.num_classes, dtype=torch.float64)
        gram_CC[0, 1:] = gram_CC[1:, 0] = self.cosine
        return gram_CC


def merged_minorities(log_odds: float, num_classes: int, setting: RiskSetting) -> MergedMinorities:
    """The best geometry with merged minorities, at the log-odds of the majority."""
    major, minor = one_majority(log_odds, num_classes)[:2].tolist()
    # Three classes: the majority, one minority as the anchor of all, and the other minorities, which are no anchors.
    rest = minor * (num_classes - 2)
    proportions_C = torch.tensor([major, minor, rest], dtype=torch.float64)
    anchor_weights_C = torch.tensor([major, minor + rest, 0.0], dtype=torch.float64)
    risk = setting.risk(proportions_C, anchor_weights_C)
    gram_CC = merged_optimum(risk, (1, 2))
    gradient_CC = risk.at(gram_CC).gradient_CC
    # (C - 1) G_1m and (C - 1) G_mm', back to C classes
    cross, between = gradient_CC[0, 1] + gradient_CC[0, 2], 2 * gradient_CC[1, 2] / (num_classes - 2)
    return MergedMinorities(num_classes, float(gram_CC[0, 1]), float(cross), float(between))


def one_majority(log_odds: float, num_classes: int) -> Tensor:
    """Proportions of one majority class, first, and equal minorities, from its log-odds: no digit of either is lost.

    >>> one_majority(0.0, 3)
    tensor([0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """
    minor = 1 / (1 + math.exp(log_odds)) / (num_classes - 1)
    major = 1 / (1 + math.exp(-log_odds))
    return torch.tensor([major] + [minor] * (num_classes - 1), dtype=torch.float64)


def share_log_odds(share: float) -> float:
    """Log-odds of a share in (0, 1).

    >>> share_log_odds(0.5)
    0.0
    """
    return math.log(share) - math.log1p(-share)


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
