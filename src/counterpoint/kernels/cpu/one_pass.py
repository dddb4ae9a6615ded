"""Weighted totals of plain sums: where each pair's weight is known beforehand, loss and gradient take one pass.

The kept gradient has a second derivative of its own, which saves its being computed anew (``docs/decisions.md``).
"""

# N anchors, M keys, D features

from typing import Any

import torch
from torch import Tensor

from counterpoint.core.numerics import is_transformed
from counterpoint.kernels.contract import NUM_TERMS, PairFunction, PairScores
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.differentiable import GradientTangent, PairProblem, StatisticTangent, as_tuple, filled, reduce
from counterpoint.kernels.select import select


def reduce_total(scores: PairScores, psi: PairFunction, weight: float) -> Tensor:
    r"""Weighted total :math:`g \sum_i r_i` of plain sums over all anchors, rows and columns.

    The gradient is computed along with the value, tile by tile, and scaled in backward. Everything beyond a first
    reverse-mode derivative goes through the functions of ``differentiable``.

    Args:
        scores: the pair scores.
        psi: an elementwise function that is summed (not ``in_log_domain``).
        weight: g, the same for all anchors.

    Returns:
        Scalar tensor.
    """
    assert not psi.in_log_domain
    kernel = select(scores, psi).kernel
    needs_gradient = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in scores.terms.flat())
    # Of all kernels only tiles have such a pass; _Total has no forward mode, which transforms may ask for.
    if kernel is not tiled or not needs_gradient or is_transformed():
        result = reduce(scores, psi, kernel)
        total = result.rows_N.sum()
        return weight * (total if result.columns_M is None else total + result.columns_M.sum())
    problem = PairProblem(scores.mask, scores.is_two_way, psi, tiled)
    return _Total.apply(problem, weight, *scores.terms.flat())  # pyright: ignore[reportReturnType]


class _Total(torch.autograd.Function):
    """g sum_i r_i, with its gradient for each term."""

    @staticmethod
    def forward(ctx: Any, problem: PairProblem, weight: float, *flat: Tensor | None) -> Tensor:
        total, gradient = tiled.total_and_gradient(problem.scores(flat), problem.psi, weight)
        ctx.problem, ctx.weight = problem, weight
        ctx.save_for_backward(*flat, *gradient.flat())
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        return None, None, *_TotalGradient.apply(ctx.problem, ctx.weight, upstream[0], *ctx.saved_tensors)


class _TotalGradient(torch.autograd.Function):
    """The kept gradient times what comes from above."""

    @staticmethod
    def forward(ctx: Any, problem: PairProblem, weight: float, upstream: Tensor, *tensors: Tensor | None) -> Any:
        ctx.problem, ctx.weight = problem, weight
        # The kept gradient itself is not saved again: its derivatives are made of the terms.
        ctx.save_for_backward(upstream, *tensors[:NUM_TERMS])
        return tuple(None if kept is None else upstream * kept for kept in tensors[NUM_TERMS:])

    @staticmethod
    def backward(ctx: Any, *direction: Tensor | None) -> Any:
        upstream, *flat = ctx.saved_tensors
        direction = filled(direction, tuple(flat))
        # Zeros in place of the statistics of plain sums, which are not needed for their own derivatives.
        sides = (flat[0], flat[1] if ctx.problem.is_two_way else None)
        statistic = [side.new_zeros(len(side)) for side in sides if side is not None]
        # Of upstream * G(x, g): G'(x, upstream g) v for the terms, <G(x, g), v> = g sum_i (r'(x) v)_i for upstream.
        weights = [(ctx.weight * upstream).expand_as(zeros) for zeros in statistic]
        for_terms = GradientTangent.apply(ctx.problem, *flat, *statistic, *weights, *direction)
        for_upstream = None
        if ctx.needs_input_grad[2]:
            moved = as_tuple(StatisticTangent.apply(ctx.problem, *flat, *statistic, *direction))
            for_upstream = ctx.weight * torch.cat(moved).sum()
        return None, None, for_upstream, *for_terms, *(None for _ in flat)
