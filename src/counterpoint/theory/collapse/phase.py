r"""Changes of the optimal geometry of one majority and equal minorities with their shares, k and the temperature.

By Lemma 8 of imbalanced2026 the optimal Gram matrix lies on a curve of one parameter, the cosine a of a minority with
the majority; two minorities have the cosine

.. math:: b = \frac{(C-1)\,a^2 - 1}{C - 2}

Along it the risk has the slope :math:`S'(a) = 2 (C-1) \big(G_{1m} + (C-1)\, a\, G_{mm'}\big)`, and a root of it between
-1 and 0 is the optimum of the full problem: the dual matrix Z has the eigenvalue :math:`-a\,(G_{1m} + (C-1)\, a\,
G_{mm'}) = 0` where minorities part, and on the rest one zero and a trace above zero. Where S'(-1) >= 0 the minorities
are merged.
"""

# K numbers of negatives, U temperatures, T majority shares, C classes

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from counterpoint.core.checks import require_numbers
from counterpoint.core.errors import UsageError
from counterpoint.core.thread_parts import one_thread
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.loss import Loss
from counterpoint.theory.collapse.minority_collapse import (
    RiskSetting,
    checked_classes,
    collapse_threshold,
    complement_text,
    one_majority,
    root_between,
)
from counterpoint.theory.geometry.class_risk import ClassRisk
from counterpoint.theory.geometry.correlation_dual import certify

GAP_TOLERANCE = 1e-8  # of the certificate, relative to the risk


@dataclass(frozen=True)
class PhaseDiagram:
    """Optimal geometry over the number of negatives, the temperature and the share of the majority.

    Attributes:
        shares_T: shares of the majority class, T of them.
        num_negatives: numbers of negatives, K of them; math.inf is allowed.
        temperatures: temperatures of the loss, U of them.
        num_classes: number of classes, C.
        supervised: whether negatives are of other classes than the anchor.
        minority_cosine_KUT: cosine of two minority classes; 1 where merged, -1/(C-1) where all classes are equal.
        majority_cosine_KUT: cosine of a minority with the majority; -1 where merged.
        is_merged_KUT: whether all minorities have one vector.
        threshold_KU: share of the majority from which all minorities have one vector, exact.
        threshold_minority_KU: 1 minus that share, to full precision even where the share is next to 1.
        gap_KUT: bound on the distance of the risk from the least one, relative to its scale: the certificate.
    """

    shares_T: Tensor
    num_negatives: tuple[float, ...]
    temperatures: tuple[float, ...]
    num_classes: int
    supervised: bool
    minority_cosine_KUT: Tensor
    majority_cosine_KUT: Tensor
    is_merged_KUT: Tensor
    threshold_KU: Tensor
    threshold_minority_KU: Tensor
    gap_KUT: Tensor

    def __str__(self) -> str:
        """The thresholds, one line per number of negatives."""
        kind = "other classes" if self.supervised else "any class"
        lines = [f"minorities of {self.num_classes} classes merge from this majority share on (negatives of {kind})"]
        lines.append("  negatives  " + "".join(f"{f'tau = {tau:g}':>14}" for tau in self.temperatures))
        for k, row_U in zip(self.num_negatives, self.threshold_minority_KU.tolist(), strict=True):
            number = "infinite" if math.isinf(k) else f"{k:.0f}"
            lines.append(f"  {number:>9}  " + "".join(f"{complement_text(share):>14}" for share in row_U))
        return "\n".join(lines)


@dataclass(frozen=True)
class Optimum:
    """The optimal geometry on the curve of Lemma 8.

    Attributes:
        majority_cosine: cosine a of a minority with the majority.
        minority_cosine: cosine b of two minorities.
        is_merged: whether a is -1, at the end of the curve, where all minorities have one vector.
        gap: bound on the distance of the risk from the least one, relative to its scale.
    """

    majority_cosine: float
    minority_cosine: float
    is_merged: bool
    gap: float


@one_thread()
def phase_diagram(
    shares: Tensor | Sequence[float],
    num_negatives: Sequence[float] = (1, 8, 64, math.inf),
    temperatures: Sequence[float] = (1.0,),
    *,
    num_classes: int = 3,
    supervised: bool = False,
    loss: Callable[[float], Loss] | None = None,
) -> PhaseDiagram:
    """The optimal geometry of one majority and equal minorities, at every combination of the arguments.

    Source: imbalanced2026, Lemma 8 (the curve) and section 6 (the setting).

    Args:
        shares: shares of the majority class, (T,), each in (0, 1); below 1/C it is the smallest class.
        num_negatives: numbers of negatives, each >= 1 or math.inf.
        temperatures: temperatures of the loss, each > 0.
        num_classes: number of classes, C >= 3.
        supervised: whether negatives are of other classes than the anchor.
        loss: function that makes a loss of a temperature; None is InfoNCE with the mean over its negatives,
            ``GeneralizedContrastive(temperature=...)``.

    Raises:
        UsageError: a share outside (0, 1), an empty list, fewer than 3 classes, k < 1, a loss whose optimum is not on
            the curve (it does not grow with each cosine).
        ValueError: temperature <= 0.

    >>> diagram = phase_diagram([1 / 3, 0.5, 0.95], [math.inf])
    >>> [round(cosine, 4) for cosine in diagram.minority_cosine_KUT.flatten().tolist()]
    [-0.5, -0.2152, 1.0]
    >>> print(diagram)
    minorities of 3 classes merge from this majority share on (negatives of any class)
      negatives         tau = 1
       infinite          0.9002
    """
    num_classes = checked_classes(num_classes)
    require_numbers(shares, "shares")
    shares_T = torch.as_tensor(shares, dtype=torch.float64).flatten()
    outside = [t for t in shares_T.tolist() if not 0 < t < 1]
    if outside or not len(shares_T):
        raise UsageError(
            f"shares must be between 0 and 1, at least one, got {outside}; torch.linspace(0.05, 0.95, 19) will do"
        )
    for name, values in (("num_negatives", num_negatives), ("temperatures", temperatures)):
        if not len(values):
            raise UsageError(f"{name} must name at least one value, got none; math.inf and 1.0 are the paper's limit")
    losses = [GeneralizedContrastive(temperature=tau) if loss is None else loss(tau) for tau in temperatures]
    cells = [
        minority_optimum(RiskSetting(member, k, supervised).risk(one_majority(log_odds, num_classes)))
        for k in num_negatives
        for member in losses
        for log_odds in (math.log(share) - math.log1p(-share) for share in shares_T.tolist())
    ]
    thresholds = [
        collapse_threshold(num_classes, loss=member, num_negatives=k, supervised=supervised)
        for k in num_negatives
        for member in losses
    ]
    shape = (len(num_negatives), len(temperatures), len(shares_T))
    table = partial(torch.tensor, dtype=torch.float64)
    return PhaseDiagram(
        shares_T,
        tuple(float(k) for k in num_negatives),
        tuple(float(tau) for tau in temperatures),
        num_classes,
        supervised,
        table([cell.minority_cosine for cell in cells]).reshape(shape),
        table([cell.majority_cosine for cell in cells]).reshape(shape),
        torch.tensor([cell.is_merged for cell in cells]).reshape(shape),
        table([threshold.share for threshold in thresholds]).reshape(shape[:2]),
        table([threshold.minority_share for threshold in thresholds]).reshape(shape[:2]),
        table([cell.gap for cell in cells]).reshape(shape),
    )


def minority_optimum(risk: ClassRisk) -> Optimum:
    """The least risk on the curve of Lemma 8: class 0 is apart, all others are equal.

    Raises:
        UsageError: the certificate fails: the risk does not grow with each cosine, so that the curve misses its
            optimum.
    """
    num_classes = risk.num_classes

    def slope(cosine: float) -> float:
        """S'(a) / (2 (C-1)), scaled by its terms."""
        gradient_CC = risk.at(curve(cosine, num_classes)).gradient_CC
        cross, between = float(gradient_CC[0, 1]), float(gradient_CC[1, 2])
        # relative to its terms, which at low temperatures are both too small for an absolute tolerance
        size = abs(cross) + (num_classes - 1) * abs(between)
        return (cross + (num_classes - 1) * cosine * between) / size if size > 0 else 0.0

    # S is convex along the curve (convex and increasing in A, and b is convex in a): rising at -1, it is least there
    is_merged = slope(-1.0) >= 0
    # Without a change of sign the loss is none that grows with each cosine, and the certificate refuses the answer.
    cosine = -1.0 if is_merged or slope(0.0) <= 0 else root_between(slope, -1.0, 0.0)
    gram_CC = curve(cosine, num_classes)
    at = risk.at(gram_CC)
    gap = certify(at, gram_CC).relative_gap(at.value)
    if gap > GAP_TOLERANCE:
        raise UsageError(
            f"the optimum of {risk.name} is not on the curve of Lemma 8 (gap {gap:.1e}); use optimal_geometry"
        )
    return Optimum(cosine, float(gram_CC[1, 2]), is_merged, gap)


def curve(cosine: float, num_classes: int) -> Tensor:
    """Gram matrix of Lemma 8 (Eq. 43): a minority has the given cosine with class 0, and b with another minority.

    >>> curve(-0.5, 3)
    tensor([[ 1.0000, -0.5000, -0.5000],
            [-0.5000,  1.0000, -0.5000],
            [-0.5000, -0.5000,  1.0000]], dtype=torch.float64)
    """
    between = (cosine**2 * (num_classes - 1) - 1) / (num_classes - 2)  # Eq. 49
    # Eq. 43
    gram_CC = torch.full((num_classes, num_classes), between, dtype=torch.float64)
    gram_CC[0, :], gram_CC[:, 0] = cosine, cosine
    return gram_CC.fill_diagonal_(1.0)
