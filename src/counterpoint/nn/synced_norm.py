r"""Batch normalisation over the batch that all ranks share, on CPU and GPU.

With the means :math:`m_r`, variances :math:`v_r` and counts :math:`n_r` of the ranks' parts, merged without subtracting
large numbers,

.. math:: m = \frac{1}{n} \sum_r n_r m_r, \qquad
    v = \frac{1}{n} \sum_r n_r \big(v_r + (m_r - m)^2\big), \qquad y = \gamma \frac{x - m}{\sqrt{v + \epsilon}} + \beta.

One collective forward, one backward.

Source: ioffe2015, Algorithm 1; chan1983, Eq. 2.1 (merging).
"""

# N samples of this rank, C channels, W ranks

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from counterpoint.core.dist import gather_rows, sum_over_ranks, world_size
from counterpoint.core.errors import UsageError

TORCH_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
WITH_ACTIVATION = "BatchNormAct2d"  # timm's: normalises, then passes through the members it has


class SyncedBatchNorm(_BatchNorm):
    """Drop-in for torch's batch normalisation whose statistics are those of the samples of all ranks.

    Outputs, gradients and running statistics are those that one process has on the whole batch, and the names and
    tensors of ``state_dict`` are the layer's own. Statistics are in float32 at least, as torch has them. There is no
    second derivative.

    Args:
        layer: layer whose parameters, buffers and mode are shared.

    >>> layer = nn.BatchNorm1d(2)
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    >>> SyncedBatchNorm(layer)(x)
    tensor([[-1.0000, -1.0000],
            [ 1.0000,  1.0000]], grad_fn=<...>)
    """

    def __init__(self, layer: _BatchNorm) -> None:
        # The meta device allocates nothing for what the layer's own tensors replace below.
        super().__init__(1, layer.eps, layer.momentum, layer.affine, layer.track_running_stats, device="meta")
        self.num_features = layer.num_features
        for name in ("weight", "bias"):
            setattr(self, name, getattr(layer, name))
        for name, buffer in layer.named_buffers(recurse=False):
            setattr(self, name, buffer)
        # Members of timm's layer: dropout and activation.
        for name, child in layer.named_children():
            self.add_module(name, child)
        self.train(layer.training)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise, then apply members that the layer had.

        Args:
            input: samples (n, c, ...), equally many on every rank.

        Raises:
            ValueError: one value per channel on all ranks together, which has no variance.
        """
        if not self.training and self.running_mean is not None:
            own = self.running_mean, self.running_var, self.weight, self.bias
            output = F.batch_norm(input, *own, False, 0.0, self.eps)
        else:
            if world_size() == 1 and input.numel() == input.shape[1]:
                shape = tuple(input.shape)
                raise ValueError(f"expected more than 1 value per channel when training, got input size {shape}")
            output, mean_C, unbiased_C = cast(Any, _Synced.apply(input, self.weight, self.bias, self.eps))
            if self.training and self.running_mean is not None:
                self._follow(mean_C, unbiased_C)
        for child in self.children():
            output = child(output)
        return output

    @torch.no_grad()
    def _follow(self, mean_C: Tensor, var_C: Tensor) -> None:
        """Move the running statistics towards a batch's, whose variance is the unbiased one."""
        assert self.running_mean is not None
        assert self.running_var is not None
        momentum = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            # Without momentum it is torch's cumulative average: 1 / number of batches.
            momentum = 1.0 / float(self.num_batches_tracked) if momentum is None else momentum
        self.running_mean.lerp_(mean_C.to(self.running_mean.dtype), float(momentum or 0.0))
        self.running_var.lerp_(var_C.to(self.running_var.dtype), float(momentum or 0.0))


class _Synced(Function):
    """Normalisation by the statistics of all ranks, and these; torch's own kernels do the work on each rank."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_C: Tensor | None, bias_C: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean_C, var_C, count = _shared_statistics(x)
        # Evaluation mode (False) normalises by the statistics given, which are those of all ranks.
        output, *_ = torch.native_batch_norm(x, weight_C, bias_C, mean_C, var_C, False, 0.0, eps)
        # n / (n - 1) with the n of all ranks: torch's running variance is the unbiased one.
        unbiased_C = var_C * (count / (count - 1.0))
        ctx.save_for_backward(x, weight_C, mean_C, var_C, count)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean_C, unbiased_C)
        return output, mean_C, unbiased_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight_C, mean_C, var_C, count = ctx.saved_tensors
        unit_C = torch.ones_like(mean_C) if weight_C is None else weight_C
        empty = x.new_empty(0, dtype=mean_C.dtype)
        # Sums over this rank's samples: gradient times normalised sample, and gradient.
        _, slope_C, sum_C = torch.ops.aten.native_batch_norm_backward(
            gradient, x, unit_C, mean_C, var_C, empty, empty, False, ctx.eps, [False, True, True]
        )
        # dx = gamma / sigma (g - sum(g) / n - xhat sum(g xhat) / n), sums and n over all ranks.
        input_gradient = None
        if ctx.needs_input_grad[0]:
            total_slope_C, total_sum_C = sum_over_ranks(torch.cat([slope_C, sum_C])).chunk(2)
            inverse_C = torch.rsqrt(var_C + ctx.eps)
            scale_C = unit_C * inverse_C
            by_x_C, constant_C = -scale_C * inverse_C * total_slope_C / count, -scale_C * total_sum_C / count
            shape = (1, -1, *[1] * (x.ndim - 2))
            mean, by_x, constant, scale = (c.view(shape) for c in (mean_C, by_x_C, constant_C, scale_C))
            # Computed in the type of the statistics, and rounded once.
            wide = torch.addcmul(constant, x - mean, by_x).addcmul_(gradient.to(mean_C.dtype), scale)
            input_gradient = wide.to(x.dtype)
        needs_gradient = ctx.needs_input_grad
        # Weight and bias get this rank's sums: gradients of parameters are averaged over ranks afterwards.
        return input_gradient, slope_C if needs_gradient[1] else None, sum_C if needs_gradient[2] else None, None


def _shared_statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each channel over all ranks, and the number of values that they are taken from."""
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    # Running statistics are passed only so that low precision is summed up in their type.
    zeros_C = torch.zeros(x.shape[1], dtype=dtype, device=x.device)
    mean_C, var_C = torch.batch_norm_update_stats(x, zeros_C, torch.zeros_like(zeros_C), 0.0)
    count = torch.full((1,), x.numel() / x.shape[1], dtype=dtype, device=x.device)
    if world_size() == 1:
        return mean_C, var_C, count
    num_channels = len(mean_C)
    # All three in one collective, which costs its latency once.
    gathered = gather_rows(torch.cat([mean_C, var_C, count])[None])
    means_WC, vars_WC, counts_W1 = gathered.split([num_channels, num_channels, 1], dim=1)
    count = counts_W1.sum(0)
    share_W1 = counts_W1 / count
    # Merged as above: means first, then variances around the common mean, without squares of large means.
    mean_C = (share_W1 * means_WC).sum(0)
    var_C = (share_W1 * (vars_WC + (means_WC - mean_C).square())).sum(0)
    return mean_C, var_C, count


def with_synced_norm(module: nn.Module) -> nn.Module:
    """Replace each batch normalisation by one over the samples of all ranks, in place; one process keeps its layers.

    Args:
        module: module to change in place; parameters, buffers and their names stay.

    Returns:
        The module, or its replacement where it is a normalisation itself.

    Raises:
        UsageError: a layer normalises over the batch in a way of its own.

    >>> with_synced_norm(nn.Sequential(nn.BatchNorm1d(3)))
    Sequential(
      (0): BatchNorm1d(3, ...)
    )
    """
    return module if world_size() == 1 else replace_norms(module)


def replace_norms(module: nn.Module) -> nn.Module:
    """Replace each batch normalisation, as ``with_synced_norm`` does for several ranks."""
    layers = dict(batch_norm_layers(module))
    for name, layer in layers.items():
        if type(layer) not in TORCH_LAYERS and type(layer).__name__ != WITH_ACTIVATION:
            raise UsageError(
                f"layer {name} ({type(layer).__name__}) normalises over the batch in its own way, which cannot be "
                "synced over ranks; train in one process, or use GroupNorm or LayerNorm"
            )
    # One replacement per layer: a layer that is used in two places stays one.
    replaced = {layer: SyncedBatchNorm(layer) for layer in layers.values()}
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # named_children leaves out a layer's second place
            if child in replaced:
                parent.add_module(name, replaced[child])  # pyright: ignore[reportArgumentType]
    return replaced.get(module, module)  # pyright: ignore[reportArgumentType, reportCallIssue]


def keep_out_of_graphs(module: nn.Module) -> None:
    """Before an encoder is compiled: leave its graph at synced layers, as a collective cannot be part of one."""
    for layer in module.modules():
        if isinstance(layer, SyncedBatchNorm):
            layer.forward = torch.compiler.disable(layer.forward)  # pyright: ignore[reportAttributeAccessIssue]


def batch_norm_layers(module: nn.Module) -> Iterator[tuple[str, _BatchNorm]]:
    """Names and layers that take their statistics from a rank's own samples.

    >>> [name for name, _ in batch_norm_layers(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))]
    ['1']
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and not isinstance(layer, SyncedBatchNorm):
            yield name, layer
