r"""How to sample or weigh classes so that the optimal geometry comes back to the simplex.

With equal proportions the optimum is the simplex, all cosines :math:`-1/(C-1)` (Corollary 5 of imbalanced2026). Two
plans:

* Sampling: batches with the proportions :math:`q_i \propto \lambda_i^{\gamma}`, which changes anchors and negatives; at
  gamma = 0 it is exactly the simplex. The plan has the largest gamma, that is the least intervention, whose optimum is
  within a tolerance of it.
* Weighing the anchors only, the data staying as they are. The simplex is optimal if and only if the gradient of the
  risk there is equal for all pairs of classes (then Z is a positive multiple of the matrix of ones):

.. math:: \tfrac12 (w_i h_{ij} + w_j h_{ji}) = c \quad \text{for all } i \ne j

  h_ij being the derivative for a_ij of what anchors of class i risk. These are C(C-1)/2 equations for C weights, which
  must be >= 0: with three classes they have a solution as long as no class is too large, in general they have none.
  The plan then takes the mixture of least-squares weights and proportions that comes nearest, and says how near that
  is.
"""

# C classes, P pairs of classes

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import nnls
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.bracketed_root import root_between
from counterpoint.theory.geometry.class_risk import ClassRisk, class_risk
from counterpoint.theory.geometry.correlation_solver import minimise_over_correlations
from counterpoint.theory.geometry.optimal_geometry import Geometry, check_proportions, optimal_geometry

EXPONENT_TOLERANCE = 1e-4
NUM_MIXTURES = 8  # of proportions and least-squares weights that are tried
EXACT_TOLERANCE = 1e-8  # relative residual of the equations of the weights


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
class WeightingPlan:
    """Weights of anchors, by class; sampling stays as it is.

    Attributes:
        anchor_weights_C: >= 0, of sum 1; the proportions are what an unweighted loss has.
        sample_weights_C: factor of each sample's own term in the loss, anchor_weights / proportions.
        is_exact: the weights make the simplex optimal.
        gram_CC: optimal Gram matrix under the weights.
        deviation: largest distance of a cosine from the simplex's.
    """

    anchor_weights_C: Tensor
    sample_weights_C: Tensor
    is_exact: bool
    gram_CC: Tensor
    deviation: float


@dataclass(frozen=True)
class RebalancingPlan:
    """What to change for the optimum to come back to the simplex.

    Attributes:
        proportions_C: of the data.
        allowed: deviation asked for.
        before: the optimum of the data as they are.
        deviation_before: its largest distance of a cosine from the simplex's.
        sampling: plan that changes what is sampled.
        weighting: plan that changes the weights of anchors only.
    """

    proportions_C: Tensor
    allowed: float
    before: Geometry
    deviation_before: float
    sampling: SamplingPlan
    weighting: WeightingPlan

    def __str__(self) -> str:
        """Say what to do and what it brings."""
        away = f"the optimum is {self.deviation_before:.3g} from the simplex ({self.allowed:g} allowed)"
        if self.deviation_before <= self.allowed:
            return f"nothing to do: {away}"
        sampling, weighting = self.sampling, self.weighting
        reached = f"{weighting.deviation:.3g} from it, the nearest that was found"
        if weighting.is_exact:
            reached = "the simplex, exactly"
        return (
            f"{away}\n  sample in proportion to lambda^{sampling.exponent:.3f}, by class each sample "
            f"{_numbers(sampling.repeat_factors_C)} times per epoch: {sampling.deviation:.3g} from it\n"
            f"  or weigh anchors by class with {_numbers(weighting.anchor_weights_C)}: {reached}"
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

    Source: imbalanced2026, Corollary 5 and section 8, for the simplex; the plans are ours.

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
    >>> plan.weighting.is_exact, plan.sampling.deviation <= 0.05
    (True, True)
    """
    proportions_C = check_proportions(proportions)
    if not 0 < deviation < 2:
        raise UsageError(f"deviation must be between 0 and 2, got {deviation}; 0.05 is common")
    question = _Question(loss, num_negatives, supervised)
    risk = question.risk(proportions_C)
    if not risk.is_convex:
        raise UsageError(f"{risk.name} has no convex class-level risk, so that no optimum is certain; take hardness 0")
    before = question.optimum(proportions_C)
    deviation_before = simplex_deviation(before.gram)
    if deviation_before <= deviation:
        sampling = SamplingPlan(1.0, proportions_C, torch.ones_like(proportions_C), before, deviation_before)
    else:
        sampling = _sampling_plan(proportions_C, question, deviation)
    weighting = _weighting_plan(proportions_C, question)
    return RebalancingPlan(proportions_C, deviation, before, deviation_before, sampling, weighting)


def simplex_deviation(gram_CC: Tensor) -> float:
    """Largest distance of a cosine between classes from -1/(C-1).

    >>> round(simplex_deviation(torch.eye(3)), 6)
    0.5
    """
    num_classes = len(gram_CC)
    between_CC = (gram_CC + 1 / (num_classes - 1)).abs()
    return float(between_CC.fill_diagonal_(0.0).max())


@dataclass(frozen=True)
class _Question:
    """What the loss and its negatives are."""

    loss: Loss | None
    num_negatives: float | None
    supervised: bool

    def optimum(self, proportions_C: Tensor) -> Geometry:
        """The optimal geometry of proportions."""
        return optimal_geometry(
            proportions_C, loss=self.loss, num_negatives=self.num_negatives, supervised=self.supervised
        )

    def risk(self, proportions_C: Tensor, anchor_weights_C: Tensor | None = None) -> ClassRisk:
        """The risk of proportions under weights of anchors."""
        return class_risk(
            proportions_C,
            loss=self.loss,
            num_negatives=self.num_negatives,
            supervised=self.supervised,
            anchor_weights=anchor_weights_C,
        )


def _sampling_plan(proportions_C: Tensor, question: _Question, allowed: float) -> SamplingPlan:
    """The largest exponent whose optimum is within the deviation allowed."""

    def plan(exponent: float) -> SamplingPlan:
        q_C = proportions_C**exponent / (proportions_C**exponent).sum()
        geometry = question.optimum(q_C)
        return SamplingPlan(exponent, q_C, q_C / proportions_C, geometry, simplex_deviation(geometry.gram))

    equal = plan(0.0)
    if equal.deviation > allowed:
        raise UsageError(
            f"the optimum of this loss is {equal.deviation:.3g} from the simplex even with equal classes: no sampling "
            "brings it there; take a loss that grows with each cosine, such as InfoNCE"
        )
    exponent = root_between(lambda gamma: plan(gamma).deviation - allowed, 0.0, 1.0, tolerance=EXPONENT_TOLERANCE)
    found = plan(exponent)
    while found.deviation > allowed:  # Brent's root may be on the far side
        found = plan(max(0.0, found.exponent - EXPONENT_TOLERANCE))
    return found


def _weighting_plan(proportions_C: Tensor, question: _Question) -> WeightingPlan:
    """The least-squares weights, or the mixture of them with the proportions that comes nearest to the simplex."""
    solved_C, residual = _simplex_weights(question.risk(proportions_C))

    def plan(mixture: float) -> WeightingPlan:
        weights_C = (1 - mixture) * proportions_C + mixture * solved_C
        gram_CC = minimise_over_correlations(question.risk(proportions_C, weights_C)).gram_CC
        return WeightingPlan(
            weights_C, weights_C / proportions_C, residual <= EXACT_TOLERANCE, gram_CC, simplex_deviation(gram_CC)
        )

    if residual <= EXACT_TOLERANCE:
        return plan(1.0)
    plans = [plan(step / NUM_MIXTURES) for step in range(NUM_MIXTURES + 1)]
    return min(plans, key=lambda tried: tried.deviation)


def _simplex_weights(risk: ClassRisk) -> tuple[Tensor, float]:
    r"""Weights w >= 0 of sum 1 with the least squares of (w_i h_ij + w_j h_ji) / 2 - 1, and their largest residual.

    With B the P x C matrix of the equations, :math:`B^\top B` has :math:`\sum_j h_{ij}^2 / 4` on its diagonal and
    :math:`h_{ij} h_{ji} / 4` beside it, so that B itself is never made. Columns are scaled to unit length.
    """
    num_classes = risk.num_classes
    if num_classes == 2:  # two vectors are opposite whatever the weights
        return risk.anchor_weights_C, 0.0
    simplex_CC = torch.full((num_classes, num_classes), -1 / (num_classes - 1), dtype=torch.float64).fill_diagonal_(1.0)
    h_CC = risk.rows.at(simplex_CC).slope_CC.clone().fill_diagonal_(0.0) / 2
    length_C = h_CC.square().sum(1).sqrt()
    scaled_CC = h_CC / length_C[:, None]
    factor_CC = torch.linalg.cholesky(scaled_CC * scaled_CC.T + torch.eye(num_classes, dtype=torch.float64))
    target_C = torch.linalg.solve_triangular(factor_CC, scaled_CC.sum(1)[:, None], upper=False)[:, 0]
    x_C, _ = nnls(factor_CC.T.numpy(), target_C.numpy())
    weights_C = torch.from_numpy(x_C) / length_C
    pairs_CC = weights_C[:, None] * h_CC
    residual_CC = (pairs_CC + pairs_CC.T - 1).fill_diagonal_(0.0)
    return weights_C / weights_C.sum(), float(residual_CC.abs().max())


def _numbers(values_C: Tensor) -> str:
    """A short list."""
    shown = ", ".join(f"{value:.3g}" for value in values_C[:6].tolist())
    return f"({shown}{', ...' if len(values_C) > 6 else ''})"
