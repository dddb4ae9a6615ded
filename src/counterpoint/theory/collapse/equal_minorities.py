r"""One majority and C - 1 equal minorities, merged: their optimality condition from three classes, whatever C.

By symmetry one minority m stands for all as anchor, and the C - 2 others are one class to it while they are merged.
The risk of the merged geometry is therefore that of three classes, the majority, m and the rest R,

.. math:: \lambda = \big(\lambda_1, \lambda_m, (C-2) \lambda_m\big), \qquad w = (\lambda_1, 1 - \lambda_1, 0)

for any cosine x between majority and minorities, with negatives of any class or of other classes. Its gradient G' gives
that of all classes, :math:`G_{1m} = (G'_{1m} + G'_{1R}) / (C-1)` and :math:`G_{mm'} = 2 G'_{mR} / ((C-1)(C-2))`, and
with it the dual matrix Z (``merged_classes``), whose eigenvalues are :math:`y_m - G_{mm'}`, C - 2 times, and those of

.. math:: \begin{pmatrix} y_1 & \sqrt{C-1}\, G_{1m} \\ \sqrt{C-1}\, G_{1m} & y_m + (C-2) G_{mm'} \end{pmatrix}
"""

# C classes

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.theory.collapse.risk_setting import RiskSetting
from counterpoint.theory.geometry.merged_classes import merged_optimum


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
    rest = minor * (num_classes - 2)
    proportions_C = torch.tensor([major, minor, rest], dtype=torch.float64)
    anchor_weights_C = torch.tensor([major, minor + rest, 0.0], dtype=torch.float64)
    risk = setting.risk(proportions_C, anchor_weights_C)
    gram_CC = merged_optimum(risk, (1, 2))
    gradient_CC = risk.at(gram_CC).gradient_CC
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
