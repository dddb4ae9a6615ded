r"""The sigmoid loss of a small batch, from raw vectors to the value in one autograd operation.

.. math:: L = \frac{1}{n} \sum_{ij} \log(1 + e^{u_{ij}}), \qquad u_{ij} = \pm (t \cos_{ij} + b)

with a minus on the diagonal, where the positives are. As in ``small_batch`` calls cost more than arithmetic there.
Everything beyond a first reverse-mode derivative is left to the caller's general route.
"""

# N samples, D features

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.numerics import ORDINARY_LENGTHS
from counterpoint.core.transforms import is_transformed
from counterpoint.kernels.pair_functions import softplus
from counterpoint.kernels.small_batch import LARGEST, general_gradient

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
    length_2N1 = torch.linalg.vector_norm(torch.stack([z0.detach(), z1.detach()]), dim=2, keepdim=True)
    shortest, longest = torch.aminmax(length_2N1)
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    return _Loss.apply(z0, z1, scale, bias, (length_2N1, general))  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z0: Tensor, z1: Tensor, scale: Tensor, bias: Tensor, constants: Any) -> Tensor:
        lengths, ctx.general = constants
        x_ND, y_ND = z0 / lengths[0], z1 / lengths[1]
        u_NN = torch.addmm(bias, scale * x_ND, y_ND.t())
        u_NN.diagonal().neg_()
        ctx.save_for_backward(z0, z1, scale, bias, x_ND, y_ND, lengths, u_NN)
        return softplus(u_NN).sum() / len(z0)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        z0, z1, scale, bias, x_ND, y_ND, lengths, u_NN = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *general_gradient(ctx.general, (z0, z1, scale, bias), upstream[0]), None
        weight_NN = torch.sigmoid(u_NN)
        weight_NN.diagonal().neg_()
        size = upstream[0] / len(z0)
        for_x_ND, for_y_ND = weight_NN @ y_ND, weight_NN.t() @ x_ND
        along_N1 = (x_ND * for_x_ND).sum(1, keepdim=True)
        gradient_0 = for_x_ND.addcmul_(x_ND, along_N1, value=-1).mul_(scale * size / lengths[0])
        radial_N1 = (y_ND * for_y_ND).sum(1, keepdim=True)
        gradient_1 = for_y_ND.addcmul_(y_ND, radial_N1, value=-1).mul_(scale * size / lengths[1])
        return gradient_0, gradient_1, size * along_N1.sum(), size * weight_NN.sum(), None
