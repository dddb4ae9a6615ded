r"""How to sample classes so that the optimal geometry comes back to the simplex.

With equal proportions the optimum is the simplex, all cosines :math:`-1/(C-1)` (Corollary 5 of imbalanced2026). The
plan is to sample batches with the proportions :math:`q_i \propto \lambda_i^{\gamma}`, which changes anchors and
negatives; at gamma = 0 it is exactly the simplex. It has the largest gamma, that is the least intervention, whose
optimum is within a tolerance of it.

Without strict convexity (a hinge, a linear loss) the simplex may be one optimum of several; training may end at
another.
"""

# C classes

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.thread_parts import one_thread
from counterpoint.losses.loss import Loss
from counterpoint.theory.collapse.risk_setting import RiskSetting, risk_setting, root_between
from counterpoint.theory.geometry.class_risk import MANY_CLASSES, check_proportions
from counterpoint.theory.geometry.optimal_geometry import Geometry

EXPONENT_TOLERANCE = 1e-4


@dataclass(frozen=True)
class SamplingPlan:
    """Proportions to sample with.

    Attributes:
        exponent: gamma of lambda^gamma: 1 leaves the data as they are, 0 makes all classes equal.
        proportions_C: q.
        repeat_factors_C: how often each sample of a class is drawn per epoch, on average, an epoch keeping its length:
            q / lambda. Divide by the least of them to draw every sample at least once.
        geometry: the optimum there.
        deviation: largest distance of a cosine from the simplex's.
    """

    exponent: float
    proportions_C: Tensor
    repeat_factors_C: Tensor
    geometry: Geometry
    deviation: float


@dataclass(frozen=True)
class RebalancingPlan:
    """What to change for the optimum to come back to the simplex.

    Attributes:
        proportions_C: of the data.
        allowed: deviation asked for.
        before: the optimum of the data as they are.
        deviation_before: its largest distance of a cosine from the simplex's.
        is_unique: no other geometry of the data is optimal, for certain: the risk is strictly convex.
        sampling: plan that changes what is sampled.
    """

    proportions_C: Tensor
    allowed: float
    before: Geometry
    deviation_before: float
    is_unique: bool
    sampling: SamplingPlan

    def __str__(self) -> str:
        """Say what to do and what it brings."""
        away = f"the optimum is {self.deviation_before:.3g} from the simplex ({self.allowed:g} allowed)"
        if not self.is_unique:
            away += ", though it may be one of several"
        if self.deviation_before <= self.allowed:
            return f"nothing to do: {away}"
        sampling = self.sampling
        return (
            f"{away}\n  sample in proportion to lambda^{sampling.exponent:.3f}, by class each sample "
            f"{_numbers(sampling.repeat_factors_C)} times per epoch: {sampling.deviation:.3g} from it"
        )


def rebalance(
    proportions: Tensor | Sequence[float],
    *,
    loss: Loss | None = None,
    num_negatives: float | None = None,
    supervised: bool = False,
    deviation: float = 0.05,
) -> RebalancingPlan:
    """The sampling that moves the optimal geometry back to the simplex.

    The deviation is taken to grow with gamma, as it does where the classes differ only in size; the plan found keeps to
    the deviation asked for in any case.

    Source: imbalanced2026, Corollary 5 and section 8, for the simplex; the plan is ours.

    Args:
        proportions: share of each class, (C,), positive, of sum 1.
        loss: one of ``counterpoint.losses``, taken as it trains; None is the paper's InfoNCE.
        num_negatives: k >= 1, or math.inf; None is the loss's own number, or infinity.
        supervised: negatives are of other classes than the anchor.
        deviation: largest distance allowed of a cosine of the optimum from :math:`-1/(C-1)`, in (0, 2).

    Raises:
        UsageError: proportions that are none, a deviation out of range, a loss without convex class-level risk or whose
            optimum is not the simplex for equal classes.

    >>> plan = rebalance([0.4, 0.3, 0.3])
    >>> 0.049 < plan.sampling.deviation <= 0.05
    True
    """
    proportions_C = check_proportions(proportions)
    if not 0 < deviation < 2:
        raise UsageError(f"deviation must be between 0 and 2, got {deviation}; 0.05 is common")
    setting = risk_setting(loss, num_negatives, supervised)
    with one_thread(is_wanted=len(proportions_C) < MANY_CLASSES):
        before = setting.optimum(proportions_C)
        deviation_before = simplex_deviation(before.gram)
        if deviation_before <= deviation:
            sampling = SamplingPlan(1.0, proportions_C, torch.ones_like(proportions_C), before, deviation_before)
        else:
            sampling = _sampling_plan(proportions_C, setting, deviation)
    is_unique = setting.risk(proportions_C).is_strictly_convex
    return RebalancingPlan(proportions_C, deviation, before, deviation_before, is_unique, sampling)


def simplex_deviation(gram_CC: Tensor) -> float:
    """Largest distance of a cosine between classes from -1/(C-1).

    >>> round(simplex_deviation(torch.eye(3)), 6)
    0.5
    """
    num_classes = len(gram_CC)
    between_CC = (gram_CC + 1 / (num_classes - 1)).abs()
    return float(between_CC.fill_diagonal_(0.0).max())


def _sampling_plan(proportions_C: Tensor, setting: RiskSetting, allowed: float) -> SamplingPlan:
    """The largest exponent whose optimum is within the deviation allowed."""

    def plan(exponent: float) -> SamplingPlan:
        q_C = proportions_C**exponent / (proportions_C**exponent).sum()
        geometry = setting.optimum(q_C)
        return SamplingPlan(exponent, q_C, q_C / proportions_C, geometry, simplex_deviation(geometry.gram))

    # equal classes: the simplex for every loss that grows with each cosine (Corollary 5)
    equal = plan(0.0)
    if equal.deviation > allowed:
        raise UsageError(
            f"the optimum of this loss is {equal.deviation:.3g} from the simplex even with equal classes: no sampling "
            "brings it there; take a loss that grows with each cosine, such as InfoNCE"
        )
    # the deviation is above what is allowed at 1 (the caller has tried) and not at 0
    exponent = root_between(lambda gamma: plan(gamma).deviation - allowed, 0.0, 1.0, tolerance=EXPONENT_TOLERANCE)
    found = plan(exponent)
    while found.deviation > allowed:  # Brent's root may be on the far side
        found = plan(max(0.0, found.exponent - EXPONENT_TOLERANCE))
    return found


def _numbers(values_C: Tensor) -> str:
    """A short list."""
    shown = ", ".join(f"{value:.3g}" for value in values_C[:6].tolist())
    return f"({shown}{', ...' if len(values_C) > 6 else ''})"
