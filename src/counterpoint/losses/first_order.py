"""First derivatives that nobody may differentiate: what a loss with held weights gives in place of a Hessian."""

from typing import Any

import torch
from torch import Tensor


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
        ctx.refusal = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        raise RuntimeError(ctx.refusal)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(ctx.refusal)
