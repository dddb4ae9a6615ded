r"""The general pairwise loss: sum_i phi(sum_j psi(d_i^2 - d_ij^2)), alphacl2022, Eq. 1.

With :math:`d_i^2 = |z_i - z_i'|^2/2` between an anchor and its positive and :math:`d_{ij}^2 = |z_i - z_j|^2/2` to a
negative, every member has the gradient of :math:`\sum_{ij} \alpha_{ij} (d_i^2 - d_{ij}^2)` with the pairwise importance
:math:`\alpha_{ij} = \phi'(\xi_i)\,\psi'(d_i^2 - d_{ij}^2)` held fixed (Theorem 1).
"""

# N samples per view, A anchors, M keys, D features

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice, check_weight
from counterpoint.core.numerics import row_entropy, unit_rows
from counterpoint.kernels import dense
from counterpoint.kernels.contract import (
    EXPONENTIAL,
    HINGE,
    IDENTITY,
    SIGMOID,
    SOFTPLUS,
    Elementwise,
    PairFunction,
    PairScores,
    ScoreTerms,
)
from counterpoint.kernels.cpu import upper_pairs
from counterpoint.kernels.cpu.one_operation import reduce_total
from counterpoint.kernels.differentiable import reduce
from counterpoint.kernels.triton import two_views
from counterpoint.losses.class_level import ClassLevel, LogOfSum, Separable, not_covered
from counterpoint.losses.inputs import can_read, check_views, lift, may_begin_anew, prepare_both, prepare_views
from counterpoint.losses.loss import LossCard, Part
from counterpoint.losses.pairs import ContrastiveLoss, Pairing, Phi, Psi, blocks_of, derivative, user_phi, user_psi

INCREASING = (EXPONENTIAL, HINGE, IDENTITY, SIGMOID, SOFTPLUS)


@dataclass(frozen=True)
class Attention:
    r"""Attention of a loss, per anchor: first-view anchors, then second-view ones.

    .. math:: H_i = -\sum_j p_{ij} \log p_{ij}, \qquad p_{ij} = \alpha_{ij} / \sum_k \alpha_{ik}

    over the negatives of anchor i; the factor :math:`\phi'(\xi_i)` cancels. exp(H_i) effective negatives are all of
    them if they weigh alike, and 1 if a single one takes all.

    Attributes:
        entropy_A: H_i in nats; NaN for an anchor all of whose pairs weigh nothing (a hinge that is satisfied).
        num_negatives: largest number that ``effective_negatives_A`` can reach.
    """

    entropy_A: Tensor
    num_negatives: int

    @classmethod
    def of_importance(cls, alpha_AM: Tensor) -> "Attention":
        """Attention of weights >= 0, as ``loss.importance(z0, z1)`` gives them; NaN for rows without weight.

        >>> attention = Attention.of_importance(torch.tensor([[0.0, 2.0, 2.0], [0.0, 0.0, 1.0]]))
        >>> attention.effective_negatives_A, attention.num_negatives
        (tensor([2., 1.]), 2)
        """
        check_weight(alpha_AM.min().item(), "alpha_AM", hint="alpha_AM.clamp(min=0) leaves out pairs that attract")
        return cls(row_entropy(alpha_AM), int((alpha_AM > 0).sum(1).max()))

    @property
    def effective_negatives_A(self) -> Tensor:
        """exp(H_i)."""
        return self.entropy_A.exp()

    @property
    def mean_effective_negatives(self) -> float:
        """Mean over the anchors that attend to anything; NaN if none does."""
        return float(self.effective_negatives_A.nanmean())


def _entropies(scores: PairScores, psi: PairFunction) -> list[Tensor]:
    """Entropy per anchor, rows then columns, from scores in float64: it is a difference of larger numbers."""
    if not psi.in_log_domain:
        total = reduce(scores, PairFunction(f"slope of {psi.name}", psi.slope, psi.curvature, torch.zeros_like))

        def x_log_x(u: Tensor) -> Tensor:
            slope = psi.slope(u)
            return torch.special.xlogy(slope, slope)

        spread = reduce(scores, PairFunction(f"x log x of {psi.name}", x_log_x, torch.zeros_like, torch.zeros_like))
        return [
            torch.where(weight > 0, torch.log(weight) - added / weight, torch.nan)
            for weight, added in zip(total.both(), spread.both(), strict=True)
        ]
    # Log-sum-exp minus mean score, r - sum_j p_j u_j; the mean is the derivative of r(t u) at t = 1.
    anchors_ND, keys_MD, *added = scores.terms.flat()
    assert anchors_ND is not None

    def log_sums(factor: Tensor) -> tuple[Tensor, ...]:
        scaled = (None if term is None else term * factor for term in added)
        return tuple(reduce(replace(scores, terms=ScoreTerms(anchors_ND, keys_MD, *scaled)), psi).both())  # pyright: ignore[reportArgumentType]

    unit = torch.ones((), dtype=anchors_ND.dtype, device=anchors_ND.device)
    values, means, *_ = torch.func.jvp(log_sums, (unit,), (unit,))
    return [value - mean for value, mean in zip(values, means, strict=True)]


Reduction = Literal["mean", "sum"]
REDUCTIONS = {"mean": "mean over anchors", "sum": "sum over anchors"}


class PairLoss(ContrastiveLoss):
    r"""A pairwise loss made of two increasing functions.

    .. math:: L = \frac{1}{|A|} \sum_{i \in A} \phi\Big(\sum_{j \in N(i)} \psi(d_i^2 - d_{ij}^2)\Big)

    Source: alphacl2022, Eq. 1. Differs from the paper in the default pairing: all 2n vectors are anchors and both views
    of other samples repel them, as in SimCLR, where the paper has n first-view anchors and same-view negatives
    (``Pairing("same-view", "first")``); and in the mean, where it has a sum.

    Args:
        phi: increasing function of each anchor's sum, as a function of a tensor, or a ``Phi``.
        psi: increasing function of each gap; derivatives come from autograd unless given as a ``PairFunction``.
            ``torch.exp`` is computed in the log domain.
        pairing: choice of anchors, negatives and normalisation.
        reduction: ``mean`` or ``sum`` over anchors.

    Raises:
        TypeError: phi or psi is not a function.
        ValueError: phi or psi is not elementwise, or an unknown reduction.

    Unchanged by permuting samples, swapping views (with all anchors) and rotating all vectors.

    >>> z = torch.eye(2)
    >>> loss = PairLoss(torch.log1p, torch.exp)  # equals the (N+1)-tuplet loss
    >>> round(float(loss(z, z)), 6) == round(math.log(1 + 2 / math.e), 6)
    True
    """

    def __init__(
        self,
        phi: Elementwise | Phi,
        psi: Elementwise | Psi | PairFunction,
        *,
        pairing: Pairing | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_choice(reduction, "reduction", REDUCTIONS)
        self.phi, self.psi = user_phi(phi), user_psi(psi)
        self.pairing = pairing or Pairing()
        self.reduction: Reduction = reduction
        self.card = LossCard(
            name="PairLoss",
            phi=self.phi.formula,
            psi=self.psi.formula,
            alpha="phi'(xi_i) psi'(d_i^2 - d_ij^2)",
            negatives=self.pairing.explain(),
            normalization=("unit vectors" if self.pairing.normalize else "vectors as they are")
            + f"; {REDUCTIONS[reduction]}",
            source="alphacl2022, Eq. 1",
            fused="CPU",
        )
        # The shortcut of small batches keeps exponentials of unit vectors, of both views against both.
        self._small: upper_pairs.SmallLoss | None = None
        of_log, slope = self.phi.of_log_sum, self.phi.slope_of_log_sum
        if self.psi.function.in_log_domain and self.pairing == Pairing() and of_log and slope:
            self._small = upper_pairs.SmallLoss(self.psi.scale, self.psi.margin, of_log, slope, self._general)
        self._factor = float(self.phi.of_sum(torch.ones((), dtype=torch.float64))) if self.phi.is_linear else 1.0
        if self.phi.domain:
            self.domain_error = (
                f"the sum of psi = {self.psi.formula} over some anchor's negatives is outside the domain of phi = "
                f"{self.phi.formula}, {self.phi.domain}; take a psi whose sums stay inside, or another phi"
            )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used."""
        if part is None and self._small is not None:
            check_views(z0, z1, labels)
            weight = 0.5 / z0.shape[0] if self.reduction == "mean" else 1.0  # 1 / 2n: both views are anchors
            value = None
            if can_read(z0):  # the shortcut of small batches looks at lengths
                value = upper_pairs.weighted_loss(lift(z0), lift(z1), self._small, weight)
            elif may_begin_anew(z0):
                value = two_views.weighted_loss(z0, z1, self._small, weight)
            if value is not None:
                return value
        both_2ND = prepare_both(z0, z1, labels, normalize=self.pairing.normalize)
        # phi' is constant: weights are known before any pair is seen, so that the gradient needs no second pass.
        if self.phi.is_linear and part is None and not self.psi.function.in_log_domain:
            # Rows, and columns where they are anchors.
            blocks = blocks_of(both_2ND, self.pairing, self.psi)
            sides = ((b.terms.anchors_ND, b.keys_MD)[: 1 + b.is_two_way] for b in blocks)
            num_anchors = sum(len(side) for views in sides for side in views)
            weight = self._factor / num_anchors if self.reduction == "mean" else self._factor
            totals = [reduce_total(block, self.psi.function, weight) for block in blocks]
            return torch.stack(totals).sum().to(both_2ND.dtype)
        per_anchor_A = self.phi_of(statistics(both_2ND, self.pairing, self.psi, part))
        value = self.reduced(per_anchor_A, 1.0 if part is None else len(z0) / (part.last - part.first))
        return value.to(both_2ND.dtype)

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Pairwise importance :math:`\alpha_{ij} = \phi'(\xi_i)\psi'(d_i^2 - d_{ij}^2)`, dense.

        The loss has the gradient of :math:`\frac{1}{|A|}\sum_{ij} \alpha_{ij} (d_i^2 - d_{ij}^2)` with alpha held fixed
        (a sum over anchors for ``reduction="sum"``).
        """
        z0, z1 = (z.detach() for z in prepare_views(z0, z1, normalize=self.pairing.normalize))
        n, pairing = len(z0), self.pairing
        num_views = 1 if pairing.anchors == "first" else 2
        if pairing.negatives == "two-view":
            rows, keys = [slice(0, num_views * n)], [slice(0, 2 * n)]
            blocks = blocks_of(torch.cat([z0, z1]), pairing, self.psi)
        else:
            # Dense rows are anchors: the second view gets a block of its own instead of the columns of the first.
            one_way, rows = replace(pairing, anchors="first"), [slice(0, n), slice(n, 2 * n)]
            keys = rows[::-1] if pairing.negatives == "cross-view" else rows
            vectors = [torch.cat(views) for views in ((z0, z1), (z1, z0))[:num_views]]
            blocks = [blocks_of(both_2ND, one_way, self.psi)[0] for both_2ND in vectors]
        alpha = z0.new_zeros(2 * n, 2 * n)
        for own, others, scores in zip(rows, keys, blocks, strict=False):
            alpha[own, others] = self._alpha(dense.row_scores(scores)).to(z0.dtype)  # Eq. 4
        return alpha

    def attention(self, z0: Tensor, z1: Tensor) -> Attention:
        """Entropy of each anchor's importance and its effective number of negatives, in linear memory."""
        both_2ND = prepare_both(z0, z1, normalize=self.pairing.normalize).detach().double()
        num_negatives = self.num_negatives(len(z0))
        with torch.no_grad():
            blocks = blocks_of(both_2ND, self.pairing, self.psi)
            entropy_A = torch.cat([h_A for block in blocks for h_A in _entropies(block, self.psi.function)])
            if self.phi.logarithm is None and not self.phi.is_linear:  # neither is flat, though a slope may round to 0
                xi_A = statistics(both_2ND, self.pairing, self.psi)
                slope_A = derivative(self.phi_of)(xi_A)
                entropy_A = entropy_A.masked_fill(slope_A == 0, math.nan)
            # Rounding is kept within the range that this number of negatives can reach.
            return Attention(entropy_A.clamp(0.0, math.log(num_negatives)), num_negatives)

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike (nothing learned, or full collapse): phi(K psi(0)) with K negatives."""
        return self._at_gap(n, 0.0)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below.

        Where phi(psi(x)) is convex, Jensen's inequality puts the mean gap g into :math:`L \ge \phi(K \psi(g))`, and
        for unit vectors g is at least -n/(n-1), reached when the samples form a simplex and both views agree
        (non-negative: -1). Elsewhere the least single gap, -2 (non-negative: -1), does. Vectors of any length have no
        least gap.
        """
        self.num_negatives(n)  # refuses n < 2
        if not self.pairing.normalize:
            return self._at_gap(n, -math.inf)  # lengths are free, and with them gaps
        if self.psi.is_convex and self.phi.is_convex:
            return self._at_gap(n, self.pairing.least_mean_gap(n, nonnegative=nonnegative))
        return self._at_gap(n, -1.0 if nonnegative else -2.0)

    def class_level(self) -> ClassLevel:
        r"""See ``Loss.class_level``; a sum over anchors (``reduction="sum"``) counts as their mean.

        Lemma 1 of imbalanced2026 holds where phi(sum psi) is convex in the k gaps and increasing in each: given the
        classes, Jensen's inequality puts the means of the gaps into it, and a gap's mean is at least a_ij - 1. The
        logarithm of epsilon plus a sum of exponentials is (Lemma 5; epsilon = 0 too, though not strictly), and so is
        a sum of convex increasing functions. Of a user's functions these properties are those that ``Psi`` and ``Phi``
        say.
        """
        phi, psi, name = self.phi, self.psi, self.card.name
        if not self.pairing.normalize:
            raise not_covered(name, "its vectors have no fixed length (normalize=False)")
        logarithm = phi.logarithm if psi.function.in_log_domain else None
        if logarithm is None and not phi.is_linear:
            raise not_covered(name, f"phi = {phi.formula} is neither a sum nor the logarithm of one of exponentials")
        if not psi.is_convex:
            raise not_covered(
                name, f"psi = {psi.formula} is not convex, or not known to be (say so: Psi(..., is_convex=True))"
            )
        if not (psi.scale > 0 and (psi.is_increasing or psi.function in INCREASING)):
            raise not_covered(
                name,
                f"psi = {psi.formula} is not increasing, or not known to be (say so: Psi(..., is_increasing=True))",
            )
        factor = self._factor if logarithm is None else logarithm.factor
        # A user's phi, linear or logarithmic, may have a negative factor.
        if not 0 < factor < math.inf:
            raise not_covered(name, f"phi = {phi.formula} is not increasing")
        if logarithm is not None:
            return LogOfSum(name, logarithm.epsilon, factor, psi.scale, psi.margin)
        return Separable(
            name,
            psi.function,
            psi.scale,
            psi.margin,
            factor,
            is_gap=True,
            is_strictly_convex=psi.function in (EXPONENTIAL, SOFTPLUS),
            is_smooth=psi.function is not HINGE,
        )

    def _general(self, z0: Tensor, z1: Tensor) -> Tensor:
        """The loss of all anchors of views that are known to be good, by the general route."""
        statistic_A = statistics(unit_rows(torch.cat([z0, z1])), self.pairing, self.psi)
        return self.reduced(self.phi_of(statistic_A), 1.0)

    def reduced(self, per_anchor_A: Tensor, num_parts: float) -> Tensor:
        """Mean over anchors, or a sum such that the mean over parts is that of the whole batch."""
        return per_anchor_A.mean() if self.reduction == "mean" else num_parts * per_anchor_A.sum()

    def phi_of(self, statistic_A: Tensor) -> Tensor:
        """Phi per anchor, from the sums or, of an exponential psi, from their logarithms."""
        if not self.psi.function.in_log_domain:
            return self.phi.of_sum(statistic_A)
        return self.phi.of_sum(statistic_A.exp()) if self.phi.of_log_sum is None else self.phi.of_log_sum(statistic_A)

    def _alpha(self, u_AM: Tensor) -> Tensor:
        """Importance from scores, zero where they are minus infinity."""
        is_out_AM = u_AM == -math.inf
        function = self.psi.function
        if function.in_log_domain:
            log_xi_A = u_AM.logsumexp(1)
            # phi'(xi) psi' = d phi / d log xi * softmax: nothing leaves the log domain.
            slope_A = derivative(self.phi_of)(log_xi_A)
            return self.psi.scale * slope_A[:, None] * torch.exp(u_AM - log_xi_A[:, None])
        safe_AM = u_AM.masked_fill(is_out_AM, 0.0)
        # Masked before and after: a user's psi may be NaN at minus infinity, and not 0 at 0.
        xi_A = function.value(safe_AM).masked_fill(is_out_AM, 0.0).sum(1)
        # Slopes are taken by autograd, as phi may be the user's; elementwise, so that the sum keeps anchors apart.
        slope_A = derivative(self.phi_of)(xi_A)
        return self.psi.scale * (slope_A[:, None] * function.slope(safe_AM)).masked_fill(is_out_AM, 0.0)

    def _at_gap(self, n: int, gap: float) -> float:
        """Loss of n samples all of whose gaps are alike."""
        num_negatives = self.num_negatives(n)
        u = torch.tensor(self.psi.scale * gap + self.psi.margin, dtype=torch.float64)
        if self.psi.function.in_log_domain:
            value = self.phi_of(u + math.log(num_negatives))  # log of a sum of K equal terms
        else:
            value = self.phi_of(num_negatives * self.psi.function.value(u))
        # A user's psi, x e^x for example, may be NaN at minus infinity: then no floor is known.
        per_anchor = -math.inf if math.isnan(float(value)) else float(value)
        num_anchors = n if self.pairing.anchors == "first" else 2 * n
        return per_anchor if self.reduction == "mean" else num_anchors * per_anchor


def statistics(both_2ND: Tensor, pairing: Pairing, psi: Psi, part: Part | None = None) -> Tensor:
    """One number per anchor, first-view anchors before second-view ones; see ``blocks_of``."""
    blocks = blocks_of(both_2ND, pairing, psi, part)
    per_block = [statistic for block in blocks for statistic in block_statistics(block, psi.function, part)]
    return per_block[0] if len(per_block) == 1 else torch.cat(per_block)


def block_statistics(scores: PairScores, psi: PairFunction, part: Part | None) -> list[Tensor]:
    """Statistics of rows and, if there are, columns, which are merged with those of the other processes."""
    result = reduce(scores, psi)
    if part is None or result.columns_M is None:
        return result.both()
    # This process scored its own rows only: the statistic of a column is complete once all have been merged.
    return [result.rows_N, part.merge(result.columns_M, psi.in_log_domain)[part.first : part.last]]
