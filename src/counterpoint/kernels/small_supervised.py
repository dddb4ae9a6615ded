r"""SupCon of a small batch, from raw vectors to the value in one autograd operation.

.. math:: L = -\frac{1}{M} \sum_i \frac{1}{|P(i)|} \sum_{j \in P(i)} \log p_{ij}

with p_i the softmax over all vectors but i. As in ``small_batch`` calls cost more than arithmetic there. Weights
:math:`p_{ij} - 1/|P(i)|` are formed pair by pair before they meet a vector. Batches in which an anchor has one positive
or none are left to the general route: only there can the loss come near zero, where that difference would lose digits.
"""

# M vectors, H rows of a block, D features

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.numerics import ORDINARY_LENGTHS
from counterpoint.core.thread_parts import alone
from counterpoint.core.transforms import is_transformed
from counterpoint.kernels.row_blocks import blocks, each_block, joined, own_rows
from counterpoint.kernels.small_batch import LARGEST_SCALE, general_gradient

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
        Scalar, or None if an anchor has fewer than two positives, rows are zero, extreme or not
        finite, or a transform is at work (``torch.func``, forward mode, ``torch.compile``).
    """
    if is_transformed() or torch.compiler.is_compiling():
        return None
    _, counts_C = torch.unique(class_M, return_counts=True)
    if counts_C.amin().item() < 3:
        return None
    with alone():
        length_M1 = torch.linalg.vector_norm(x_MD.detach(), dim=1, keepdim=True)
        shortest, longest = torch.aminmax(length_M1)
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    return _Loss.apply(x_MD, (length_M1, class_M, scale, general))  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, constants: Any) -> Tensor:
        length_M1, class_M, ctx.scale, ctx.general = constants
        num_vectors, is_bounded = len(x_MD), ctx.scale <= LARGEST_SCALE
        with alone():
            z_MD = x_MD / length_M1
            scaled_MD = ctx.scale * z_MD
            kept_MM, is_positive_MM = z_MD.new_empty(2, num_vectors, num_vectors)

        def work(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            score_HM = torch.mm(own_rows(scaled_MD, rows), z_MD.t(), out=own_rows(kept_MM, rows))
            class_H1, is_positive_HM = own_rows(class_M, rows)[:, None], own_rows(is_positive_MM, rows)
            torch.eq(class_H1, class_M, out=is_positive_HM).diagonal(rows.start).zero_()
            num_H = is_positive_HM.sum(1)
            if is_bounded:  # exponentials need no reference, and one serves both readings of a pair
                pull_H = (is_positive_HM * score_HM).sum(1)
                score_HM.exp_().diagonal(rows.start).zero_()
                sum_H = score_HM.sum(1)
                return sum_H.log().addcdiv_(pull_H, num_H, value=-1), num_H, sum_H
            score_HM.diagonal(rows.start).fill_(NOWHERE - ctx.scale)
            log_share_HM = torch.log_softmax(score_HM, 1, out=score_HM)
            return (is_positive_HM * log_share_HM).sum(1).div_(-num_H), num_H, num_H

        found = each_block(blocks(num_vectors), work, kept_MM.numel() * z_MD.shape[1])
        loss_M, num_M, sum_M = (joined(list(parts)) for parts in zip(*found, strict=True))
        ctx.save_for_backward(x_MD, z_MD, scaled_MD, length_M1, is_positive_MM, num_M, kept_MM, sum_M)
        return loss_M.sum() / num_vectors

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        x_MD, z_MD, scaled_MD, length_M1, is_positive_MM, num_M, kept_MM, sum_M = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *general_gradient(ctx.general, (x_MD,), upstream[0]), None
        rows_of_all, is_bounded = blocks(len(z_MD)), ctx.scale <= LARGEST_SCALE
        share_MM, factor_M, pull_M1 = kept_MM, sum_M.reciprocal(), num_M.reciprocal()[:, None]
        size_M1 = upstream[0] / len(x_MD) / length_M1
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
            weight_HM.addcmul_(own_rows(is_positive_MM, rows), own_rows(pull_M1, rows), value=-2)
            along_HD = torch.mm(weight_HM, scaled_MD)
            radial_H1 = (z_HD * along_HD).sum(1, keepdim=True)
            return along_HD.addcmul_(z_HD, radial_H1, value=-1).mul_(own_rows(size_M1, rows))

        return joined(each_block(rows_of_all, work, kept_MM.numel() * z_MD.shape[1])), None
