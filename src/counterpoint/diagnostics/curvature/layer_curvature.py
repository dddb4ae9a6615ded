r"""Second derivatives of convolutions in few operations, put under an encoder for a while.

A Hessian-vector product differentiates the backward of each layer once more. Of a convolution torch takes the slope by
the weights as a convolution with a kernel of the size of the map. Here it is a closed form on the kernels that training
uses. Without it a product of a kept graph takes 1.35 times as long in float64 (resnet9-narrow, 32 pairs of 32 x 32
pictures, one thread, pair by pair), above the 1.3 at which a closed form goes; one of normalisations would save 7 %.

A convolution y = w * x, with cotangent g of y, has a backward that is linear in g and in (x, w); for a change (x', w')
of both,

.. math:: \partial_g = w * x' + w' * x, \qquad (\partial_x, \partial_w) = \text{backward}(g;\ x', w').

With the backward that follows these are twice the convolutions of a gradient, and no fewer would do.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
OF_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
OF_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


class ShortSecondDerivatives(TorchFunctionMode):
    """Within it, convolutions of maps have the second derivative above, and BatchNorm leaves its statistics alone.

    Values and gradients stay torch's. There is no third derivative. Convolutions that the closed form does not cover
    (samples without a batch, padding by name) go to torch.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer for the layers known here."""
        kwargs = kwargs or {}
        if func is torch.conv2d:
            answer = _convolved(dict(zip(OF_CONVOLUTION, args, strict=False)) | kwargs)
            return func(*args, **kwargs) if answer is None else answer
        if func is F.batch_norm:
            given = dict(zip(OF_BATCH_NORM, args, strict=False)) | kwargs
            # Running statistics, which the training loss does not look at, stay as they are.
            return func(**given | ({"running_mean": None, "running_var": None} if given.get("training") else {}))
        return func(*args, **kwargs)


def _convolved(given: dict[str, Any]) -> Tensor | None:
    """A convolution of a batch of maps."""
    x, padding = given["input"], given.get("padding", 0)
    if x.ndim != 4 or isinstance(padding, str):
        return None
    stride, dilation, groups = (given.get(name, 1) for name in ("stride", "dilation", "groups"))
    sizes = [[each] * 2 if isinstance(each, int) else list(each) for each in (stride, padding, dilation)]
    return _Convolution.apply(x, given["weight"], given.get("bias"), (*sizes, False, [0, 0], groups))  # pyright: ignore[reportReturnType]


class _Convolution(Function):
    """A convolution; ``options`` as ``aten::convolution`` takes them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias_C: Tensor | None, options: tuple[Any, ...]) -> Tensor:
        ctx.options = options
        ctx.save_for_backward(x, w)
        return aten.convolution(x, w, bias_C, *options)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        slopes = _ConvolutionSlope.apply(g, *ctx.saved_tensors, ctx.options, ctx.needs_input_grad[:3])
        return *slopes, None  # pyright: ignore[reportGeneralTypeIssues]


class _ConvolutionSlope(Function):
    """The backward of a convolution; its own backward as above."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, w: Tensor, options: tuple[Any, ...], wanted: Sequence[bool]) -> Any:
        ctx.options = options
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(g, x, w)
        return tuple(aten.convolution_backward(g, x, w, [len(w)], *options, wanted))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, x_dot: Tensor | None, w_dot: Tensor | None, bias_dot_C: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        g, x, w = ctx.saved_tensors
        pairs = [(at, weight) for at, weight in ((x_dot, w), (x, w_dot)) if at is not None and weight is not None]
        by_g = None
        for at, weight in pairs:
            part = aten.convolution(at, weight, bias_dot_C if by_g is None else None, *ctx.options)
            by_g = part if by_g is None else by_g.add_(part)
        if not pairs and bias_dot_C is not None:
            by_g = bias_dot_C.view(1, -1, 1, 1).expand_as(g)
        wanted = (ctx.needs_input_grad[1] and w_dot is not None, ctx.needs_input_grad[2] and x_dot is not None, False)
        at, weight = x if x_dot is None else x_dot, w if w_dot is None else w_dot
        by_x, by_w, _ = aten.convolution_backward(g, at, weight, None, *ctx.options, wanted)
        return by_g, by_x, by_w, None, None
