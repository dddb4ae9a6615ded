"""The sigmoid loss of SigLIP: every pair of two kinds of data is judged separately, with a learned scale and bias."""

# N samples, A own anchors, H rows of a block, D features

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.checks import check_positive
from counterpoint.core.numerics import row_dots, take_radial, unit_rows
from counterpoint.core.processor_routines import multiply
from counterpoint.core.thread_parts import blocks, each_block, joined, own_rows, single_threaded
from counterpoint.kernels import dense
from counterpoint.kernels.contract import SOFTPLUS, PairMask, PairScores, ScoreTerms, softplus
from counterpoint.kernels.cpu.one_operation import RouteResult, is_small, one_operation, ordinary_lengths, reduce_total
from counterpoint.kernels.select import SMALL_BATCH, note
from counterpoint.losses.bimodal import LogitScale
from counterpoint.losses.class_level import ClassLevel, Separable, not_covered
from counterpoint.losses.inputs import can_read, check_views, lift, prepare_views
from counterpoint.losses.loss import LossCard, Part
from counterpoint.losses.pairs import ContrastiveLoss, Pairing


class SigmoidPair(ContrastiveLoss):
    r"""Sigmoid loss of SigLIP: binary cross-entropy of "do these two belong together?", with learned scale and bias.

    .. math:: L = \frac{1}{n} \sum_i \log\big(1 + e^{-(t \langle x_i, y_i\rangle + b)}\big)
        + \frac{1}{n} \sum_i \sum_{j \ne i} \log\big(1 + e^{t \langle x_i, y_j\rangle + b}\big)

    Cross-view pairs only: z0 holds x, z1 holds y. A sum over pairs, divided by n: it grows with the batch. Equal to
    open_clip's ``SigLipLoss`` on normalised features with ``logit_scale`` t and ``logit_bias`` b; the learned scale is
    the parameter ``scale.log`` (t is its exponential), the learned bias ``bias``.

    Use it for paired data of two kinds in large batches: each pair is a question of its own, with no sum over the batch
    inside a logarithm.

    Source: zhai2023, section 3.2 and Algorithm 1.

    Args:
        scale: first value of t, > 0.
        bias: first value of b; the paper's -10 makes up for the many negatives.
        learnable: whether t and b are parameters; False holds them fixed.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: scale <= 0, or a scale or bias that is not finite.

    Unchanged by permuting samples, swapping views and rotating all vectors.

    >>> z = torch.eye(2)
    >>> round(float(SigmoidPair(1.0, 0.0)(z, z).detach()), 6) == round(math.log(1 + 1 / math.e) + math.log(2), 6)
    True
    """

    card = LossCard(
        name="SigmoidPair",
        phi="x; the positive adds log(1 + exp(-t <x_i, y_i> - b))",
        psi="log(1 + exp(t <x_i, y_j> + b))",
        alpha="t sigmoid(t <x_i, y_j> + b)",
        negatives="the other view of every other sample",
        normalization="unit vectors unless normalize=False; sum over pairs / n",
        source="zhai2023, section 3.2 and Algorithm 1",
        fused="CPU, CUDA",
    )
    bias: nn.Parameter | float

    def __init__(
        self, scale: float = 10.0, bias: float = -10.0, learnable: bool = True, *, normalize: bool = True
    ) -> None:
        super().__init__()
        check_positive(scale, "scale", hint="zhai2023 starts at 10")
        if not math.isfinite(bias):
            raise ValueError(f"bias must be finite, got {bias}; zhai2023 starts at -10")
        self.scale = LogitScale(scale, is_learned=learnable)
        self.bias = nn.Parameter(torch.tensor(float(bias))) if learnable else float(bias)
        self.pairing, self.normalize = Pairing("cross-view"), normalize

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used."""
        check_views(z0, z1, labels)
        # Small batches: value and gradient in a few calls; all else goes through the pair kernels.
        if part is None and self.normalize and can_read(z0) and is_small(len(z0) ** 2):
            first, second = lift(z0), lift(z1)
            lengths = ordinary_lengths(torch.stack([first.detach(), second.detach()]))
            if lengths is not None:
                inputs = first, second, self.scale(first), self._bias_like(first)
                return one_operation(_AllPairs(self._general, lengths), *inputs)
        z0, z1 = prepare_views(z0, z1, labels, normalize=self.normalize)
        own = slice(0, len(z0)) if part is None else slice(part.first, part.last)
        return self._anchors_loss(z0, z1, own, self.scale(z0), self._bias_like(z0))

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Weight of each negative, :math:`\alpha_{ij} = t\,\sigma(t\langle x_i, y_j\rangle + b)`, dense.

        The loss has the gradient of :math:`\frac{1}{n} \sum_i \big(\sum_j \alpha_{ij} \langle x_i, y_j\rangle -
        \beta_i \langle x_i, y_i\rangle\big)` with alpha and :math:`\beta_i = t\,\sigma(-t\langle x_i, y_i\rangle - b)`
        held fixed.

        The anchors are the first view, each pair being one term of the loss: other rows are zero.
        """
        z0, z1 = prepare_views(z0.detach(), z1.detach(), normalize=self.normalize)
        n = len(z0)
        with torch.no_grad():
            scores = _scores(z0, z1, slice(0, n), self.scale(z0), self._bias_like(z0))
            alpha = z0.new_zeros(2 * n, 2 * n)
            # Own pairs score minus infinity here: their sigmoid is 0.
            alpha[:n, n:] = scores.terms.scale * torch.sigmoid(dense.row_scores(scores))
        return alpha

    def chance(self, n: int) -> float:
        """Loss at the present scale and bias when all vectors look alike; of vectors as they are, when all are zero."""
        t, b = (self.scale.value if self.normalize else 0.0), self._bias
        return _softplus(-t - b) + self.num_negatives(n) * _softplus(t + b)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below at the present scale and bias.

        With c the mean cosine of the positives, :math:`|\sum_i (x_i - y_i)|^2 \le 2 n^2 (1 - c)` and
        :math:`4\langle\sum_i x_i, \sum_j y_j\rangle \ge -|\sum_i (x_i - y_i)|^2` leave the negatives a mean of at least
        :math:`-(n/2 + c (1 - n/2))/(n-1)`. Jensen's inequality puts both means into the two functions; the floor is
        the minimum over c of that convex function. Non-negative vectors: cosines 1 and 0, an orthonormal basis. Dot
        products have no bounds, and neither function goes below 0.
        """
        num_negatives, t, b = self.num_negatives(n), self.scale.value, self._bias
        if not self.normalize:
            return num_negatives * _softplus(b) if nonnegative else 0.0
        if nonnegative:
            return _softplus(-t - b) + num_negatives * _softplus(b)

        def bound(c: float) -> float:
            negative = -(n / 2 + c * (1 - n / 2)) / num_negatives
            return _softplus(-t * c - b) + num_negatives * _softplus(t * negative + b)

        # Each term is a convex function of something affine in c: its least value, by cutting off thirds.
        low, high = -1.0, 1.0
        for _ in range(100):  # the interval ends at 2 (2/3)^100 = 5e-18
            third = (high - low) / 3
            if bound(low + third) < bound(high - third):
                high -= third
            else:
                low += third
        return min(map(bound, (-1.0, low, high, 1.0)))

    def class_level(self) -> ClassLevel:
        """See ``Loss.class_level``; at the present scale and bias, for one representation of both kinds of data.

        log(1 + e^-s) is decreasing, so that positives cost at least its value at cosine 1; log(1 + e^s) is convex, and
        Jensen's inequality puts the product of two class means into it: Lemma 1 of imbalanced2026, pair by pair. Unit
        class means need not be best where negatives may share the anchor's class: shorter ones repel themselves less.
        """
        if not self.normalize:
            raise not_covered(self.card.name, "its vectors have no fixed length (normalize=False)")
        t, b = self.scale.value, self._bias
        # d/dc log(1 + e^-(t c + b)) at c = 1; e^x leaves float64 beyond x = 709.
        slope = -t / (1 + math.exp(min(t + b, 700.0)))
        return Separable(self.card.name, SOFTPLUS, t, b, attract=_softplus(-t - b), attract_slope=slope)

    @property
    def _bias(self) -> float:
        return float(self.bias.detach()) if isinstance(self.bias, Tensor) else self.bias

    def _bias_like(self, z0: Tensor) -> Tensor:
        return self.bias.to(z0.dtype) if isinstance(self.bias, Tensor) else z0.new_full((), self.bias)

    def _general(self, z0: Tensor, z1: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """The loss of views that are known to be good, by the general route."""
        return self._anchors_loss(unit_rows(z0), unit_rows(z1), slice(0, len(z0)), scale, bias)

    def _anchors_loss(self, z0: Tensor, z1: Tensor, own: slice, scale: Tensor, bias: Tensor) -> Tensor:
        """The loss of prepared views, for some of its anchors."""
        # Algorithm 1: label +1 for own pairs, -1 for all others; the sum over pairs is divided by n.
        positive_A = scale * row_dots(z0[own], z1[own]) + bias
        scores = _scores(z0, z1, own, scale, bias)
        return -F.logsigmoid(positive_A).mean() + reduce_total(scores, SOFTPLUS, 1.0 / len(positive_A))


def _scores(z0: Tensor, z1: Tensor, own: slice, scale: Tensor, bias: Tensor) -> PairScores:
    """First-view anchors against second-view keys, without the positives."""
    own_A1 = torch.arange(len(z0), device=z0.device)[own, None]
    return PairScores(ScoreTerms(z0[own], z1, scale, bias.expand(len(own_A1))), PairMask(own_A1))


@dataclass(frozen=True)
class _AllPairs:
    r"""The loss of a small batch in one operation; see ``one_operation.Route``.

    Its logits :math:`u_{ij} = \pm (t \cos_{ij} + b)` have a minus on the diagonal, where the positives are.
    """

    general: Callable[..., Tensor]
    lengths: Tensor  # (2, n, 1)

    def find(self, *inputs: Tensor, wants_gradient: bool) -> RouteResult:
        z0, z1, scale, bias = inputs
        note(SMALL_BATCH)
        with single_threaded():
            x_ND, y_ND = z0 / self.lengths[0], z1 / self.lengths[1]
            scaled_ND, weight_NN = scale * x_ND, x_ND.new_empty(len(x_ND), len(x_ND))
        # The way back through t z / |z|; the part along z is taken out by ``_tangential``.
        factors, rows_of_all = scale / (len(x_ND) * self.lengths), blocks(len(x_ND))

        def of_first(rows: slice) -> tuple[Tensor, ...]:
            u_HN = torch.addmm(bias, own_rows(scaled_ND, rows), y_ND.t(), out=own_rows(weight_NN, rows))
            # The own pair of row h of the block is in column rows.start + h.
            u_HN.diagonal(rows.start).neg_()
            loss_H = softplus(u_HN).sum(1)
            if not wants_gradient:
                return (loss_H,)
            # softplus' = sigmoid; the minus that the diagonal's logits carry comes back as a factor.
            weight_HN = u_HN.sigmoid_()
            weight_HN.diagonal(rows.start).neg_()
            along_HD = multiply(weight_HN, y_ND)
            return (
                loss_H,
                *_tangential(along_HD, own_rows(x_ND, rows), own_rows(factors[0], rows)),
                weight_HN.sum(1),
            )

        def of_second(rows: slice) -> Tensor:
            along_HD = multiply(weight_NN[:, rows].t(), x_ND)
            return _tangential(along_HD, own_rows(y_ND, rows), own_rows(factors[1], rows))[0]

        num_products = weight_NN.numel() * x_ND.shape[1]
        parts = zip(*each_block(rows_of_all, of_first, num_products), strict=True)
        loss_N, *of_gradient = (joined(list(part)) for part in parts)
        value = loss_N.sum() / len(z0)
        if not wants_gradient:
            return RouteResult(value)
        gradient_0, along_N1, sum_N = of_gradient
        # After all rows: a column takes its weights from every block of them.
        gradient_1 = joined(each_block(rows_of_all, of_second, num_products))
        # dL/dt sums w_ij <x_i, y_j>: per row the part along x_i, which was taken out of the gradient. dL/db sums w_ij.
        return RouteResult(value, (gradient_0, gradient_1, along_N1.sum() / len(z0), sum_N.sum() / len(z0)))


def _tangential(along_HD: Tensor, unit_HD: Tensor, factor_H1: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient for raw rows from that for unit ones, which it overwrites; and the part along them, left out."""
    along_H1 = take_radial(along_HD, unit_HD)
    return along_HD.mul_(factor_H1), along_H1


def _softplus(s: float) -> float:
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


CATALOGUE: Mapping[str, type[SigmoidPair]] = {"sigmoid": SigmoidPair}
