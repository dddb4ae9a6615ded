r"""The share of the majority from which on the minority classes merge into one vector.

The geometry with merged minorities is optimal for all C classes if and only if the dual matrix

.. math:: Z = G + \mathrm{diag}(y), \qquad y_i = -\sum_j G_{ij} A_{ij}

is positive semi-definite, G being the gradient of S at A. For classes m, m' of one vector and of equal proportion,
:math:`e_m - e_{m'}` is an eigenvector of Z, of eigenvalue :math:`y_m - G_{mm'}`: below zero, the risk falls where they
part, and the threshold is the root of that margin. With a loss that grows with each cosine, the merged classes sit
opposite the majority and the condition is :math:`G_{1m} \ge (C - 1)\, G_{mm'}`.

One majority and C - 1 equal minorities need three classes only, whatever C. By symmetry one minority m represents all
as anchor, and the C - 2 others are one class to it while they are merged. The risk of the merged geometry is therefore
that of the majority, m and the rest R,

.. math:: \lambda = \big(\lambda_1, \lambda_m, (C-2) \lambda_m\big), \qquad w = (\lambda_1, 1 - \lambda_1, 0)

for any cosine x between majority and minorities, with negatives of any class or of other classes. Its gradient G' gives
that of all classes, :math:`G_{1m} = (G'_{1m} + G'_{1R}) / (C-1)` and :math:`G_{mm'} = 2 G'_{mR} / ((C-1)(C-2))`, and
with it Z, whose eigenvalues are :math:`y_m - G_{mm'}`, C - 2 times, and those of

.. math:: \begin{pmatrix} y_1 & \sqrt{C-1}\, G_{1m} \\ \sqrt{C-1}\, G_{1m} & y_m + (C-2) G_{mm'} \end{pmatrix}

Without supervision two classes of one vector are one class to the loss: the threshold then depends neither on the
number of minority classes nor on how they divide their share. Where negatives are of other classes, it does.
"""

# C classes

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.thread_parts import one_thread
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.class_risk import PAPER, ClassRisk, class_risk
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

MAX_LOG_ODDS = 300.0  # the minorities then share 5e-131
ROOT_TOLERANCE = 1e-13


@dataclass(frozen=True)
class CollapseThreshold:
    """The share of the majority at which the minority classes begin to merge.

    Attributes:
        share: share of the majority at the threshold.
        minority_share: share of all minority classes together there, to full precision even if ``share`` is next to 1.
        proportions_C: proportions of all classes at the threshold, the majority first.
        gram_CC: optimal Gram matrix at the threshold.
        collapses_above: whether the minority classes merge at larger shares; else they do at smaller ones.
        num_negatives: number of negatives, k, or infinity.
        supervised: whether negatives are of other classes than the anchor.
        least_eigenvalue: least eigenvalue of the dual matrix over its largest; 0 up to rounding certifies ``gram_CC``.
    """

    share: float
    minority_share: float
    proportions_C: Tensor
    gram_CC: Tensor
    collapses_above: bool
    num_negatives: float
    supervised: bool
    least_eigenvalue: float

    def __str__(self) -> str:
        """Say where merging begins."""
        side = ">=" if self.collapses_above else "<="
        kind = "negatives of other classes" if self.supervised else "negatives of any class"
        number = "infinitely many" if math.isinf(self.num_negatives) else f"{self.num_negatives:.0f}"
        return (
            f"the {len(self.proportions_C) - 1} minority classes merge where the majority's share is {side} "
            f"{complement_text(self.minority_share)} ({number} {kind})"
        )


@one_thread()
def collapse_threshold(
    num_classes: int, *, loss: Loss | None = None, num_negatives: float | None = None, supervised: bool = False
) -> CollapseThreshold:
    r"""The share of the majority from which the minority classes have one common vector, exactly.

    Root, by Brent's method, of the smallest eigenvalue of the optimality condition that belongs to parting minorities,
    :math:`y_m - G_{mm'}` at the best geometry in which they are merged. This is the true threshold, where the paper has
    sufficient conditions.

    Source: imbalanced2026, section 6, for the setting.

    Args:
        num_classes: number of classes, C >= 3: one majority class and C - 1 equal minorities.
        loss: one of ``counterpoint.losses``, taken as it trains; None is the paper's InfoNCE.
        num_negatives: number of negatives, k >= 1, or math.inf; None is the loss's own number, or infinity.
        supervised: whether negatives are of other classes than the anchor.

    Raises:
        UsageError: fewer than 3 classes, no crossing above equal shares (says which side holds), a loss without convex
            class-level risk.

    >>> round(collapse_threshold(3).share, 4)
    0.9002
    """
    num_classes, setting = checked_classes(num_classes), risk_setting(loss, num_negatives, supervised)
    # The search is in log-odds, as at low temperatures the threshold is next to 1, and begins at equal classes.
    low, high = -math.log(num_classes - 1), MAX_LOG_ODDS
    at_low, at_high = (merged_minorities(odds, num_classes, setting).margin for odds in (low, high))
    if math.isnan(at_low) or math.isnan(at_high):
        raise UsageError("the loss is indifferent to the minority classes here: neither merged nor apart is better")
    if (at_low >= 0) == (at_high >= 0):
        side = "merged" if at_low >= 0 else "apart"
        raise UsageError(
            f"no crossing above a share of {complement_text(1 - 1 / num_classes)}: the minority classes are {side} at "
            "any share"
        )
    # one root is taken: the signs at the ends say that there is one, not that there is no other
    log_odds = root_between(
        lambda odds: merged_minorities(odds, num_classes, setting).margin, low, high, tolerance=ROOT_TOLERANCE
    )
    merged = merged_minorities(log_odds, num_classes, setting)
    return CollapseThreshold(
        share=1 / (1 + math.exp(-log_odds)),
        minority_share=1 / (1 + math.exp(log_odds)),
        proportions_C=one_majority(log_odds, num_classes),
        gram_CC=merged.gram,
        collapses_above=at_high >= 0,
        num_negatives=setting.num_negatives,
        supervised=setting.supervised,
        least_eigenvalue=merged.least_eigenvalue,
    )


@dataclass(frozen=True)
class MergedMinorities:
    """The best geometry with merged minorities, and the slopes of the risk there, times C - 1.

    Attributes:
        num_classes: number of classes, C.
        cosine: cosine x of the minorities with the majority.
        cross: slope (C - 1) G_1m, for the cosines between majority and minorities.
        between: slope (C - 1) G_mm', for the cosines between two minorities.
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
        """Eigenvalue of Z where minorities part, over the size of its two terms, from -1 to 1.

        It is >= 0 where the minorities stay merged, and NaN where the loss is indifferent.
        """
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


def merged_minorities(log_odds: float, num_classes: int, setting: "RiskSetting") -> MergedMinorities:
    """The best geometry with merged minorities, at the log-odds of the majority.

    The risk is a convex function of one cosine: its least value is at -1 where the risk rises from there, as it does
    for a loss that grows with each cosine, and else at a root of its slope.
    """
    major, minor = one_majority(log_odds, num_classes)[:2].tolist()
    # Three classes: the majority, one minority as the anchor of all, and the other minorities, which are not anchors.
    remainder = minor * (num_classes - 2)
    proportions_C = torch.tensor([major, minor, remainder], dtype=torch.float64)
    anchor_weights_C = torch.tensor([major, minor + remainder, 0.0], dtype=torch.float64)
    risk = setting.risk(proportions_C, anchor_weights_C)

    def slopes(cosine: float) -> tuple[float, float]:
        """(C - 1) G_1m and (C - 1) G_mm', of all C classes; the first is the slope of the risk for the cosine."""
        gram_CC = torch.tensor([[1.0, cosine, cosine], [cosine, 1.0, 1.0], [cosine, 1.0, 1.0]], dtype=torch.float64)
        gradient_CC = risk.at(gram_CC).gradient_CC
        return float(gradient_CC[0, 1] + gradient_CC[0, 2]), float(2 * gradient_CC[1, 2] / (num_classes - 2))

    cosine = -1.0 if slopes(-1.0)[0] >= 0 else 1.0
    if cosine == 1.0 and slopes(1.0)[0] > 0:
        cosine = root_between(lambda value: slopes(value)[0], -1.0, 1.0)
    return MergedMinorities(num_classes, cosine, *slopes(cosine))


def one_majority(log_odds: float, num_classes: int) -> Tensor:
    """Proportions of one majority class, first, and equal minorities, from its log-odds: no digit of either is lost.

    >>> one_majority(0.0, 3)
    tensor([0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """
    minor = 1 / (1 + math.exp(log_odds)) / (num_classes - 1)
    major = 1 / (1 + math.exp(-log_odds))
    return torch.tensor([major] + [minor] * (num_classes - 1), dtype=torch.float64)


@dataclass(frozen=True)
class RiskSetting:
    """The parts of a risk that stay while proportions and weights of anchors vary; made by ``risk_setting``.

    Attributes:
        loss: one of ``counterpoint.losses``; None is the paper's InfoNCE.
        num_negatives: number of negatives, k, or infinity.
        supervised: whether negatives are of other classes than the anchor.
    """

    loss: Loss | None
    num_negatives: float
    supervised: bool

    def risk(self, proportions_C: Tensor, anchor_weights_C: Tensor | None = None) -> ClassRisk:
        """The class-level risk of proportions; anchors are weighed by them, or by weights of their own."""
        return class_risk(
            proportions_C,
            loss=self.loss,
            num_negatives=self.num_negatives,
            supervised=self.supervised,
            anchor_weights=anchor_weights_C,
        )

    def optimum(self, proportions_C: Tensor) -> Geometry:
        """The optimal geometry of proportions."""
        return optimal_geometry(
            proportions_C, loss=self.loss, num_negatives=self.num_negatives, supervised=self.supervised
        )


def risk_setting(loss: Loss | None, num_negatives: float | None, supervised: bool) -> RiskSetting:
    """Complete the caller's choices by what the loss says for itself.

    Raises:
        UsageError: a loss without convex class-level risk, k < 1 or not whole.

    >>> risk_setting(None, None, False).num_negatives
    inf
    """
    # any proportions will do: whether a risk is convex depends on the loss alone
    risk = class_risk(torch.full((3,), 1 / 3, dtype=torch.float64), loss=loss, num_negatives=num_negatives)
    if not risk.is_convex:
        raise UsageError(f"{risk.name} has no convex class-level risk, so that no answer is certain; take hardness 0")
    record = PAPER if loss is None else loss.class_level()
    # as class_risk takes it
    default = math.inf if record.num_negatives is None else record.num_negatives
    return RiskSetting(loss, default if num_negatives is None else num_negatives, supervised or record.supervised)


def checked_classes(num_classes: Any) -> int:
    """A number of classes of which at least two are minorities.

    Raises:
        UsageError: not a whole number, or fewer than 3.

    >>> checked_classes(10)
    10
    """
    try:
        number = operator.index(num_classes)  # NumPy's whole numbers included
    except TypeError:
        raise UsageError(f"num_classes must be a whole number >= 3, got {num_classes!r}; 10 is common") from None
    if number < 3:
        raise UsageError(f"num_classes must be >= 3, got {number}; two minority classes are needed to merge")
    return number


def root_between(function: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-14) -> float:
    """The root by Brent's method.

    Args:
        function: continuous function with different signs at low and high, or zero at one of them.
        low: one end of the range that holds the root.
        high: the other end of the range.
        tolerance: largest absolute error of the root, > 0.

    Raises:
        ValueError: the signs at low and high are the same.

    >>> round(root_between(lambda x: x * x - 2, 0.0, 2.0), 12)
    1.414213562373
    """
    from scipy.optimize import root_scalar  # deferred: loads as slowly as all of theory

    return float(root_scalar(function, bracket=(low, high), method="brentq", xtol=tolerance).root)


def complement_text(rest: float) -> str:
    """The share 1 - rest in four digits, or as its distance from 1 where they would all be nines.

    >>> complement_text(0.07081), complement_text(3e-20)
    ('0.9292', '1 - 3.0e-20')
    """
    return f"{1 - rest:.4f}" if rest > 1e-4 or rest == 0 else f"1 - {rest:.1e}"
