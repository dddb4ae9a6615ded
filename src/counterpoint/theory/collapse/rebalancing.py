r"""Plans to sample or weigh classes so that the optimal geometry comes back to the simplex.

With equal proportions the optimum is the simplex, all cosines :math:`-1/(C-1)` (Corollary 5 of imbalanced2026). Two
plans:

* Sampling: batches with the proportions :math:`q_i \propto \lambda_i^{\gamma}`, which changes anchors and negatives; at
  gamma = 0 it is exactly the simplex. The plan has the largest gamma, that is the least intervention, whose optimum is
  within a tolerance of it.
* Weighing the anchors only, the data staying as they are. The simplex is optimal if and only if the gradient of the
  risk there is equal for all pairs of classes (then Z is a positive multiple of the matrix of ones):

.. math:: \tfrac12 (w_i h_{ij} + w_j h_{ji}) = c \quad \text{for all } i \ne j

  h_ij being the derivative for a_ij of what anchors of class i risk. These are C(C-1)/2 equations for C weights, which
  must be >= 0: with three classes they have a solution as long as no class is too large, in general no solution exists.
  The plan then takes the mixture of least-squares weights and proportions that comes nearest, and says how near that
  is.

Either kind of weights can be zero for a class, as (0, .5, .5) for the shares (.6, .2, .2). Such a class is met as a
negative only: its samples are pulled to no positive, and nothing holds them together. That is an answer to the
class-level problem, which takes collapsed classes for granted, and no advice for training; the plan says so.

Where all slopes h are zero, as for a hinge whose margin the simplex keeps, the simplex is optimal with any weights.
Without strict convexity (a hinge, a linear loss) it may be one optimum of several; training may end at another.
"""

# C classes, P pairs of classes

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.thread_parts import one_thread
from counterpoint.losses.loss import Loss
from counterpoint.theory.collapse.minority_collapse import RiskSetting, risk_setting, root_between
from counterpoint.theory.geometry.class_risk import MANY_CLASSES, ClassRisk, check_proportions, few
from counterpoint.theory.geometry.geometry_cases import CERTIFIED, solve_convex
from counterpoint.theory.geometry.optimal_geometry import Geometry

EXPONENT_TOLERANCE = 1e-4
NUM_MIXTURES = 8  # of proportions and least-squares weights that are tried
EXACT_TOLERANCE = 1e-8  # relative residual of the equations of the weights
TOLERANCE = 1e-8  # relative gap of an optimum
ROUNDING = 1e-12  # of the largest sample weight; below it a class has no anchors


@dataclass(frozen=True)
class SamplingPlan:
    """Proportions to sample with.

    Attributes:
        exponent: exponent gamma of lambda^gamma: 1 leaves the data as they are, 0 makes all classes equal.
        proportions_C: proportions q of the classes in the batches.
        repeat_factors_C: mean number of times that each sample of a class is drawn in an epoch of unchanged length:
            q / lambda. Divide by the least of them to draw every sample at least once.
        geometry: optimal geometry at these proportions.
        deviation: largest distance of a cosine from the simplex's.
    """

    exponent: float
    proportions_C: Tensor
    repeat_factors_C: Tensor
    geometry: Geometry
    deviation: float


@dataclass(frozen=True)
class WeightingPlan:
    """Weights of anchors, by class; sampling stays as it is.

    Attributes:
        proportions_C: proportions of the classes in the data.
        anchor_weights_C: weights of anchors by class, >= 0, of sum 1; an unweighted loss has the proportions.
        sample_weights_C: factor of each sample's own term in the loss, anchor_weights / proportions.
        is_exact: whether the weights make the simplex optimal.
        gram_CC: optimal Gram matrix under the weights.
        deviation: largest distance of a cosine from the simplex's.
        status: certainty of ``gram_CC``, in words, as in ``Geometry``.
        is_unique: whether no other Gram matrix is optimal under the weights, for certain: the risk is strictly convex
            and no two classes are without anchors, which would leave their cosine free.
    """

    proportions_C: Tensor
    anchor_weights_C: Tensor
    sample_weights_C: Tensor
    is_exact: bool
    gram_CC: Tensor
    deviation: float
    status: str
    is_unique: bool

    @property
    def is_certified(self) -> bool:
        """Tell whether ``gram_CC`` is optimal for certain."""
        return self.status.startswith(CERTIFIED)

    @property
    def without_anchors(self) -> tuple[int, ...]:
        """Places of the classes that would get no anchors at all: weights to calculate with, not to train with."""
        return tuple((self.anchor_weights_C == 0).nonzero().flatten().tolist())

    def __str__(self) -> str:
        """Say what the weights reach, and what speaks against them."""
        reached = f"{self.deviation:.3g} from it, the nearest that was found"
        if self.is_exact:
            several = "" if self.is_unique else ", though it may be one optimum of several"
            reached = f"the simplex, exactly{several}"
        remarks = [] if self.is_certified else [self.status]
        if self.without_anchors:
            places, majority = self.without_anchors, int(self.proportions_C.argmax())
            named = [f"{place} (the majority)" if place == majority else str(place) for place in places[:6]]
            names = f"class{'es' if len(places) > 1 else ''} {', '.join(named)}{', ...' if len(places) > 6 else ''}"
            remarks.append(f"{names} would get no anchors at all, which is not useful in training; sample instead")
        return "; ".join([f"weigh anchors by class with ({few(self.anchor_weights_C, 6, 3)}): {reached}", *remarks])


@dataclass(frozen=True)
class RebalancingPlan:
    """Changes that bring the optimum back to the simplex.

    Attributes:
        proportions_C: proportions of the classes in the data.
        allowed: largest deviation that was asked for.
        before: optimal geometry of the data as they are.
        deviation_before: largest distance of a cosine of that geometry from the simplex's.
        is_unique: whether no other geometry of the data is optimal, for certain: the risk is strictly convex.
        sampling: plan that changes what is sampled.
        weighting: plan that changes the weights of anchors only.
    """

    proportions_C: Tensor
    allowed: float
    before: Geometry
    deviation_before: float
    is_unique: bool
    sampling: SamplingPlan
    weighting: WeightingPlan

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
            f"({few(sampling.repeat_factors_C, 6, 3)}) times per epoch: {sampling.deviation:.3g} from it\n"
            f"  or {self.weighting}"
        )


def rebalance(
    proportions: Tensor | Sequence[float],
    *,
    loss: Loss | None = None,
    num_negatives: float | None = None,
    supervised: bool = False,
    deviation: float = 0.05,
) -> RebalancingPlan:
    """Plans that move the optimal geometry back to the simplex.

    The deviation is taken to grow with gamma, as it does where the classes differ only in size; the plan found keeps to
    the deviation asked for in any case.

    The weights of the second plan may leave a class without anchors (``weighting.without_anchors``, in the text too):
    for (.6, .2, .2) they are (0, .5, .5), so that the majority would be met as a negative only. Sample then instead.

    Source: imbalanced2026, Corollary 5 and section 8, for the simplex; the plans are ours.

    Args:
        proportions: share of each class, (C,), positive, of sum 1.
        loss: one of ``counterpoint.losses``, taken as it trains; None is the paper's InfoNCE.
        num_negatives: number of negatives, k >= 1, or math.inf; None is the loss's own number, or infinity.
        supervised: whether negatives are of other classes than the anchor.
        deviation: largest distance allowed of a cosine of the optimum from :math:`-1/(C-1)`, in (0, 2).

    Raises:
        UsageError: proportions that are none, a deviation out of range, a loss without convex class-level risk or whose
            optimum is not the simplex for equal classes.

    >>> plan = rebalance([0.4, 0.3, 0.3])
    >>> plan.weighting.is_exact, plan.sampling.deviation <= 0.05
    (True, True)
    >>> rebalance([0.6, 0.2, 0.2]).weighting.without_anchors
    (0,)
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
        weighting = _weighting_plan(proportions_C, setting)
    is_unique = setting.risk(proportions_C).is_strictly_convex
    return RebalancingPlan(proportions_C, deviation, before, deviation_before, is_unique, sampling, weighting)


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
    best = plan(exponent)
    while best.deviation > allowed:  # Brent's root may be on the far side
        best = plan(max(0.0, best.exponent - EXPONENT_TOLERANCE))
    return best


def _weighting_plan(proportions_C: Tensor, setting: RiskSetting) -> WeightingPlan:
    """The least-squares weights, or the mixture of them with the proportions that comes nearest to the simplex."""
    solved_C, residual = _simplex_weights(setting.risk(proportions_C))
    is_exact = residual <= EXACT_TOLERANCE

    def plan(mixture: float) -> WeightingPlan:
        weights_C = (1 - mixture) * proportions_C + mixture * solved_C
        # Zero for weights that only rounding keeps from it; sum 1.
        sample_weights_C = weights_C / proportions_C
        weights_C = torch.where(sample_weights_C > ROUNDING * sample_weights_C.max(), weights_C, 0.0)
        weights_C = weights_C / weights_C.sum()
        risk = setting.risk(proportions_C, weights_C)
        solution = solve_convex(risk, TOLERANCE)
        gram_CC = solution.factor_CR @ solution.factor_CR.T
        is_unique = risk.is_strictly_convex and int((weights_C == 0).sum()) < 2
        return WeightingPlan(
            proportions_C=proportions_C,
            anchor_weights_C=weights_C,
            sample_weights_C=weights_C / proportions_C,
            is_exact=is_exact,
            gram_CC=gram_CC,
            deviation=simplex_deviation(gram_CC),
            status=solution.status,
            is_unique=is_unique,
        )

    if is_exact:
        return plan(1.0)
    plans = [plan(step / NUM_MIXTURES) for step in range(NUM_MIXTURES + 1)]
    # a deviation without certificate may be that of no optimum
    return min(plans, key=lambda tried: (not tried.is_certified, tried.deviation))


def _simplex_weights(risk: ClassRisk) -> tuple[Tensor, float]:
    r"""Weights w >= 0 of sum 1 with the least squares of (w_i h_ij + w_j h_ji) / 2 - 1, and their largest residual.

    With B the P x C matrix of the equations, :math:`B^\top B` has :math:`\sum_j h_{ij}^2 / 4` on its diagonal and
    :math:`h_{ij} h_{ji} / 4` beside it, so that B itself is never made. Columns are scaled to unit length. Where all
    h are zero the simplex is optimal, and the weights stay as they are; so they do where none >= 0 come nearer.
    """
    num_classes = risk.num_classes
    if num_classes == 2:  # two vectors are opposite whatever the weights
        return risk.anchor_weights_C, 0.0
    simplex_CC = torch.full((num_classes, num_classes), -1 / (num_classes - 1), dtype=torch.float64).fill_diagonal_(1.0)
    # h / 2, by rows, without the weights of anchors, which are sought
    h_CC = risk.rows.at(simplex_CC).slope_CC.clone().fill_diagonal_(0.0) / 2
    length_C = h_CC.square().sum(1).sqrt()
    if not bool(length_C.any()):
        return risk.anchor_weights_C, 0.0
    # a class whose slopes are all zero is a column of zeros, of any length
    length_C = torch.where(length_C > 0, length_C, 1.0)
    scaled_CC = h_CC / length_C[:, None]
    # B^T B = L L^T with scaled columns: |L^T x - L^-1 B^T 1| has the minimiser of |B x - 1| in C rows instead of P
    factor_CC, info = torch.linalg.cholesky_ex(scaled_CC * scaled_CC.T + torch.eye(num_classes, dtype=torch.float64))
    if int(info):
        least, most = map(float, risk.anchor_weights_C.aminmax())
        raise UsageError(
            f"proportions from {least:.3g} to {most:.3g} differ by more than float64 can weigh against each other; "
            "leave out the smallest classes"
        )
    target_C = torch.linalg.solve_triangular(factor_CC, scaled_CC.sum(1)[:, None], upper=False)[:, 0]
    from scipy.optimize import nnls  # deferred: SciPy's optimisers take as long to load as the rest of the theory

    x_C, _ = nnls(factor_CC.T.numpy(), target_C.numpy())
    if not x_C.any():
        return risk.anchor_weights_C, 1.0
    weights_C = torch.from_numpy(x_C) / length_C
    pairs_CC = weights_C[:, None] * h_CC
    residual_CC = (pairs_CC + pairs_CC.T - 1).fill_diagonal_(0.0)
    # the equations were solved for c = 1; weights of sum 1 have another c
    return weights_C / weights_C.sum(), float(residual_CC.abs().max())
