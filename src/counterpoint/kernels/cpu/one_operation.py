"""A loss of a batch by its own value and gradient, both found in one forward pass, as one autograd operation.

Below a few hundred samples the time goes into calls, not into arithmetic. A first reverse-mode derivative is what
forward found; a second one is in closed form where the route has it; all else is left to the loss's general route.

Weighted totals of plain sums (``reduce_total``) take one pass over their tiles: each pair's weight is known beforehand.
"""

# N anchors, M keys, D features

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from counterpoint.core.numerics import ORDINARY_LENGTHS, is_transformed
from counterpoint.core.thread_parts import single_threaded
from counterpoint.kernels.contract import NUM_TERMS, PairFunction, PairScores
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.differentiable import Gradient, PairProblem, reduce
from counterpoint.kernels.select import LARGEST_SMALL, is_free, select

Product = Callable[[Sequence[Tensor]], Sequence[Tensor]]  # of the Hessian with a change of the inputs


class RouteResult(NamedTuple):
    """The value and the gradients that a route returns."""

    value: Tensor
    gradients: Sequence[Tensor] = ()  # one for each input; empty if none is wanted
    hessian: Callable[[], Product] | None = None  # makes what all products share; None: by the general route


class Route(Protocol):
    """A loss in the form that ``one_operation`` takes."""

    @property
    def general(self) -> Callable[..., Tensor]:
        """The same loss for any such inputs, differentiable to any order."""
        ...

    def find(self, *inputs: Tensor, wants_gradient: bool) -> RouteResult | None:
        """Return value and gradient, without recorded derivatives; None if only the general route is exact."""
        ...


def one_operation(route: Route, *inputs: Tensor) -> Tensor:
    """Return the value of the loss, a scalar."""
    wants_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    return _OneOperation.apply(route, wants_gradient, *inputs)  # pyright: ignore[reportReturnType]


class _OneOperation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, route: Route, wants_gradient: bool, *inputs: Tensor) -> Tensor:
        result = route.find(*inputs, wants_gradient=wants_gradient)
        if result is None:
            with torch.set_grad_enabled(wants_gradient):
                leaves = [tensor.detach().requires_grad_(wants_gradient) for tensor in inputs]
                value = route.general(*leaves)
            result = RouteResult(value.detach(), torch.autograd.grad(value, leaves) if wants_gradient else ())
        # The route itself is not kept: it holds vectors that nothing asks for once the gradient is there.
        ctx.general, ctx.hessian, ctx.num_inputs = route.general, result.hessian, len(inputs)
        ctx.save_for_backward(*inputs, *result.gradients)
        return result.value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        # Gradients are recorded in backward under create_graph only.
        if not torch.is_grad_enabled():
            with single_threaded():  # a second thread of torch's would spin into the next call, in the place of ours
                return None, None, *(upstream[0] * gradient for gradient in ctx.saved_tensors[ctx.num_inputs :])
        if ctx.hessian is not None:
            kept = upstream[0], *ctx.saved_tensors
            return None, None, *_KeptGradient.apply(ctx.general, ctx.hessian, ctx.num_inputs, *kept)
        return None, None, *_general_gradient(ctx.general, upstream[0], ctx.saved_tensors[: ctx.num_inputs])[1]


def _general_gradient(
    general: Callable[..., Tensor], upstream: Tensor, inputs: Sequence[Tensor]
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Return the leaves of the gradient by the general route, and the gradient, differentiable in turn."""
    with torch.enable_grad():
        # Nodes of their own stop the inner pass here: one input may be a function of the other.
        leaves = [value.view_as(value) for value in (upstream, *inputs)]
        leaves = [value if value.requires_grad else value.detach().requires_grad_() for value in leaves]
        return leaves, torch.autograd.grad(general(*leaves[1:]), leaves[1:], leaves[0], create_graph=True)


class _KeptGradient(torch.autograd.Function):
    """The gradient, whose own derivative is in closed form; any further one by the general route."""

    @staticmethod
    def forward(
        ctx: Any,
        general: Callable[..., Tensor],
        hessian: Callable[[], Product],
        num_inputs: int,
        upstream: Tensor,
        *saved: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.general, ctx.product, ctx.num_inputs = general, hessian(), num_inputs
        ctx.save_for_backward(upstream, *saved)
        return tuple(upstream * gradient for gradient in saved[num_inputs:])

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> Any:
        # The Hessian's product with the tangents, as it is symmetric, and its slope by upstream.
        upstream, *saved = ctx.saved_tensors
        inputs, saved_gradients = saved[: ctx.num_inputs], saved[ctx.num_inputs :]
        if torch.is_grad_enabled() or any(map(is_legacy_batchedtensor, tangents)):
            leaves, gradients = _general_gradient(ctx.general, upstream, inputs)
            by_upstream, *products = torch.autograd.grad(
                gradients, leaves, tangents, create_graph=torch.is_grad_enabled()
            )
        else:
            products, by_upstream = [turned * upstream for turned in ctx.product(tangents)], None
            if ctx.needs_input_grad[3]:
                by_upstream = sum((g * t).sum() for g, t in zip(saved_gradients, tangents, strict=True))
        return None, None, None, by_upstream, *products, *(None for _ in saved_gradients)


def is_small(num_pairs: int, most: int = LARGEST_SMALL) -> bool:
    """Tell whether a shortcut may be taken: few pairs, no kernel asked for, no transform that it would be blind to."""
    return num_pairs <= most and is_free() and not is_transformed()


def ordinary_lengths(vectors_VD: Tensor) -> Tensor | None:
    """Length of each vector along the last dimension, which stays; None if one is zero, extreme or not finite."""
    # Split over threads, operations as small as these would wait for the other cores.
    with single_threaded():
        length_V1 = torch.linalg.vector_norm(vectors_VD, dim=-1, keepdim=True)
        shortest, longest = torch.aminmax(length_V1)
    # NaN fails every comparison: asked like this, it takes the general route, which names it.
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    return length_V1


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
        flat, gradients = ctx.saved_tensors[:NUM_TERMS], ctx.saved_tensors[NUM_TERMS:]
        # Gradients are recorded in backward under create_graph only: the gradient is then computed again, once.
        if not torch.is_grad_enabled():
            return None, None, *(None if part is None else upstream[0] * part for part in gradients)
        # Zeros in place of the statistics of plain sums, which are not needed for their own derivatives.
        sides = (flat[0], flat[1] if ctx.problem.is_two_way else None)
        statistic = [side.new_zeros(len(side)) for side in sides if side is not None]
        weights = [(ctx.weight * upstream[0]).expand_as(zeros) for zeros in statistic]
        return None, None, *Gradient.apply(ctx.problem, *flat, *statistic, *weights)
