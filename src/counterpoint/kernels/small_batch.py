r"""Two views of a small batch against each other, from raw vectors to log-sum-exp in one autograd operation.

.. math:: r_i = \log \sum_{j \ne i, i'} e^{s (\cos_{ij} - \cos_{ii'})}

Below a few hundred samples the time goes into calls, not into arithmetic. Scaling to unit length, scores and softmax
are therefore one operation that keeps its weights (memory n x n) and whose gradient is a single product,
:math:`(w + w^\top) Z`. Everything beyond a first reverse-mode derivative is left to the caller's general route.
"""

# N samples, V = 2N vectors, D features

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.transforms import is_transformed

LARGEST = 512 * 512  # pairs of vectors up to which the matrix stays in a core's cache
# Lengths whose squares neither overflow nor vanish in float32; zero rows need care as well.
ORDINARY_LENGTHS = (1e-15, 1e15)

General = Callable[[Tensor, Tensor], Tensor]


def log_sums(z0: Tensor, z1: Tensor, scale: float, excluded_V2: Tensor, general: General) -> Tensor | None:
    """The statistic of all 2n vectors.

    Args:
        z0: first view, raw, (n, d) in float32 or float64.
        z1: second view.
        scale: s, 1 / temperature.
        excluded_V2: the two vectors of each anchor's own sample.
        general: the same function for any input, differentiable to any order.

    Returns:
        Shape (2n,), or None if the batch is too large, has zero, extreme or non-finite rows, or is being transformed
        (``torch.func``, forward mode): the general route is then the right one.
    """
    if 4 * len(z0) ** 2 > LARGEST or is_transformed():
        return None
    both_VD = torch.cat([z0.detach(), z1.detach()])
    length_V1 = torch.linalg.vector_norm(both_VD, dim=1, keepdim=True)
    shortest, longest = torch.aminmax(length_V1)
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    return _LogSums.apply(z0, z1, both_VD.div_(length_V1), length_V1, (scale, excluded_V2, general))  # pyright: ignore[reportReturnType]


class _LogSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z0: Tensor, z1: Tensor, unit_VD: Tensor, length_V1: Tensor, constants: Any) -> Tensor:
        scale, excluded_V2, ctx.general = constants
        u_VV = torch.mm(unit_VD * scale, unit_VD.mT)
        own_N = u_VV.diagonal(len(z0)).repeat(2)
        softmax_VV = u_VV.scatter_(1, excluded_V2, float("-inf")).softmax(1)
        ctx.scale = scale
        ctx.save_for_backward(z0, z1, unit_VD, length_V1, softmax_VV)
        # One weight of each row tells the sum that all were divided by.
        return u_VV.amax(1).sub_(own_N).sub_(softmax_VV.amax(1).log_())

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        z0, z1, unit_VD, length_V1, softmax_VV = ctx.saved_tensors
        (weight_V,) = upstream
        if torch.is_grad_enabled():
            with torch.enable_grad():
                statistic_V = ctx.general(z0, z1)
            return *_gradient(statistic_V, (z0, z1), weight_V), None, None, None
        n = len(z0)
        weight_VV = softmax_VV * weight_V[:, None]
        weight_VV = weight_VV + weight_VV.mT
        own_N = weight_V[:n] + weight_V[n:]
        weight_VV.diagonal(n).sub_(own_N)
        weight_VV.diagonal(-n).sub_(own_N)
        along_VD = torch.mm(weight_VV, unit_VD)
        radial_V1 = (unit_VD * along_VD).sum(1, keepdim=True)
        gradient_VD = along_VD.addcmul_(unit_VD, radial_V1, value=-1).mul_(ctx.scale / length_V1)
        return gradient_VD[:n], gradient_VD[n:], None, None, None


def _gradient(statistic_V: Tensor, views: tuple[Tensor, Tensor], weight_V: Tensor) -> tuple[Tensor | None, ...]:
    """Gradient for those views that need one, differentiable in turn."""
    wanted = [z for z in views if z.requires_grad]
    found = iter(torch.autograd.grad(statistic_V, wanted, weight_V, create_graph=True))
    return tuple(next(found) if z.requires_grad else None for z in views)
