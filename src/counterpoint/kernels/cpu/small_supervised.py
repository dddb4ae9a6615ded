r"""SupCon of a small batch, from raw vectors to the value in one autograd operation.

.. math:: L = -\frac{1}{M} \sum_i \frac{1}{|P(i)|} \sum_{j \in P(i)} \log p_{ij}

with p_i the softmax over all vectors but i, and M the number of anchors that have a positive. As in ``small_batch``
calls cost more than arithmetic there. Weights :math:`p_{ij} - 1/|P(i)|` are formed pair by pair before they meet a
vector. An only positive is taken out of the sum, its loss is :math:`\log(1 + e^{r_i})` with r_i the log-sum-exp over
the other vectors less its score: only there can the loss come near zero, where that difference would lose digits.
"""

# M vectors, H rows of a block, D features

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.numerics import ORDINARY_LENGTHS, is_transformed, take_radial
from counterpoint.core.thread_parts import alone
from counterpoint.kernels.cpu.row_blocks import blocks, each_block, joined, own_rows
from counterpoint.kernels.cpu.small_batch import LARGEST_SCALE, general_gradient

LEAST_LOG, LEAST_SHARE = -75.0, 3e-33  # smaller shares count as zero: products with them would be subnormal, hence slow
NOWHERE = -1e4  # added to the least possible score of a vector with itself: its share is zero in float64 too


def supervised_loss(x_MD: Tensor, class_M: Tensor, scale: float, general: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The loss, where the shortcut applies.

    Args:
        x_MD: raw vectors in float32 or float64, all of them anchors; at most as many as ``small_batch.LARGEST`` allows.
        class_M: their labels.
        scale: 1 / temperature.
        general: the same loss of any such vectors, differentiable to any order.

    Returns:
        Scalar, or None if rows are zero, extreme or not finite, or a transform is at work (``torch.func``, forward
        mode, ``torch.compile``).
    """
    if is_transformed() or torch.compiler.is_compiling():
        return None
    with alone():
        _, class_M, counts_C = torch.unique(class_M, return_inverse=True, return_counts=True)
        length_M1 = torch.linalg.vector_norm(x_MD.detach(), dim=1, keepdim=True)
        shortest, longest = torch.aminmax(length_M1)
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    return _Loss.apply(x_MD, (length_M1, class_M, counts_C, scale, general))  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, constants: Any) -> Tensor:
        length_M1, class_M, counts_C, ctx.scale, ctx.general = constants
        num_vectors, is_bounded, nowhere = len(x_MD), ctx.scale <= LARGEST_SCALE, NOWHERE - ctx.scale
        ctx.has_few = counts_C.amin().item() < 3
        with alone():
            z_MD = x_MD / length_M1
            scaled_MD = ctx.scale * z_MD
            kept_MM, is_positive_MM = z_MD.new_empty(2, num_vectors, num_vectors)
            num_M = counts_C.sub(1).to(z_MD.dtype).index_select(0, class_M)
            num_anchors = num_M.count_nonzero().clamp(min=1)

        def work(rows: slice) -> tuple[Tensor, ...]:
            score_HM = torch.mm(own_rows(scaled_MD, rows), z_MD.t(), out=own_rows(kept_MM, rows))
            class_H1, is_positive_HM = own_rows(class_M, rows)[:, None], own_rows(is_positive_MM, rows)
            num_H = own_rows(num_M, rows)
            torch.eq(class_H1, class_M, out=is_positive_HM).diagonal(rows.start).zero_()
            attraction_H = (is_positive_HM * score_HM).sum(1)
            score_HM.diagonal(rows.start).fill_(nowhere)
            if ctx.has_few:
                score_HM.masked_fill_((is_positive_HM > 0) & (num_H[:, None] == 1), nowhere)
            if is_bounded:  # exponentials need no reference, and one serves both readings of a pair
                sum_H = score_HM.exp_().sum(1)
                log_sum_H = sum_H.log()
            else:
                sum_H = log_sum_H = score_HM.logsumexp(1)
            loss_H, pull_H = log_sum_H.addcdiv(attraction_H, num_H, value=-1), num_H.reciprocal()
            if ctx.has_few:
                loss_H, pull_H, sum_H = _with_few(loss_H, sum_H, attraction_H, num_H, is_bounded=is_bounded)
            if not is_bounded:
                score_HM.sub_(sum_H[:, None])
            return loss_H, pull_H, sum_H

        found = each_block(blocks(num_vectors), work, kept_MM.numel() * z_MD.shape[1])
        loss_M, pull_M, sum_M = (joined(list(parts)) for parts in zip(*found, strict=True))
        ctx.save_for_backward(x_MD, z_MD, scaled_MD, length_M1 * num_anchors, is_positive_MM, pull_M, kept_MM, sum_M)
        return loss_M.sum() / num_anchors

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        x_MD, z_MD, scaled_MD, size_M1, is_positive_MM, pull_M, kept_MM, sum_M = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *general_gradient(ctx.general, (x_MD,), upstream[0]), None
        rows_of_all, is_bounded = blocks(len(z_MD)), ctx.scale <= LARGEST_SCALE
        share_MM, factor_M, pull_M1 = kept_MM, sum_M.reciprocal(), pull_M[:, None]
        size_M1 = upstream[0] / size_M1
        if not is_bounded:
            share_MM = torch.empty_like(kept_MM)

            def exponentials(rows: slice) -> None:
                share_HM = torch.clamp(own_rows(kept_MM, rows), min=LEAST_LOG, out=own_rows(share_MM, rows)).exp_()
                F.threshold(share_HM, LEAST_SHARE, 0.0, inplace=True)

            each_block(rows_of_all, exponentials, kept_MM.numel())

        def work(rows: slice) -> Tensor:
            z_HD, share_HM = own_rows(z_MD, rows), own_rows(share_MM, rows)
            if is_bounded:
                weight_HM = torch.add(own_rows(factor_M, rows)[:, None], factor_M).mul_(share_HM)
            else:
                weight_HM = share_HM + share_MM[:, rows].t()
            # Both readings of a pair in one product: those of a class have equal numbers of positives.
            pull_H1 = own_rows(pull_M1, rows)
            if ctx.has_few:
                weight_HM.addcmul_(own_rows(is_positive_MM, rows), pull_H1 + pull_M, value=-1)
            else:
                weight_HM.addcmul_(own_rows(is_positive_MM, rows), pull_H1, value=-2)
            along_HD = torch.mm(weight_HM, scaled_MD)
            take_radial(along_HD, z_HD)
            return along_HD.mul_(own_rows(size_M1, rows))

        return joined(each_block(rows_of_all, work, kept_MM.numel() * z_MD.shape[1])), None


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
        left_H = sum_H / total_H
    else:
        log_sum_H, total_H = sum_H, sum_H.logaddexp(attraction_H)
        left_H = (sum_H - total_H).exp()
    loss_H = torch.where(is_only_H, F.softplus(log_sum_H - attraction_H), loss_H).masked_fill(num_H == 0, 0.0)
    pull_H = torch.where(is_only_H, left_H, num_H.reciprocal()).masked_fill(num_H == 0, 0.0)
    return loss_H, pull_H, torch.where(is_only_H, total_H, sum_H).masked_fill(num_H == 0, torch.inf)
