r"""The pair reduction as an autograd operation over any kernel: nothing of size n x m outlives a call.

With x the terms of the scores, r(x) the statistics and G(x, g) the gradient of :math:`\langle g, r(x)\rangle`, four
functions are closed under differentiation up to second order:

=============================  ======================  =======================================
function                       along a direction       pulled back by v
=============================  ======================  =======================================
r(x)                           r'(x) x'                G(x, v)
r'(x) x'                       (not needed twice)      G'(x, v) x' for x, and G(x, v) for x'
G(x, g)                        G'(x, g) x' + G(x, g')  G'(x, g) v for x, and r'(x) v for g
=============================  ======================  =======================================

because the Hessian of :math:`\langle g, r\rangle` is symmetric. Each right-hand side is again one of these functions,
so ``create_graph=True``, ``torch.func`` transforms and forward mode give the derivative of the loss itself, never that
of a held weight. A third derivative raises.
"""

# N anchors, M keys, D features

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from counterpoint.core.numerics import without_autocast
from counterpoint.kernels import dense
from counterpoint.kernels.contract import (
    NUM_TERMS,
    PairFunction,
    PairKernel,
    PairMask,
    PairReduction,
    PairScores,
    PerAnchor,
    ScoreTerms,
)
from counterpoint.kernels.cpu import linear
from counterpoint.kernels.select import select

Flat = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class PairProblem:
    """All of a reduction that is not differentiated."""

    mask: PairMask
    is_two_way: bool
    psi: PairFunction
    kernel: PairKernel
    is_unit: bool = False

    def scores(self, flat: Flat) -> PairScores:
        """The scores made of flat terms."""
        return PairScores(ScoreTerms(*flat), self.mask, self.is_two_way, self.is_unit)  # pyright: ignore[reportArgumentType]


def reduce(scores: PairScores, psi: PairFunction, kernel: PairReduction | None = None) -> PerAnchor:
    r"""Statistic of each anchor, :math:`\sum_j \psi(u_{ij})` or its logarithm, differentiable in every term.

    Args:
        scores: the pair scores.
        psi: the elementwise function.
        kernel: an implementation; None chooses by device, size and dtype (``select.select``).

    Returns:
        One number per anchor (row), and per key where scores are read both ways.
    """
    # Chosen once: backward takes the kernel of forward, whatever `select.use` says by then.
    kernel = select(scores, psi).kernel if kernel is None else kernel
    # Autocast would round the products in the kernel, and the scale (1 / temperature) multiplies their error.
    if torch.is_autocast_enabled(scores.terms.anchors_ND.device.type):
        with without_autocast([scores.terms.anchors_ND.device.type]):
            return reduce(scores, psi, kernel)
    # Without row_own_N (a queue's negated positives, for example) scores of unit vectors are bounded, and kernels
    # take one exponential per pair for both readings.
    row_own_N, column_own_M = scores.terms.row_own_N, scores.terms.column_own_M
    if not psi.in_log_domain or (row_own_N is None and column_own_M is None):
        return _reduce(scores, psi, kernel)
    result = _reduce(replace(scores, terms=replace(scores.terms, row_own_N=None, column_own_M=None)), psi, kernel)
    rows_N, columns_M = result.rows_N, result.columns_M
    if row_own_N is not None:
        rows_N = rows_N + row_own_N
    if columns_M is not None and column_own_M is not None:
        columns_M = columns_M + column_own_M
    return PerAnchor(rows_N, columns_M)


def _reduce(scores: PairScores, psi: PairFunction, kernel: PairReduction) -> PerAnchor:
    if kernel is dense or kernel is linear:  # made of differentiable operations: autograd does the rest
        return kernel.reduce(scores, psi)
    problem = PairProblem(scores.mask, scores.is_two_way, psi, cast(PairKernel, kernel), scores.is_unit)
    return PerAnchor(*_Statistic.apply(problem, *scores.terms.flat()))  # pyright: ignore[reportArgumentType]


class PerSlice(torch.autograd.Function):
    """An operation that ``torch.func.vmap`` runs slice by slice."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Apply the operation to each slice and stack the results."""
        # Kernels know no batch dimension: each slice is a call of its own.
        slices = []
        for index in range(info.batch_size):
            chosen = [
                value if dim is None else value.select(dim, index) for value, dim in zip(inputs, in_dims, strict=True)
            ]
            slices.append(cls.apply(*chosen))
        if isinstance(slices[0], Tensor):
            return torch.stack(slices), 0
        stacked = tuple(None if parts[0] is None else torch.stack(parts) for parts in zip(*slices, strict=True))
        return stacked, tuple(None if part is None else 0 for part in stacked)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.problem, *saved = inputs
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)


class _Statistic(PerSlice):
    @staticmethod
    def forward(problem: PairProblem, *flat: Tensor | None) -> Any:
        return tuple(problem.kernel.reduce(problem.scores(flat), problem.psi).both())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        # The output is saved as well: it is the h of the weights, so that backward need not reduce again.
        _keep_inputs(ctx, (*inputs, *output), output)

    @staticmethod
    def backward(ctx: Any, *weight: Tensor) -> Any:
        return None, *Gradient.apply(ctx.problem, *ctx.saved_tensors, *weight)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        tangent = filled(tangents[1:], ctx.saved_tensors[:NUM_TERMS])  # the first belongs to the problem
        return _StatisticTangent.apply(ctx.problem, *ctx.saved_tensors, *tangent)


class _StatisticTangent(PerSlice):
    """r'(x) x'. The statistic is passed along to be used, not differentiated: x determines it."""

    @staticmethod
    def forward(problem: PairProblem, *inputs: Tensor | None) -> Any:
        flat, statistic, tangent = _split(problem, written_out(inputs))
        scores = problem.scores(flat)
        moved = problem.kernel.reduce_tangent(scores, problem.psi, PerAnchor(*statistic), ScoreTerms(*tangent))
        return tuple(moved.both())

    setup_context = staticmethod(_keep_inputs)

    @staticmethod
    def backward(ctx: Any, *weight: Tensor) -> Any:
        flat, statistic, tangent = _split(ctx.problem, ctx.saved_tensors)
        for_terms = _GradientTangent.apply(ctx.problem, *flat, *statistic, *weight, *tangent)
        for_tangent = Gradient.apply(ctx.problem, *flat, *statistic, *weight)
        return None, *for_terms, *(None for _ in statistic), *for_tangent

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        raise RuntimeError(_NO_FORWARD_TWICE)


class Gradient(PerSlice):
    """G(x, g)."""

    @staticmethod
    def forward(problem: PairProblem, *inputs: Tensor | None) -> Any:
        """Compute it with the problem's kernel."""
        flat, statistic, weight = _split(problem, written_out(inputs))
        scores = problem.scores(flat)
        return problem.kernel.gradient(scores, problem.psi, PerAnchor(*statistic), PerAnchor(*weight)).flat()

    setup_context = staticmethod(_keep_inputs)

    @staticmethod
    def backward(ctx: Any, *direction: Tensor | None) -> Any:
        """Pull back, as the table above says."""
        flat, statistic, weight = _split(ctx.problem, ctx.saved_tensors)
        direction = filled(direction, flat)
        for_terms = _GradientTangent.apply(ctx.problem, *flat, *statistic, *weight, *direction)
        for_weight = _StatisticTangent.apply(ctx.problem, *flat, *statistic, *direction)
        return None, *for_terms, *(None for _ in statistic), *for_weight

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        """Push forward, as the table above says."""
        flat, statistic, weight = _split(ctx.problem, ctx.saved_tensors)
        direction = filled(tangents[1 : 1 + NUM_TERMS], flat)
        moved = _GradientTangent.apply(ctx.problem, *flat, *statistic, *weight, *direction)
        moved_weight = tangents[1 + NUM_TERMS + len(statistic) :]
        # G is linear in g: with g held, G(x, g') is zero.
        if all(w is None for w in moved_weight):
            return moved
        added = Gradient.apply(ctx.problem, *flat, *statistic, *filled(moved_weight, weight))
        return tuple(None if a is None else a + b for a, b in zip(moved, added, strict=True))


class _GradientTangent(PerSlice):
    """G'(x, g) x', the Hessian of <g, r> times a direction."""

    @staticmethod
    def forward(problem: PairProblem, *inputs: Tensor | None) -> Any:
        inputs = written_out(inputs)
        flat, statistic, weight = _split(problem, inputs[:-NUM_TERMS])
        scores, tangent = problem.scores(flat), ScoreTerms(*inputs[-NUM_TERMS:])  # pyright: ignore[reportArgumentType]
        return problem.kernel.gradient_tangent(
            scores, problem.psi, PerAnchor(*statistic), PerAnchor(*weight), tangent
        ).flat()

    setup_context = staticmethod(_keep_inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> Any:
        """Pull back to the direction, in which it is linear and symmetric; anything else needs a third derivative."""
        num_moved = sum(value is not None for value in ctx.saved_tensors[-NUM_TERMS:])  # one function per tensor
        # All but the direction: if backward continues to one of those, it asks for a third derivative.
        if any(_is_wanted(function) for function, _ in ctx.next_functions[:-num_moved]):
            raise RuntimeError(_NO_THIRD)
        point = ctx.saved_tensors[:-NUM_TERMS]
        for_direction = _GradientTangent.apply(ctx.problem, *point, *filled(upstream, point[:NUM_TERMS]))
        return None, *(None for _ in point), *for_direction

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        point = ctx.saved_tensors[:-NUM_TERMS]
        if any(tangent is not None for tangent in tangents[1:-NUM_TERMS]):
            raise RuntimeError(_NO_THIRD)
        return _GradientTangent.apply(ctx.problem, *point, *filled(tangents[-NUM_TERMS:], point[:NUM_TERMS]))


_NO_THIRD = (
    "a third derivative of a pairwise loss needs every pair at once; wrap the call in "
    "counterpoint.kernels.select.use('dense') and keep the batch small"
)

_NO_FORWARD_TWICE = (
    "forward mode twice (torch.func.jacfwd of jacfwd), like a third derivative, needs every pair at once; use "
    "torch.func.hessian, or wrap the call in counterpoint.kernels.select.use('dense') and keep the batch small"
)


def _is_wanted(function: Any) -> bool:
    """Tell whether the running backward pass continues to a node; True if that cannot be known."""
    if function is None:
        return False
    try:
        return torch._C._will_engine_execute_node(function)
    except RuntimeError:  # leaves, under torch.autograd.grad
        return True


def _split(problem: PairProblem, saved: Any) -> tuple[Any, Any, Any]:
    """Terms, statistic, and what follows: a weight or a tangent."""
    middle = NUM_TERMS + 1 + problem.is_two_way
    return tuple(saved[:NUM_TERMS]), tuple(saved[NUM_TERMS:middle]), tuple(saved[middle:])


def written_out(inputs: Flat) -> Flat:
    """Inputs as kernels may write to what they make of them: autograd's symbolic zeros become numbers."""
    # The older vmap behind these options does not call PerSlice.vmap; kernels would get its wrappers.
    if any(value is not None and is_legacy_batchedtensor(value) for value in inputs):
        raise RuntimeError("pair kernels do not take is_grads_batched or vectorize=True; use torch.func instead")
    return tuple(value.clone() if value is not None and value._is_zerotensor() else value for value in inputs)


def filled(direction: Any, like: Flat) -> Flat:
    """Return a direction with zeros in place of autograd's None; None stays if there is no term."""
    return tuple(
        None if value is None else (torch.zeros_like(value) if move is None else move)
        for move, value in zip(direction, like, strict=True)
    )
