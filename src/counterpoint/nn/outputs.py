"""Output maps: from projector output to the vectors a loss compares."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.checks import check_choice
from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import unit_rows


class OutputMap(nn.Module):
    """Sub-vector, then non-negative map, then unit length; each part optional.

    Args:
        d0: keep only the first d0 dimensions (directclr2022, section 6); None keeps all.
        nonnegative: a key of ``NONNEGATIVE``, or ``none``.
        normalize: scale to unit length (zero vectors stay zero).

    >>> OutputMap(d0=2, nonnegative="relu")(torch.tensor([[3.0, -4.0, 9.0]]))
    tensor([[1., 0.]])
    """

    def __init__(self, *, d0: int | None = None, nonnegative: str = "none", normalize: bool = True) -> None:
        super().__init__()
        check_choice(nonnegative, "nonnegative", ["none", *NONNEGATIVE])
        self.d0 = d0
        self.nonnegative = nonnegative
        self.normalize = normalize

    def forward(self, projected_ND: Tensor) -> Tensor:
        """Map (n, d) to (n, d0 or d)."""
        z = projected_ND if self.d0 is None else projected_ND[:, : self.d0]
        if self.nonnegative != "none":
            z = NONNEGATIVE[self.nonnegative](z)
        return unit_rows(z) if self.normalize else z


def check_subvector(d0: int, width: int) -> None:
    """Require a sub-vector to fit.

    Raises:
        UsageError: d0 exceeds the width.
    """
    if d0 > width:
        raise UsageError(f"output.d0 must be at most the width of the vectors it cuts, {width}, got {d0}")


class _ReluGelu(torch.autograd.Function):
    """Forward ReLU; backward the exact GELU's derivative, so that silent features can wake up again."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grad_outputs: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        normal_cdf = 0.5 * (1 + torch.erf(x * 0.5**0.5))
        normal_pdf = torch.exp(-0.5 * x.square()) * (0.5 / torch.pi) ** 0.5
        return grad_outputs[0] * (normal_cdf + x * normal_pdf)


def relu_gelu(x: Tensor) -> Tensor:
    """ReLU whose gradient is GELU's (ncl2024's released "rep_relu", used for CIFAR)."""
    return _ReluGelu.apply(x)  # pyright: ignore[reportReturnType]


NONNEGATIVE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "relu-gelu": relu_gelu,
}
