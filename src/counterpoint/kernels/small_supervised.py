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
from counterpoint.kernels.row_blocks import blocks, each_block
from counterpoint.kernels.small_batch import LARGEST, LARGEST_SCALE, general_gradient

LEAST_LOG, LEAST_SHARE = -75.0, 3e-33  # smaller shares count as zero: products with them would be subnormal, hence slow
NOWHERE = -1e4  # added to the least possible score of a vector with itself: its share is zero in float64 too


def supervised_loss(x_MD: Tensor, class_M: Tensor, scale: float, general: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The loss, where the shortcut applies.

    Args:
        x_MD: raw vectors in float32 or float64, all of them anchors.
        class_M: their labels.
        scale: 1 / temperature.
        general: the same loss of any such vectors, differentiable to any order.

    Returns:
        Scalar, or None if the batch is too large, an anchor has fewer than two positives, rows are zero, extreme or not
        finite, or a transform is at work (``torch.func``, forward mode, ``torch.compile``).
    """
    if len(x_MD) ** 2 > LARGEST or is_transformed() or torch.compiler.is_compiling():
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
        length_M1, class_M, scale, ctx.general = constants
        num_vectors, is_bounded = len(x_MD), scale <= LARGEST_SCALE
        with alone():
            z_MD = x_MD / length_M1
            scaled_MD = scale * z_MD
            kept_MM, is_positive_MM = z_MD.new_empty(2, num_vectors, num_vectors)
            sum_M1, num_positives_M1 = z_MD.new_empty(2, num_vectors, 1)
            loss_M = z_MD.new_empty(num_vectors)

        def work(rows: slice) -> None:
            score_HM = torch.mm(scaled_MD[rows], z_MD.t(), out=kept_MM[rows])
            is_positive_HM = torch.eq(class_M[rows, None], class_M, out=is_positive_MM[rows])
            is_positive_HM.diagonal(rows.start).zero_()
            num_H1 = torch.sum(is_positive_HM, 1, keepdim=True, out=num_positives_M1[rows])
            if is_bounded:  # exponentials need no reference, and one serves both readings of a pair
                pull_H = (is_positive_HM * score_HM).sum(1)
                score_HM.exp_().diagonal(rows.start).zero_()
                level_H = torch.sum(score_HM, 1, keepdim=True, out=sum_M1[rows]).log().squeeze(1)
                loss_M[rows] = level_H.addcdiv_(pull_H, num_H1.squeeze(1), value=-1)
            else:
                score_HM.diagonal(rows.start).fill_(NOWHERE - scale)
                log_share_HM = torch.log_softmax(score_HM, 1, out=score_HM)
                loss_M[rows] = (is_positive_HM * log_share_HM).sum(1).div_(-num_H1.squeeze(1))

        each_block(blocks(num_vectors), work, kept_MM.numel() * z_MD.shape[1])
        ctx.scale = scale
        ctx.save_for_backward(x_MD, z_MD, scaled_MD, length_M1, is_positive_MM, num_positives_M1, kept_MM, sum_M1)
        return loss_M.sum() / num_vectors

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        x_MD, z_MD, scaled_MD, length_M1, is_positive_MM, num_positives_M1, kept_MM, sum_M1 = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *general_gradient(ctx.general, (x_MD,), upstream[0]), None
        is_bounded = ctx.scale <= LARGEST_SCALE
        with alone():
            share_MM, factor_M1 = kept_MM, sum_M1.reciprocal()
            pull_M1, size_M1 = num_positives_M1.reciprocal(), upstream[0] / len(x_MD) / length_M1
            gradient_MD = torch.empty_like(z_MD)
        if not is_bounded:
            share_MM = torch.empty_like(kept_MM)

            def exponentials(rows: slice) -> None:
                share_HM = torch.clamp(kept_MM[rows], min=LEAST_LOG, out=share_MM[rows]).exp_()
                F.threshold(share_HM, LEAST_SHARE, 0.0, inplace=True)

            each_block(blocks(len(z_MD)), exponentials, kept_MM.numel())

        def work(rows: slice) -> None:
            if is_bounded:
                weight_HM = torch.add(factor_M1[rows], factor_M1.t()).mul_(share_MM[rows])
            else:
                weight_HM = share_MM[rows] + share_MM[:, rows].t()
            # Both readings of a pair in one product: those of a class have equal numbers of positives.
            weight_HM.addcmul_(is_positive_MM[rows], pull_M1[rows], value=-2)
            along_HD = torch.mm(weight_HM, scaled_MD, out=gradient_MD[rows])
            radial_H1 = (z_MD[rows] * along_HD).sum(1, keepdim=True)
            along_HD.addcmul_(z_MD[rows], radial_H1, value=-1).mul_(size_M1[rows])

        each_block(blocks(len(z_MD)), work, kept_MM.numel() * z_MD.shape[1])
        return gradient_MD, None
