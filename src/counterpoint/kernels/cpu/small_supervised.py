r"""SupCon of a small batch, from raw vectors to the value in one autograd operation.

.. math:: L = -\frac{1}{M} \sum_i \frac{1}{|P(i)|} \sum_{j \in P(i)} \log p_{ij}

with p_i the softmax over all vectors but i, and M the number of anchors that have a positive. As in ``small_batch``
calls cost more than arithmetic there. Weights :math:`p_{ij} - 1/|P(i)|` are formed pair by pair before they meet a
vector. An only positive is taken out of the sum, its loss is :math:`\log(1 + e^{r_i})` with r_i the log-sum-exp over
the other vectors less its score: only there can the loss come near zero, where that difference would lose digits.
"""

# M vectors, H rows of a block, D features

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.numerics import take_radial
from counterpoint.core.thread_parts import alone, blocks, each_block, joined, own_rows
from counterpoint.kernels.contract import softplus
from counterpoint.kernels.cpu.small_batch import LARGEST_SCALE, OneOperation, ordinary_lengths

LEAST_LOG, LEAST_SHARE = -75.0, 3e-33  # smaller shares count as zero: products with them would be subnormal, hence slow
NOWHERE = -1e4  # added to the least possible score of a vector with itself: its share is zero in float64 too


def supervised_loss(x_MD: Tensor, class_M: Tensor, scale: float, general: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The loss, where the shortcut applies.

    Args:
        x_MD: raw vectors in float32 or float64, all of them anchors, that are a small batch (``small_batch.is_small``).
        class_M: their labels.
        scale: 1 / temperature.
        general: the same loss of any such vectors, differentiable to any order.

    Returns:
        Scalar, or None if a vector is zero, extreme or not finite: the general route is then the right one.
    """
    length_M1 = ordinary_lengths(x_MD.detach())
    if length_M1 is None:
        return None
    with alone():
        _, class_M, counts_C = torch.unique(class_M, return_inverse=True, return_counts=True)
    return OneOperation.apply(OneSet(scale, class_M, counts_C, length_M1, general), x_MD)  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class OneSet:
    """All vectors against each other.

    Attributes:
        scale: 1 / temperature.
        class_M: classes from 0.
        counts_C: vectors of each.
        length_M1: length of each vector.
        general: see ``small_batch.SmallRoute``.
    """

    scale: float
    class_M: Tensor
    counts_C: Tensor
    length_M1: Tensor
    general: Callable[..., Tensor]

    @cached_property
    def has_few(self) -> bool:
        """Some anchors have one positive, or none."""
        return self.counts_C.amin().item() < 3

    def value(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """See ``small_batch.SmallRoute``."""
        (x_MD,), class_M = inputs, self.class_M
        num_vectors, is_bounded, nowhere = len(x_MD), self.scale <= LARGEST_SCALE, NOWHERE - self.scale
        with alone():
            z_MD = x_MD / self.length_M1
            scaled_MD = self.scale * z_MD
            kept_MM, is_positive_MM = z_MD.new_empty(2, num_vectors, num_vectors)
            num_M = self.counts_C.sub(1).to(z_MD.dtype).index_select(0, class_M)
            # No anchor at all: loss 0, not 0 / 0.
            num_anchors = num_M.count_nonzero().clamp(min=1)

        def work(rows: slice) -> tuple[Tensor, ...]:
            score_HM = torch.mm(own_rows(scaled_MD, rows), z_MD.t(), out=own_rows(kept_MM, rows))
            class_H1, is_positive_HM = own_rows(class_M, rows)[:, None], own_rows(is_positive_MM, rows)
            num_H = own_rows(num_M, rows)
            # 1 or 0 in the dtype of the scores, as sums and products need it; no vector is its own positive.
            torch.eq(class_H1, class_M, out=is_positive_HM).diagonal(rows.start).zero_()
            attraction_H = (is_positive_HM * score_HM).sum(1)
            score_HM.diagonal(rows.start).fill_(nowhere)
            if self.has_few:
                score_HM.masked_fill_((is_positive_HM > 0) & (num_H[:, None] == 1), nowhere)
            if is_bounded:  # exponentials need no reference, and one serves both readings of a pair
                sum_H = score_HM.exp_().sum(1)
                log_sum_H = sum_H.log()
            else:
                sum_H = log_sum_H = score_HM.logsumexp(1)
            # Log-sum-exp less the mean score of the positives; 0 / 0 without any, which _with_few puts right.
            loss_H, pull_H = log_sum_H.addcdiv(attraction_H, num_H, value=-1), num_H.reciprocal()
            if self.has_few:
                loss_H, pull_H, sum_H = _with_few(loss_H, sum_H, attraction_H, num_H, is_bounded=is_bounded)
            if not is_bounded:
                score_HM.sub_(sum_H[:, None])  # log p_ij
            return loss_H, pull_H, sum_H

        found = each_block(blocks(num_vectors), work, kept_MM.numel() * z_MD.shape[1])
        loss_M, pull_M, sum_M = (joined(list(parts)) for parts in zip(*found, strict=True))
        kept = z_MD, scaled_MD, self.length_M1 * num_anchors, is_positive_MM, pull_M, kept_MM, sum_M
        return loss_M.sum() / num_anchors, *kept

    def gradient(self, upstream: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        """See ``small_batch.SmallRoute``."""
        z_MD, scaled_MD, size_M1, is_positive_MM, pull_M, kept_MM, sum_M = kept
        rows_of_all, is_bounded = blocks(len(z_MD)), self.scale <= LARGEST_SCALE
        share_MM, factor_M, pull_M1 = kept_MM, sum_M.reciprocal(), pull_M[:, None]
        size_M1 = upstream / size_M1
        if not is_bounded:
            # Not in place: backward may run again on what was kept.
            share_MM = torch.empty_like(kept_MM)

            def exponentials(rows: slice) -> None:
                # What the clamp lifts, e^-75 = 2.7e-33, falls below the threshold and becomes an exact zero.
                share_HM = torch.clamp(own_rows(kept_MM, rows), min=LEAST_LOG, out=own_rows(share_MM, rows)).exp_()
                F.threshold(share_HM, LEAST_SHARE, 0.0, inplace=True)

            each_block(rows_of_all, exponentials, kept_MM.numel())

        def work(rows: slice) -> Tensor:
            z_HD, share_HM = own_rows(z_MD, rows), own_rows(share_MM, rows)
            if is_bounded:
                # e_ij = e_ji, as scores have no reference per row.
                weight_HM = torch.add(own_rows(factor_M, rows)[:, None], factor_M).mul_(share_HM)
            else:
                weight_HM = share_HM + share_MM[:, rows].t()
            # Both readings of a pair in one product: those of a class have equal numbers of positives.
            pull_H1 = own_rows(pull_M1, rows)
            if self.has_few:
                weight_HM.addcmul_(own_rows(is_positive_MM, rows), pull_H1 + pull_M, value=-1)
            else:
                weight_HM.addcmul_(own_rows(is_positive_MM, rows), pull_H1, value=-2)
            along_HD = torch.mm(weight_HM, scaled_MD)
            take_radial(along_HD, z_HD)
            return along_HD.mul_(own_rows(size_M1, rows))

        return (joined(each_block(rows_of_all, work, kept_MM.numel() * z_MD.shape[1])),)


def _with_few(
    loss_H: Tensor, sum_H: Tensor, attraction_H: Tensor, num_H: Tensor, *, is_bounded: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, weight of a positive and sum of exponentials, put right where an anchor has one positive or none.

    Args:
        loss_H: right where it has several.
        sum_H: over the others but an only positive; its logarithm where scores are not bounded.
        attraction_H: sum of the positives' scores.
        num_H: of positives.
        is_bounded: scores need no reference.
    """
    is_only_H = num_H == 1
    if is_bounded:
        log_sum_H, total_H = sum_H.log(), sum_H + attraction_H.exp()
        # 1 - p of an only positive, as the others' share: no digits are lost where p is near 1.
        left_H = sum_H / total_H
    else:
        log_sum_H, total_H = sum_H, sum_H.logaddexp(attraction_H)
        left_H = (sum_H - total_H).exp()
    # log(1 + e^{r_i})
    loss_H = torch.where(is_only_H, softplus(log_sum_H - attraction_H), loss_H).masked_fill(num_H == 0, 0.0)
    pull_H = torch.where(is_only_H, left_H, num_H.reciprocal()).masked_fill(num_H == 0, 0.0)
    # Divided by an infinite sum, all shares of an anchor without positives are 0.
    return loss_H, pull_H, torch.where(is_only_H, total_H, sum_H).masked_fill(num_H == 0, torch.inf)
