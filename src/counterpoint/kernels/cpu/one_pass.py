"""Weighted totals of plain sums: where each pair's weight is known beforehand, loss and gradient take one pass."""

# N anchors, M keys, D features

from typing import Any

import torch
from torch import Tensor

from counterpoint.core.numerics import is_transformed
from counterpoint.kernels.contract import NUM_TERMS, PairFunction, PairScores
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.differentiable import Gradient, PairProblem, reduce
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
        flat, kept = ctx.saved_tensors[:NUM_TERMS], ctx.saved_tensors[NUM_TERMS:]
        # Gradients are recorded in backward under create_graph only: the gradient is then computed again, once.
        if not torch.is_grad_enabled():
            return None, None, *(None if part is None else upstream[0] * part for part in kept)
        # Zeros in place of the statistics of plain sums, which are not needed for their own derivatives.
        sides = (flat[0], flat[1] if ctx.problem.is_two_way else None)
        statistic = [side.new_zeros(len(side)) for side in sides if side is not None]
        weights = [(ctx.weight * upstream[0]).expand_as(zeros) for zeros in statistic]
        return None, None, *Gradient.apply(ctx.problem, *flat, *statistic, *weights)
