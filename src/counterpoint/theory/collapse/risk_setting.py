"""What questions about collapse share: the loss and its negatives, the number of classes, and how a root is found."""

# C classes

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.class_risk import PAPER, ClassRisk, class_risk
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

LEAST_TOLERANCE = 1e-15  # Brent's method asks for one above zero; rounding adds 4 eps of the root


@dataclass(frozen=True)
class RiskSetting:
    """What stays the same while proportions and weights of anchors vary; made by ``risk_setting``.

    Attributes:
        loss: one of ``counterpoint.losses``; None is the paper's InfoNCE.
        num_negatives: k, or infinity.
        supervised: negatives are of other classes than the anchor.
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
    """What the loss says for itself, where the caller says nothing.

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
    own = math.inf if record.num_negatives is None else record.num_negatives
    return RiskSetting(loss, own if num_negatives is None else num_negatives, supervised or record.supervised)


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
        function: continuous, with different signs at low and high, or zero at one of them.
        low: one end.
        high: the other end.
        tolerance: of the root, absolute, > 0.

    Raises:
        ValueError: the signs at low and high are the same.

    >>> round(root_between(lambda x: x * x - 2, 0.0, 2.0), 12)
    1.414213562373
    """
    from scipy.optimize import root_scalar  # deferred: loads as slowly as all of theory

    found = root_scalar(function, bracket=(low, high), method="brentq", xtol=max(tolerance, LEAST_TOLERANCE))
    return float(found.root)


def complement_text(rest: float) -> str:
    """The share 1 - rest in four digits, or as its distance from 1 where they would all be nines.

    >>> complement_text(0.07081), complement_text(3e-20)
    ('0.9292', '1 - 3.0e-20')
    """
    return f"{1 - rest:.4f}" if rest > 1e-4 or rest == 0 else f"1 - {rest:.1e}"
