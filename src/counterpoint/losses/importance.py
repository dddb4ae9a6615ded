r"""alpha-CL: choose the pairwise importance alpha by a rule, which may be the user's own, and follow the energy.

The energy of alphacl2022, Theorem 1, is linear in alpha and, alpha held, quadratic in the vectors: one pass over the
pairs, in blocks of anchors, yields alpha, the whole gradient and, by Euler's theorem on homogeneous functions, the
value: half the gradient times the vectors.
"""

# n samples, B anchors of a block, M keys, V = 2n vectors (first view before second), D features

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from counterpoint.core.numerics import is_transformed, row_dots
from counterpoint.core.processor_routines import add_product_
from counterpoint.core.thread_parts import ordered_map
from counterpoint.kernels.differentiable import PerSlice
from counterpoint.losses.alpha_rules import AlphaRule, Direct
from counterpoint.losses.inputs import can_read, prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part, first_order
from counterpoint.losses.pairs import Anchors, ContrastiveLoss, Negatives, Pairing

BLOCK_PAIRS = 1 << 20  # pairs of one block: a rule keeps a few tensors of this size
MIN_BLOCK_ROWS = 32  # takes over beyond 2^15 keys: products of fewer rows are slow


@dataclass(frozen=True)
class AnchorBlock:
    """Consecutive anchors, and the keys among which their negatives are."""

    rows: slice
    keys: slice


@dataclass(frozen=True)
class EnergyProblem:
    """All of an energy but the vectors.

    Attributes:
        rule: rule that gives alpha.
        pairing: vectors that are anchors and those that repel them, and whether they are of unit length.
        streams: whether anchors come in blocks.
        num_samples: number of samples in the batch, n.
        own: index of the first sample whose vectors are anchors, and one past the last.
    """

    rule: AlphaRule
    pairing: Pairing
    streams: bool
    num_samples: int
    own: tuple[int, int]

    @property
    def num_anchors(self) -> int:
        """Vectors whose terms the energy is the mean of."""
        return (1 if self.pairing.anchors == "first" else 2) * (self.own[1] - self.own[0])

    def blocks(self) -> Iterator[AnchorBlock]:
        """Blocks that hold each anchor once; a rule that cannot stream gets one block of everything."""
        n = self.num_samples
        if not self.streams:
            yield AnchorBlock(slice(0, 2 * n), slice(0, 2 * n))
            return
        # One view at a time: the positives of a block, and its keys in any pairing, are then one slice each.
        for start in (0,) if self.pairing.anchors == "first" else (0, n):
            other = n - start
            same_view, cross_view = slice(start, start + n), slice(other, other + n)
            keys = {"two-view": slice(0, 2 * n), "same-view": same_view, "cross-view": cross_view}
            chosen = keys[self.pairing.negatives]
            num_rows = max(MIN_BLOCK_ROWS, BLOCK_PAIRS // (chosen.stop - chosen.start))
            last = start + self.own[1]
            for row in range(start + self.own[0], last, num_rows):
                yield AnchorBlock(slice(row, min(row + num_rows, last)), chosen)

    def costs(self, z_VD: Tensor, block: AnchorBlock) -> tuple[Tensor, Tensor]:
        """d_ij^2, infinite where j does not repel i, and d_i^2; differentiable."""
        anchors_BD, keys_MD, n = z_VD[block.rows], z_VD[block.keys], self.num_samples
        if self.streams:  # the positives of one view's anchors follow each other in the other view
            shift = n if block.rows.start < n else -n
            positives_BD = z_VD[block.rows.start + shift : block.rows.stop + shift]
        else:
            positives_BD = self.partners(z_VD)[block.rows]
        product_BM = anchors_BD @ keys_MD.mT
        if self.pairing.normalize:
            # |a - k|^2 / 2 of unit vectors; a zero row is at 1 from all others: its cosines are 0.
            cost_BM, own_B = 1 - product_BM, _at_least_zero(1 - (anchors_BD * positives_BD).sum(1))
        else:
            half_B, half_M = 0.5 * anchors_BD.square().sum(1), 0.5 * keys_MD.square().sum(1)
            cost_BM = half_B[:, None] + half_M - product_BM
            # Differences keep their digits where views agree; for all pairs they would need B M D numbers.
            own_B = 0.5 * (anchors_BD - positives_BD).square().sum(1)
        parts = (block.rows, block.keys)
        row_B, key_M = (torch.arange(part.start, part.stop, device=z_VD.device) for part in parts)
        # The anchor itself and its positive. Differs from Eq. 12, which prints the sum over all j.
        is_out_BM = (row_B % n)[:, None] == key_M % n
        # The keys of a streamed block are those of the right view already.
        if not self.streams and self.pairing.negatives != "two-view":
            is_same_BM = (row_B // n)[:, None] == key_M // n
            is_out_BM = is_out_BM | (is_same_BM == (self.pairing.negatives == "cross-view"))
        # An infinite cost gives weight 0 under every rule.
        return _at_least_zero(cost_BM).masked_fill(is_out_BM, math.inf), own_B

    def alpha(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """The rule's weights, zero for anchors that are not our own."""
        alpha_BM = self.rule(cost_BM, own_B)
        # Blocks hold own anchors only; a rule that needs all pairs at once has weighed the others' rows, too.
        if self.streams or self.num_anchors == 2 * self.num_samples:
            return alpha_BM
        vector_B = torch.arange(2 * self.num_samples, device=cost_BM.device)
        sample_B = vector_B if self.pairing.anchors == "first" else vector_B % self.num_samples
        is_own_B = (sample_B >= self.own[0]) & (sample_B < self.own[1])
        return torch.where(is_own_B[:, None], alpha_BM, 0.0)

    def partners(self, z_VD: Tensor) -> Tensor:
        """Each vector's positive, or what belongs to it."""
        # A swap of the two halves: its own inverse, so its own transpose.
        return z_VD.roll(self.num_samples, 0)


class _Energy(PerSlice):
    """The energy and, alpha held, its gradient, in one pass over the pairs; its second derivative raises."""

    @staticmethod
    def forward(z_VD: Tensor, problem: EnergyProblem) -> tuple[Tensor, Tensor]:
        # Eq. 3 and 5 of alphacl2022 with sg(alpha): only inner products and squares are differentiated.
        gradient_VD, row_sum_V, column_sum_V = _weighted_sums(z_VD, problem)
        # <a, k> - <a, p>; the positive receives its share from the anchor it belongs to.
        s_V1 = row_sum_V[:, None]
        gradient_VD -= s_V1 * problem.partners(z_VD) + problem.partners(s_V1 * z_VD)
        if not problem.pairing.normalize:  # |p|^2 / 2 - |k|^2 / 2
            gradient_VD += (problem.partners(s_V1) - column_sum_V[:, None]) * z_VD
        gradient_VD /= problem.num_anchors
        return 0.5 * row_dots(z_VD, gradient_VD).sum(), gradient_VD  # Euler: homogeneous of degree 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, EnergyProblem], output: tuple[Tensor, Tensor]) -> None:
        # The second output is what backward and jvp work with; callers see the first only.
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])
        ctx.save_for_forward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        z_VD, gradient_VD = ctx.saved_tensors
        return first_order(grad_outputs[0] * gradient_VD, z_VD, refusal=_NO_SECOND), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        z_VD, gradient_VD = ctx.saved_tensors
        return first_order((gradient_VD * tangents[0]).sum(), z_VD, refusal=_NO_SECOND), None


def _weighted_sums(z_VD: Tensor, problem: EnergyProblem) -> tuple[Tensor, Tensor, Tensor]:
    """(A + A^T) Z, and the sums of alpha over rows and over columns; on a CPU several blocks at a time."""
    for_rows_VD, for_keys_VD = torch.zeros_like(z_VD), torch.zeros_like(z_VD)
    row_sum_V, column_sum_V = (z_VD.new_zeros(len(z_VD)) for _ in range(2))

    def weigh(block: AnchorBlock) -> Tensor:
        alpha_BM = problem.alpha(*problem.costs(z_VD, block))
        add_product_(for_rows_VD[block.rows], alpha_BM, z_VD[block.keys])
        row_sum_V[block.rows] += alpha_BM.sum(1)
        return alpha_BM

    def add(block: AnchorBlock, alpha_BM: Tensor) -> None:
        add_product_(for_keys_VD[block.keys], alpha_BM.mT, z_VD[block.rows])
        column_sum_V[block.keys] += alpha_BM.sum(0)

    # ``weigh`` writes to the rows of its block, which no other block has; all blocks add to the same keys, in a fixed
    # order, so that the bits do not depend on the number of threads.
    ordered_map(problem.blocks(), weigh, add, is_parallel=can_read(z_VD) and not is_transformed())
    return for_rows_VD.add_(for_keys_VD), row_sum_V, column_sum_V


_NO_SECOND = (
    "AlphaCL has no second derivative while alpha is held fixed: differentiating its gradient gives the Hessian of no "
    "loss; use AlphaCL(..., backpropagate_alpha=True), or the pairwise loss with this alpha (InfoNCE for Entropy)"
)


def _block_energy(z_VD: Tensor, problem: EnergyProblem, block: AnchorBlock) -> Tensor:
    """sum_ij alpha_ij (d_i^2 - d_ij^2) over the anchors of a block."""
    cost_BM, own_B = problem.costs(z_VD, block)
    alpha_BM = problem.alpha(cost_BM, own_B)
    # Weight 0 times an infinite cost would be NaN.
    return (alpha_BM * (own_B[:, None] - torch.where(torch.isinf(cost_BM), 0.0, cost_BM))).sum()


def _at_least_zero(square: Tensor) -> Tensor:
    """Squared distances that rounding put below 0, at 0, with their derivatives as they were."""
    # clamp alone has slope 0 below 0: vectors that coincide up to rounding would stop repelling each other.
    return square + (square.clamp(min=0.0) - square).detach()


class AlphaCL(ContrastiveLoss):
    r"""Pair-weighted contrastive learning (alpha-CL).

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} \sum_{j \in N(i)} \alpha_{ij} (d_i^2 - d_{ij}^2), \qquad
        \alpha = \mathrm{rule}(d_{ij}^2, d_i^2) \text{ held fixed}

    All 2n vectors are anchors unless ``anchors="first"``; the mean is over anchors. For unit vectors
    :math:`d_{ij}^2 = 1 - \cos_{ij}`, with a cosine of 0 to a zero vector; otherwise :math:`d_{ij}^2 = |z_i -
    z_j|^2/2`. With ``Entropy(tau)`` the gradient is tau times that of ``InfoNCE(tau, epsilon=0)`` (Corollary 1); with
    the alpha of any pairwise loss it is that loss's (Theorem 1).

    Use it to say directly, by a rule, how much a pair counts at each distance (method ``alpha-cl``).

    Source: alphacl2022, Theorem 1, Definition 1 and section 6. Differs from the paper, which maximises the energy E,
        a sum over n first-view anchors with same-view negatives (``negatives="same-view", anchors="first"``): L is -E
        with a mean over all 2n anchors, as in the released code.

    Args:
        rule: rule by which alpha follows from the distances; None is ``Direct()``, the paper's best.
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
        normalize: scale the inputs to unit length first.
        anchors: ``both`` views, or the ``first`` only, as in ``InfoNCE``.
        backpropagate_alpha: let the gradient go through the rule as well (the paper's "backprop alpha", worse there).
            Then all derivatives are those of the value.
        stream: work on blocks of anchors, so that no matrix of all pairs exists; ``auto`` where the rule can.

    Raises:
        TypeError: ``rule`` is not a rule.
        ValueError: unknown negatives or anchors, or a rule that cannot stream asked to.

    Alpha held fixed gives a gradient and no Hessian: a second derivative raises a RuntimeError. Unchanged by permuting
    samples, swapping views and rotating all vectors (for a user's rule, where that rule is).

    >>> z = torch.eye(2)  # views agree, samples are orthogonal: every gap is 0 - 1
    >>> AlphaCL()(z, z)
    tensor(-1.)
    """

    why_no_class_level = (
        "its gradient, with alpha held fixed, is that of no function; take the pairwise loss with this alpha, which is "
        "InfoNCE for Entropy"
    )

    domain_error = (
        "its rule gives weights that are NaN or infinite; where a power of long distances overflows, normalise the "
        "vectors or lower the exponent"
    )

    def __init__(
        self,
        rule: AlphaRule | None = None,
        negatives: Negatives = "two-view",
        normalize: bool = True,
        *,
        anchors: Anchors = "both",
        backpropagate_alpha: bool = False,
        stream: bool | Literal["auto"] = "auto",
    ) -> None:
        super().__init__()
        self.rule = Direct() if rule is None else rule
        # A class is callable, too: Entropy in place of Entropy().
        if not callable(self.rule) or not hasattr(self.rule, "can_stream") or isinstance(self.rule, type):
            raise TypeError(f"rule must be a rule such as Entropy() or OwnRule(function), got {self.rule!r}")
        if stream is True and not self.rule.can_stream:
            raise ValueError(f"stream=True needs a rule that decides each row independently, got {self.rule}")
        self.pairing = Pairing(negatives, anchors, normalize)
        self.backpropagate_alpha = backpropagate_alpha
        self.streams = self.rule.can_stream if stream == "auto" else stream
        first_order_only = "none, because alpha is held fixed (backpropagate_alpha=True: autograd)"
        self.card = LossCard(
            name="AlphaCL",
            phi="x",
            psi="alpha x",
            alpha=f"{type(self.rule).__name__}: {self.rule.formula}",
            negatives=self.pairing.explain(),
            normalization=f"{'unit length' if self.pairing.normalize else 'as they are'}; mean over anchors",
            source="alphacl2022, Theorem 1, Definition 1 and section 6",
            second_derivative="autograd" if self.backpropagate_alpha else first_order_only,
            fused="CPU, CUDA" if self.streams else "none, because the rule is given all pairs",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used."""
        problem, z_VD, dtype = self._problem(z0, z1, labels, part)
        # Definition 1 holds alpha fixed (sg); the other way is the paper's "backprop alpha".
        if not self.backpropagate_alpha:
            return _Energy.apply(z_VD, problem)[0].to(dtype)  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
        blocks = list(problem.blocks())
        num_pairs = sum((b.rows.stop - b.rows.start) * (b.keys.stop - b.keys.start) for b in blocks)
        if len(blocks) == 1 or num_pairs <= BLOCK_PAIRS:
            parts = [_block_energy(z_VD, problem, block) for block in blocks]
        else:
            # More pairs than one block holds are computed again in the backward pass. The reentrant form does not work
            # with torch.autograd.grad, by which second derivatives are taken.
            parts = [checkpoint(_block_energy, z_VD, problem, block, use_reentrant=False) for block in blocks]
        total = torch.stack(parts).sum()  # pyright: ignore[reportArgumentType]
        return (total / problem.num_anchors).to(dtype)

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Pairwise importance alpha, dense."""
        problem, z_VD, dtype = self._problem(z0.detach(), z1.detach(), None, None)
        alpha_VV = z_VD.new_zeros(len(z_VD), len(z_VD))
        for block in problem.blocks():
            alpha_VV[block.rows, block.keys] = problem.alpha(*problem.costs(z_VD, block))
        return alpha_VV.to(dtype)

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike (nothing learned, or full collapse): every gap is 0."""
        self.num_negatives(n)
        return 0.0

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below.

        The rules give less weight to larger costs, so by Chebyshev's sum inequality the weighted mean cost of an anchor
        is at most its plain mean. Where rows sum to 1 that leaves the mean gap, for unit vectors at least -n/(n-1)
        (a simplex with equal views; non-negative: -1, an orthonormal basis), which the rules attain. Where rows have
        at most weight s, each anchor is at least -s times its mean cost, which averages to at most n/(n-1) over
        negatives that come from both views or the anchor's own, and to 2 over the other view's (non-negative: 1).

        Args:
            n: number of samples per batch, >= 2.
            nonnegative: whether the embedding has no negative entries.

        Returns:
            The bound; minus infinity for vectors of any length and for a user's own rule.
        """
        row_sum = self.rule.row_sum(self.num_negatives(n))
        if not self.pairing.normalize or row_sum is None:
            return -math.inf
        if self.pairing.negatives == "cross-view" and not row_sum.is_constant and not nonnegative:
            return -2.0 * row_sum.most  # opposite views: costs to the other view reach 2
        return row_sum.most * self.pairing.least_mean_gap(n, nonnegative=nonnegative)

    def _problem(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None, part: Part | None
    ) -> tuple[EnergyProblem, Tensor, torch.dtype]:
        """Return the problem, its vectors, and the precision of the answer."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=self.pairing.normalize)
        z_VD, dtype = torch.cat([z0, z1]), z0.dtype
        if not self.pairing.normalize:
            # Distances of long vectors that lie close cancel in |a|^2 + |k|^2 - 2<a, k>: so float64, and
            # no common mean.
            z_VD = z_VD.double()
            z_VD = z_VD - z_VD.detach().mean(0)
        own = (0, len(z0)) if part is None else (part.first, part.last)
        # Keys are all vectors also for a part: a rule sees whole rows.
        return EnergyProblem(self.rule, self.pairing, self.streams, len(z0), own), z_VD, dtype


CATALOGUE: Mapping[str, Callable[..., Loss]] = {"alpha-cl": AlphaCL}
