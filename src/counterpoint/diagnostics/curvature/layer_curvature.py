r"""Second derivatives of convolutions and normalisations in few operations, put under an encoder for a while.

A Hessian-vector product differentiates the backward of each layer once more. torch decomposes that: of a convolution it
takes the slope by the weights as a convolution with a kernel of the size of the map, and of a normalisation some thirty
passes over the map. Here both are closed forms on the kernels that training uses. Without them a product of a kept
graph takes 1.5 times as long (resnet9-narrow, 32 pairs of 32 x 32 pictures, one thread, pair by pair), above the 1.3 at
which a closed form goes.

**Convolution** y = w * x, with cotangent g of y. Its backward is linear in g and in (x, w); for a change (x', w') of
both,

.. math:: \partial_g = w * x' + w' * x, \qquad (\partial_x, \partial_w) = \text{backward}(g;\ x', w').

With the backward that follows these are twice the convolutions of a gradient, and no fewer would do.

**Normalisation** y = gamma h + beta, h = (x - m) r, means <.> over the values of a row (a channel of BatchNorm, a
group of GroupNorm). With B(q) = r (q - <q> - h <q h>), which is its backward with gamma = 1, a = gamma g, b = B(u), and
cotangents u, s, t of the slopes by x, gamma and beta,

.. math:: \partial_g = \gamma b + s h + t, \qquad \partial_\gamma = \sum g b, \qquad
    \partial_x = B(s g - r \langle u h\rangle a) - r \langle a h\rangle b - r \langle a b\rangle h.
"""

# N samples, C channels, G groups, R rows with a mean of their own

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
OF_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
OF_GROUP_NORM = ("input", "num_groups", "weight", "bias", "eps")
OF_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


class ShortSecondDerivatives(TorchFunctionMode):
    """Within it, convolutions of maps and normalisations over a batch or groups have the second derivatives above.

    Values and gradients stay torch's. There is no third derivative. Calls that the closed forms do not cover (samples
    without a batch, padding by name, no scale) go to torch.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer for the layers known here."""
        kwargs, answer = kwargs or {}, None
        if func is torch.conv2d:
            answer = _convolved(dict(zip(OF_CONVOLUTION, args, strict=False)) | kwargs)
        elif func is F.group_norm:
            answer = _group_normed(dict(zip(OF_GROUP_NORM, args, strict=False)) | kwargs)
        elif func is F.batch_norm:
            answer = _batch_normed(dict(zip(OF_BATCH_NORM, args, strict=False)) | kwargs)
        return func(*args, **kwargs) if answer is None else answer


def _convolved(given: dict[str, Any]) -> Tensor | None:
    """A convolution of a batch of maps."""
    x, padding = given["input"], given.get("padding", 0)
    if x.ndim != 4 or isinstance(padding, str):
        return None
    stride, dilation, groups = (given.get(name, 1) for name in ("stride", "dilation", "groups"))
    sizes = [[each] * 2 if isinstance(each, int) else list(each) for each in (stride, padding, dilation)]
    return _Convolution.apply(x, given["weight"], given.get("bias"), (*sizes, False, [0, 0], groups))  # pyright: ignore[reportReturnType]


def _group_normed(given: dict[str, Any]) -> Tensor | None:
    """GroupNorm with a scale and a shift."""
    x, gamma_C, beta_C = given["input"].contiguous(), given.get("weight"), given.get("bias")
    if gamma_C is None or beta_C is None:
        return None
    return _normalised(x, gamma_C, beta_C, _Rows(x.shape, given["num_groups"], given.get("eps", 1e-5)))


def _batch_normed(given: dict[str, Any]) -> Tensor | None:
    """BatchNorm with the statistics of the batch, a scale and a shift.

    Running statistics, which the training loss does not look at, stay as they are.
    """
    x, gamma_C, beta_C = given["input"], given.get("weight"), given.get("bias")
    if gamma_C is None or beta_C is None or not given.get("training", False) or x.numel() == x.shape[1]:
        return None
    return _normalised(x.contiguous(), gamma_C, beta_C, _Rows(x.shape, 0, given.get("eps", 1e-5)))


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
            by_g = _channels(bias_dot_C, g.shape).expand_as(g)
        wanted = (ctx.needs_input_grad[1] and w_dot is not None, ctx.needs_input_grad[2] and x_dot is not None, False)
        at, weight = x if x_dot is None else x_dot, w if w_dot is None else w_dot
        by_x, by_w, _ = aten.convolution_backward(g, at, weight, None, *ctx.options, wanted)
        return by_g, by_x, by_w, None, None


@dataclass(frozen=True)
class _Rows:
    """What has one mean and one variance: groups of each sample, or for ``num_groups`` 0 channels of the batch."""

    shape: torch.Size
    num_groups: int
    eps: float

    def view(self, maps: Tensor) -> Tensor:
        """Maps as one batch of R channels, for the kernels of BatchNorm."""
        return maps.view(1, self.shape[0] * self.num_groups, -1) if self.num_groups else maps

    def sums(self, each_NC: Tensor) -> Tensor:
        """Sums (R,) of what there is for each sample and channel."""
        return each_NC.reshape(self.shape[0] * self.num_groups, -1).sum(1) if self.num_groups else each_NC.sum(0)

    def spread(self, each_R: Tensor) -> Tensor:
        """One value for each row, for products with maps."""
        if not self.num_groups:
            return _channels(each_R, self.shape)
        num, channels = self.shape[:2]
        each_NC = each_R.view(num, self.num_groups).repeat_interleave(channels // self.num_groups, dim=1)
        return each_NC.view(num, channels, *[1] * (len(self.shape) - 2))

    def normed(self, x: Tensor, gamma_C: Tensor, beta_C: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Normalised maps, means and 1 / deviation."""
        if not self.num_groups:
            return aten.native_batch_norm(x, gamma_C, beta_C, None, None, True, 0.0, self.eps)
        return aten.native_group_norm(x, gamma_C, beta_C, *self._sizes(x), self.eps)

    def slopes(self, g: Tensor, x: Tensor, gamma_C: Tensor, moments: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Backward by x, gamma and beta."""
        if not self.num_groups:
            return _pulled(g, x, gamma_C, moments)
        return aten.native_group_norm_backward(g, x, *moments, gamma_C, *self._sizes(x), [True] * 3)

    def _sizes(self, x: Tensor) -> tuple[int, ...]:
        """As torch's kernels for groups take them."""
        return (*self.shape[:2], x[0, 0].numel(), self.num_groups)


def _normalised(x: Tensor, gamma_C: Tensor, beta_C: Tensor, rows: _Rows) -> Tensor:
    """``_Normalisation.apply``, which torch leaves untyped."""
    return _Normalisation.apply(x, gamma_C, beta_C, rows)  # pyright: ignore[reportReturnType]


class _Normalisation(Function):
    """Normalisation with scale and shift."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma_C: Tensor, beta_C: Tensor, rows: _Rows) -> Tensor:
        ctx.rows = rows
        y, *moments = rows.normed(x, gamma_C, beta_C)
        ctx.save_for_backward(x, gamma_C, *moments)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, gamma_C, *moments = ctx.saved_tensors
        slopes = _NormalisationSlope.apply(g.contiguous(), x, gamma_C, tuple(moments), ctx.rows)
        return *slopes, None  # pyright: ignore[reportGeneralTypeIssues]


class _NormalisationSlope(Function):
    """The backward of a normalisation; its own backward as above."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, gamma_C: Tensor, moments: tuple[Tensor, Tensor], rows: _Rows
    ) -> tuple[Tensor, ...]:
        ctx.rows = rows
        ctx.save_for_backward(g, x, gamma_C, *moments)
        return rows.slopes(g, x, gamma_C, moments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, u: Tensor, s_C: Tensor, t_C: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        g, x, gamma_C, *moments = ctx.saved_tensors
        rows: _Rows = ctx.rows
        m_R, r_R = (each.view(-1) for each in moments)
        num, gamma = x.numel() // len(m_R), _channels(gamma_C, x.shape)

        def pulled(q: Tensor, *wanted: bool) -> tuple[Tensor, Tensor]:
            """B(q), and the sums of q h."""
            return _pulled(rows.view(q), rows.view(x), None, (m_R, r_R), (*wanted, False))[:2]

        b, uh_R = pulled(u.contiguous(), True, True)
        _, ah_R = pulled(gamma * g, False, True)
        b = b.view_as(x)
        gb_NC = (g * b).sum(tuple(range(2, x.ndim))) if x.ndim > 2 else g * b
        ab_R = rows.sums(gb_NC * gamma_C)
        by_x, _ = pulled((_channels(s_C, x.shape) - gamma * rows.spread(r_R * uh_R / num)) * g, True, False)
        by_x = by_x.view_as(x).addcmul_(rows.spread(r_R * ah_R / num), b, value=-1)
        by_x.addcmul_(x - rows.spread(m_R), rows.spread(r_R.square() * ab_R / num), value=-1)
        by_g = rows.normed(x, s_C, t_C)[0].addcmul_(gamma, b)
        return by_g, by_x, gb_NC.sum(0), None, None


def _pulled(
    q: Tensor,
    x: Tensor,
    gamma_C: Tensor | None,
    moments: tuple[Tensor, Tensor],
    wanted: tuple[bool, ...] = (True, True, True),
) -> tuple[Tensor, Tensor, Tensor]:
    """Backward of a normalisation over the batch: slopes by x, gamma and beta."""
    return aten.native_batch_norm_backward(q, x, gamma_C, None, None, *moments, True, 0.0, list(wanted))


def _channels(each_C: Tensor, shape: torch.Size) -> Tensor:
    """One value for each channel, for products with maps."""
    return each_C.view(1, -1, *[1] * (len(shape) - 2))
