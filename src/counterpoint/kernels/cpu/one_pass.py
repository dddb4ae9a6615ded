r"""Weighted totals of plain sums: where each pair's weight is known beforehand, loss and gradient take one pass.

The gradient is computed along with the value and scaled in backward. Everything beyond the first derivative goes
through the functions of ``differentiable`` and is as exact as theirs.
"""

# N anchors, M keys, D features

from typing import Any

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairScores, ScoreTerms
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.differentiable import (
    NUM_TERMS,
    Flat,
    GradientTangent,
    PerSlice,
    Problem,
    StatisticTangent,
    filled,
    reduce,
    written_out,
)
from counterpoint.kernels.select import select


def reduce_total(scores: PairScores, psi: PairFunction, weight: float) -> Tensor:
    r"""Weighted total :math:`g \sum_i r_i` of plain sums over all anchors, rows and columns.

    Args:
        scores: the pair scores.
        psi: an elementwise function that is summed (not ``in_log_domain``).
        weight: g, the same for all anchors.

    Returns:
        Scalar tensor.
    """
    assert not psi.in_log_domain
    kernel = None if torch.compiler.is_compiling() else select(scores, psi).kernel
    needs_gradient = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in scores.terms.flat())
    if kernel is None or kernel is not tiled or not needs_gradient:
        result = reduce(scores, psi, kernel)
        total = result.rows_N.sum()
        return weight * (total if result.columns_M is None else total + result.columns_M.sum())
    problem = Problem(scores.mask, scores.is_two_way, psi, kernel)
    return _Total.apply(problem, weight, *scores.terms.flat())[0]  # pyright: ignore[reportOptionalSubscript]


class _Total(PerSlice):
    """g sum_i r_i, followed by its gradient for each term, which is not differentiated through this output."""

    @staticmethod
    def forward(problem: Problem, weight: float, *flat: Tensor | None) -> Any:
        total, gradient = tiled.total_and_gradient(problem.scores(written_out(flat)), problem.psi, weight)
        return total, *gradient.flat()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.problem, ctx.weight, *flat = inputs
        ctx.mark_non_differentiable(*(g for g in output[1:] if g is not None))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*flat, *output[1:])
        ctx.save_for_forward(*flat)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        if upstream[0] is None:
            return None, None, *(None for _ in range(NUM_TERMS))
        return None, None, *_TotalGradient.apply(ctx.problem, ctx.weight, upstream[0], *ctx.saved_tensors)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        flat = tuple(ctx.saved_tensors[:NUM_TERMS])
        moved = _total_tangent(ctx.problem, ctx.weight, flat, filled(tangents[2:], flat))
        return moved, *(None for _ in flat)


class _TotalGradient(PerSlice):
    """The kept gradient times what comes from above."""

    @staticmethod
    def forward(problem: Problem, weight: float, upstream: Tensor, *inputs: Tensor | None) -> Any:
        return tuple(None if kept is None else upstream * kept for kept in inputs[NUM_TERMS:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.problem, ctx.weight, upstream, *tensors = inputs
        ctx.save_for_backward(upstream, *tensors)
        ctx.save_for_forward(upstream, *tensors)

    @staticmethod
    def backward(ctx: Any, *direction: Tensor | None) -> Any:
        upstream, *tensors = ctx.saved_tensors
        flat = tuple(tensors[:NUM_TERMS])
        direction = filled(direction, flat)
        for_terms = _hessian_times(ctx.problem, ctx.weight * upstream, flat, direction)
        for_upstream = _total_tangent(ctx.problem, ctx.weight, flat, direction) if ctx.needs_input_grad[2] else None
        return None, None, for_upstream, *for_terms, *(None for _ in range(NUM_TERMS))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        upstream, *tensors = ctx.saved_tensors
        flat, kept = tuple(tensors[:NUM_TERMS]), tensors[NUM_TERMS:]
        moved = _hessian_times(ctx.problem, ctx.weight * upstream, flat, filled(tangents[3 : 3 + NUM_TERMS], flat))
        if tangents[2] is None:
            return moved
        return tuple(None if m is None else m + tangents[2] * k for m, k in zip(moved, kept, strict=True))


def _hessian_times(problem: Problem, weight: Tensor, flat: Flat, direction: Flat) -> Flat:
    """Hessian of weight * sum_i r_i times a direction."""
    weights = [weight.expand(count) for count in _counts(problem, flat)]
    statistic = [torch.zeros_like(w) for w in weights]  # plain sums are not needed for their own derivatives
    return GradientTangent.apply(problem, *flat, *statistic, *weights, *direction)  # pyright: ignore[reportReturnType]


def _total_tangent(problem: Problem, weight: float, flat: Flat, direction: Flat) -> Tensor:
    """Change of weight * sum_i r_i along a direction."""
    anchors = flat[0]
    assert anchors is not None
    statistic = [anchors.new_zeros(count) for count in _counts(problem, flat)]
    moved: Any = StatisticTangent.apply(problem, *flat, *statistic, *direction)
    return weight * torch.cat(moved if isinstance(moved, tuple) else (moved,)).sum()


def _counts(problem: Problem, flat: Flat) -> list[int]:
    """Number of anchors along the rows, and along the columns where those are anchors."""
    terms = ScoreTerms(*flat)  # pyright: ignore[reportArgumentType]
    counts = [len(terms.anchors_ND)]
    if problem.is_two_way:
        assert terms.keys_MD is not None
        counts.append(len(terms.keys_MD))
    return counts
