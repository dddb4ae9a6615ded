r"""The sigmoid loss of a small batch, from raw vectors to the value in one autograd operation.

.. math:: L = \frac{1}{n} \sum_{ij} \log(1 + e^{u_{ij}}), \qquad u_{ij} = \pm (t \cos_{ij} + b)

with a minus on the diagonal, where the positives are. As in ``small_batch`` calls cost more than arithmetic there.
Everything beyond a first reverse-mode derivative is left to the caller's general route.
"""

# N samples, H rows of a block, D features

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.numerics import ORDINARY_LENGTHS, is_transformed, take_radial
from counterpoint.core.thread_parts import alone
from counterpoint.kernels.cpu.row_blocks import blocks, each_block, joined, own_rows
from counterpoint.kernels.cpu.small_batch import LARGEST, general_gradient
from counterpoint.kernels.pair_functions import softplus

General = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def sigmoid_loss(z0: Tensor, z1: Tensor, scale: Tensor, bias: Tensor, general: General) -> Tensor | None:
    """The loss, where the shortcut applies.

    Args:
        z0: first view, raw, (n, d) in float32 or float64.
        z1: second view.
        scale: t.
        bias: b.
        general: the same loss for any input, differentiable to any order.

    Returns:
        Scalar, or None if the batch is too large, rows are zero, extreme or not finite, or a transform is at work
        (``torch.func``, forward mode, ``torch.compile``).
    """
    if len(z0) ** 2 > LARGEST or is_transformed() or torch.compiler.is_compiling():
        return None
    with alone():
        length_2N1 = torch.linalg.vector_norm(torch.stack([z0.detach(), z1.detach()]), dim=2, keepdim=True)
        shortest, longest = torch.aminmax(length_2N1)
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    return _Loss.apply(z0, z1, scale, bias, (length_2N1, general))  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z0: Tensor, z1: Tensor, scale: Tensor, bias: Tensor, constants: Any) -> Tensor:
        lengths, ctx.general = constants
        with alone():
            x_ND, y_ND = z0 / lengths[0], z1 / lengths[1]
            scaled_ND, u_NN = scale * x_ND, x_ND.new_empty(len(x_ND), len(x_ND))

        def work(rows: slice) -> Tensor:
            u_HN = torch.addmm(bias, own_rows(scaled_ND, rows), y_ND.t(), out=own_rows(u_NN, rows))
            u_HN.diagonal(rows.start).neg_()
            return softplus(u_HN).sum(1)

        loss_N = joined(each_block(blocks(len(x_ND)), work, u_NN.numel() * x_ND.shape[1]))
        ctx.save_for_backward(z0, z1, scale, bias, x_ND, y_ND, lengths, u_NN)
        return loss_N.sum() / len(z0)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        z0, z1, scale, bias, x_ND, y_ND, lengths, u_NN = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *general_gradient(ctx.general, (z0, z1, scale, bias), upstream[0]), None
        size, weight_NN = upstream[0] / len(z0), torch.empty_like(u_NN)
        factors, rows_of_all = scale * size / lengths, blocks(len(x_ND))

        def of_first(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            weight_HN = torch.sigmoid(own_rows(u_NN, rows), out=own_rows(weight_NN, rows))
            weight_HN.diagonal(rows.start).neg_()
            return *_tangential(weight_HN @ y_ND, own_rows(x_ND, rows), own_rows(factors[0], rows)), weight_HN.sum(1)

        def of_second(rows: slice) -> Tensor:
            along_HD = weight_NN[:, rows].t() @ x_ND
            return _tangential(along_HD, own_rows(y_ND, rows), own_rows(factors[1], rows))[0]

        num_multiplications = u_NN.numel() * x_ND.shape[1]
        found = each_block(rows_of_all, of_first, num_multiplications)
        gradient_0, along_N1, sum_N = (joined(list(parts)) for parts in zip(*found, strict=True))
        gradient_1 = joined(each_block(rows_of_all, of_second, num_multiplications))
        return gradient_0, gradient_1, size * along_N1.sum(), size * sum_N.sum(), None


def _tangential(along_HD: Tensor, unit_HD: Tensor, factor_H1: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient for raw rows from that for unit ones, which it overwrites; and the part along them, left out."""
    along_H1 = take_radial(along_HD, unit_HD)
    return along_HD.mul_(factor_H1), along_H1
