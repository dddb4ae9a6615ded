r"""Two views of a small batch against each other, from raw vectors to the loss in one autograd operation.

.. math:: L = g \sum_{i=1}^{2n} \phi(e^{r_i}), \qquad r_i = m + \log \sum_{j \ne i, i'} e^{s (\cos_{ij} - \cos_{ii'})}

Below a few hundred samples the time goes into calls, not into arithmetic. Scaling to unit length, scores, sums and phi
are therefore one operation that keeps its exponentials (memory n x n) and whose gradient is a single product,
:math:`(w + w^\top) Z`. Up to ``LARGEST_SCALE`` exponentials need no reference; beyond, each row is taken relative to
its largest score. Everything beyond a first reverse-mode derivative is left to the caller's general route.
"""

# N samples, V = 2N vectors, H rows of a block, D features

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.numerics import ORDINARY_LENGTHS, is_transformed, take_radial
from counterpoint.core.thread_parts import alone
from counterpoint.kernels.cpu.row_blocks import blocks, each_block, joined, own_rows

LARGEST = 1024 * 1024  # pairs of vectors; 4 MiB in float32, which a cache holds
LARGEST_SCALE = 40.0  # exp(s) and exp(-s), and sums of 1024 of them, are ordinary numbers in float32
# Relative to a row's largest score, and to the largest weight: what adds nothing to a sum, but would make subnormal
# numbers, with which processors are slow.
LEAST_SCORE, LEAST_WEIGHT = -40.0, 1e-19

Elementwise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SmallLoss:
    """What the loss does with its scores.

    Attributes:
        scale: s, 1 / temperature.
        margin: m.
        phi_of_log: phi as a function of the logarithm of its argument.
        slope_of_log: its derivative with respect to that logarithm.
        general: the same loss (two views to a scalar) for any input, differentiable to any order.
    """

    scale: float
    margin: float
    phi_of_log: Elementwise
    slope_of_log: Elementwise
    general: Callable[[Tensor, Tensor], Tensor]


def weighted_loss(z0: Tensor, z1: Tensor, loss: SmallLoss, weight: float, excluded_V2: Tensor) -> Tensor | None:
    """The loss, where the shortcut applies.

    Args:
        z0: first view, raw, (n, d) in float32 or float64.
        z1: second view.
        loss: what is computed.
        weight: g, 1 / 2n for a mean.
        excluded_V2: the two vectors of each anchor's own sample.

    Returns:
        Scalar, or None if the batch is too large, rows are zero, extreme or not finite, or a transform is at work
        (``torch.func``, forward mode): the general route is then the right one.
    """
    if 4 * len(z0) ** 2 > LARGEST or is_transformed():
        return None
    with alone():
        both_VD = torch.cat([z0.detach(), z1.detach()])
        length_V1 = torch.linalg.vector_norm(both_VD, dim=1, keepdim=True)
        shortest, longest = torch.aminmax(length_V1)
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    return _Loss.apply(z0, z1, both_VD, length_V1, (loss, weight, excluded_V2))  # pyright: ignore[reportReturnType]


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z0: Tensor, z1: Tensor, both_VD: Tensor, length_V1: Tensor, constants: Any) -> Tensor:
        loss, weight, excluded_V2 = ctx.constants = constants
        num_vectors, is_bounded = both_VD.shape[0], abs(loss.scale) <= LARGEST_SCALE
        with alone():
            unit_VD = both_VD.div_(length_V1)
            scaled_VD = unit_VD * loss.scale
            exp_VV = unit_VD.new_empty(num_vectors, num_vectors)

        def work(rows: slice) -> tuple[Tensor, Tensor]:
            u_HV = torch.mm(own_rows(scaled_VD, rows), unit_VD.t(), out=own_rows(exp_VV, rows))
            own_H, excluded_H2 = _of_partners(u_HV, rows), own_rows(excluded_V2, rows)
            if is_bounded:
                u_HV.exp_().scatter_(1, excluded_H2, 0.0)
            else:
                top_H = u_HV.scatter_(1, excluded_H2, -torch.inf).amax(1)
                own_H -= top_H
                u_HV.sub_(top_H[:, None]).clamp_(min=LEAST_SCORE).exp_().scatter_(1, excluded_H2, 0.0)
            sum_H = u_HV.sum(1)
            statistic_H = torch.log(sum_H).sub_(own_H)
            if loss.margin:
                statistic_H += loss.margin
            return sum_H, statistic_H

        found = each_block(blocks(num_vectors, 2), work, exp_VV.numel() * unit_VD.shape[1])
        sum_V, statistic_V = (joined(list(parts)) for parts in zip(*found, strict=True))
        ctx.save_for_backward(z0, z1, unit_VD, scaled_VD, length_V1, exp_VV, sum_V, statistic_V)
        return loss.phi_of_log(statistic_V).sum().mul_(weight)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        z0, z1, unit_VD, scaled_VD, length_V1, exp_VV, sum_V, statistic_V = ctx.saved_tensors
        loss, weight, _ = ctx.constants
        if torch.is_grad_enabled():
            return *general_gradient(loss.general, (z0, z1), upstream[0]), None, None, None
        n, is_bounded = z0.shape[0], abs(loss.scale) <= LARGEST_SCALE
        weight_V, size = loss.slope_of_log(statistic_V), upstream[0] * weight
        if is_bounded:
            weight_V, size = weight_V * size, None
        else:
            weight_V, size = _of_largest(weight_V, size)
        factor_V, pull_N = weight_V / sum_V, weight_V.view(2, n).sum(0)

        def work(rows: slice) -> Tensor:
            exp_HV, unit_HD = own_rows(exp_VV, rows), own_rows(unit_VD, rows)
            factor_H1 = own_rows(factor_V, rows)[:, None]
            if is_bounded:
                weight_HV = torch.add(factor_H1, factor_V).mul_(exp_HV)
            else:
                weight_HV = (exp_VV[:, rows].t() * factor_V).addcmul_(exp_HV, factor_H1)
            _subtract_at_partners(weight_HV, pull_N, rows)
            along_HD = torch.mm(weight_HV, scaled_VD)
            take_radial(along_HD, unit_HD)
            along_HD.div_(own_rows(length_V1, rows))
            return along_HD if size is None else along_HD.mul_(size)

        gradient_VD = joined(each_block(blocks(unit_VD.shape[0], 2), work, exp_VV.numel() * unit_VD.shape[1]))
        return gradient_VD[:n], gradient_VD[n:], None, None, None


def _of_partners(u_HV: Tensor, rows: slice) -> Tensor:
    """Each row's value at the other view of its sample, a copy; the rows are all, or lie in one view."""
    num_vectors = u_HV.shape[1]
    if u_HV.shape[0] == num_vectors:
        return u_HV.diagonal(num_vectors // 2).repeat(2)
    return u_HV.diagonal((rows.start + num_vectors // 2) % num_vectors).clone()


def _subtract_at_partners(weight_HV: Tensor, pull_N: Tensor, rows: slice) -> None:
    """Subtract each sample's number there, in place."""
    n, num_vectors = pull_N.shape[0], weight_HV.shape[1]
    if weight_HV.shape[0] == num_vectors:
        # Their places, (i, i') and (i', i), lie on two diagonals: one strided view shows both.
        weight_HV.as_strided((2, n), (2 * n * n - n, 2 * n + 1), n).sub_(pull_N)
    else:
        first = rows.start % n
        weight_HV.diagonal((rows.start + n) % num_vectors).sub_(pull_N[first : first + len(weight_HV)])


def _of_largest(weight_V: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Weights relative to the largest, without those that are nothing beside it, and the size of the largest."""
    largest = weight_V.abs().amax()
    largest = torch.where(largest > 0, largest, 1.0)
    weight_V = weight_V / largest
    return torch.where(weight_V.abs() < LEAST_WEIGHT, 0.0, weight_V), size * largest


def general_gradient(
    general: Callable[..., Tensor], inputs: tuple[Tensor, ...], upstream: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradient for those inputs that need one, differentiable in turn."""
    # Nodes of their own stop the inner pass here: one view may be a function of the other.
    inputs = tuple(value.view_as(value) for value in inputs)
    wanted = [value for value in inputs if value.requires_grad]
    found = iter(torch.autograd.grad(general(*inputs), wanted, upstream, create_graph=True))
    return tuple(next(found) if value.requires_grad else None for value in inputs)
