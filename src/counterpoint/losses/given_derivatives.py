"""Derivatives that are given, not found: a user's psi with its slope, and a first derivative that has no next one."""

# Any shape; everything is elementwise

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from counterpoint.kernels.contract import Elementwise, PairFunction


def with_given_derivatives(psi: PairFunction) -> PairFunction:
    """The same psi, whose value has the given slope and whose slope has the given curvature under autograd.

    Kernels that hold all pairs differentiate ``value``; the others call ``slope`` and ``curvature``.

    >>> from counterpoint.kernels.contract import HINGE
    >>> u = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> torch.autograd.grad(with_given_derivatives(HINGE).value(u).sum(), u)[0]
    tensor([0., 1.])
    """
    # The slope is wrapped first: differentiating the value twice then ends in the given curvature.
    slope = partial(_given, psi.slope, psi.curvature)
    return replace(psi, value=partial(_given, psi.value, slope), slope=slope)


def _given(function: Elementwise, derivative: Elementwise, u: Tensor) -> Tensor:
    """Value of a function whose derivative is given."""
    return _WithDerivative.apply(u, function, derivative)  # pyright: ignore[reportReturnType]


class _WithDerivative(torch.autograd.Function):
    """f(u) with f' given as a function of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, function: Any, derivative: Any) -> Tensor:
        return function(u.clone())  # a function that works in place must not reach the scores

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        u, _, ctx.derivative = inputs
        ctx.save_for_backward(u)
        ctx.save_for_forward(u)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (u,) = ctx.saved_tensors
        return upstream[0] * ctx.derivative(u), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return tangents[0] * ctx.derivative(u)


def first_order(derivative: Tensor, at: Tensor, *, refusal: str) -> Tensor:
    """A derivative tied to what it was taken at, so that differentiating it once more raises.

    With weights held fixed the derivative of a gradient is the Hessian of no loss, and silently wrong.

    Args:
        derivative: the first derivative, returned unchanged.
        at: a tensor that depends on all that must not be differentiated again.
        refusal: what the error says.

    Raises:
        RuntimeError: with the refusal, when a derivative of the result is asked for, in either mode.

    >>> x = torch.ones(2, requires_grad=True)
    >>> first_order(3 * x.detach(), x, refusal="no second derivative").sum().backward()
    Traceback (most recent call last):
    RuntimeError: no second derivative
    """
    return _FirstOrder.apply(derivative, at, refusal)  # pyright: ignore[reportReturnType]


class _FirstOrder(torch.autograd.Function):
    """The identity, without derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derivative: Tensor, at: Tensor, refusal: str) -> Tensor:
        return derivative.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        # ``at`` is kept nowhere: being an input is enough to tie the result to it.
        ctx.refusal = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(ctx.refusal)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(ctx.refusal)
