r"""The steps of a gradient: scaled for float16, measured, clipped, used for a step, and cleared.

Length of the whole gradient over all parameters :math:`p`, which clipping compares with its limit :math:`c`:

.. math:: |g| = \Big(\sum_p |g_p|^2\Big)^{1/2}, \qquad g \leftarrow g \min(1, c / |g|).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from counterpoint.core.errors import TrainingError, some

INITIAL, GROWTH, BACKOFF, INTERVAL = 65_536.0, 2.0, 0.5, 2_000  # as torch.amp.GradScaler has them
LOWEST = 1.0  # a gradient that is not finite without any scaling is not the scale's fault
HIGHEST = 2.0**127  # the largest power of two that float32 holds


@dataclass
class LossScale:
    """Multiplies the loss before the backward pass; halved when a gradient overflows, doubled after 2,000 good steps.

    The same rule as torch's ``GradScaler``, with two differences: the verdict on the gradient comes from outside, so
    that all ranks share one and a GPU is waited for once; and at a scale of 1 an overflow is an error, not a lesson.

    Attributes:
        value: factor of the loss; 1 where the precision needs none.
        is_active: whether the loss is scaled at all; False for float32 and bfloat16.
        good_steps: number of updates since the factor was last adapted.
    """

    value: float = 1.0
    is_active: bool = False
    good_steps: int = 0

    @classmethod
    def for_precision(cls, precision: str) -> "LossScale":
        """The scale with which a run in this precision begins.

        >>> LossScale.for_precision("fp16").value, LossScale.for_precision("bf16").value
        (65536.0, 1.0)
        """
        return cls(INITIAL, is_active=True) if precision == "fp16" else cls()

    def learn(self, *, is_finite: bool) -> None:
        """Adapt to what became of the last gradient."""
        if not self.is_active:
            return
        if not is_finite:
            self.value, self.good_steps = max(self.value * BACKOFF, LOWEST), 0
            return
        self.good_steps += 1
        if self.good_steps == INTERVAL:
            self.value, self.good_steps = min(self.value * GROWTH, HIGHEST), 0

    def state(self) -> dict[str, float]:
        """State for a checkpoint; empty if there is nothing to remember."""
        return {"value": self.value, "good_steps": float(self.good_steps)} if self.is_active else {}

    def restore(self, state: dict[str, float]) -> None:
        """Inverse of ``state``."""
        if self.is_active and state:
            self.value, self.good_steps = state["value"], int(state["good_steps"])


@dataclass(frozen=True)
class Update:
    """The result of one update; the same on every rank.

    Attributes:
        gradient_norm: length of the whole gradient before clipping; infinite or NaN where it is not finite.
        is_applied: False if no weight changed, since the gradient was not finite; float16's loss scale is then lowered.
        nonfinite: name of the first parameter whose gradient is not finite (on the first rank that has one), or None.
            Always None under float16's loss scale, which is lowered instead.
    """

    gradient_norm: float
    is_applied: bool
    nonfinite: str | None


@dataclass(frozen=True)
class Gradients:
    """The gradients of one step.

    Attributes:
        names: names of the parameters that have a gradient, in the order of the method.
        tensors: gradient of each as this process holds it; a shard, where parameters are sharded.
        norms: length of each gradient as a whole, the same on every rank; infinite or NaN where it is not finite.
    """

    names: list[str]
    tensors: list[Tensor]
    norms: list[float]


def read_gradients(method: nn.Module) -> Gradients:
    """Gradients of a method whose parameters are all here.

    After data-parallel averaging every rank holds the same numbers, and a NaN of one rank has reached all: no rank
    needs to ask another. The device is waited for once.

    Args:
        method: method whose backward pass is done.
    """
    names, tensors = with_gradients(method)
    return Gradients(names, tensors, norms_of(tensors).tolist() if tensors else [])


def with_gradients(method: nn.Module) -> tuple[list[str], list[Tensor]]:
    """Names and gradients of the parameters that have one."""
    pairs = [(name, p.grad) for name, p in method.named_parameters() if p.grad is not None]
    return [name for name, _ in pairs], [gradient for _, gradient in pairs]


def norms_of(tensors: list[Tensor]) -> Tensor:
    """Length of each tensor, in one vector on their device.

    >>> norms_of([torch.tensor([3.0, 4.0]), torch.tensor(-2.0)])
    tensor([5., 2.])
    """
    # One call for all tensors, and nothing waits for the device.
    norms = list(torch._foreach_norm(tensors))  # pyright: ignore[reportPrivateImportUsage]
    widest = max((norm.dtype for norm in norms), key=lambda dtype: torch.finfo(dtype).bits)
    # Parameters of several dtypes have lengths of several, and a stack needs one.
    return torch.stack([norm if norm.dtype == widest else norm.to(widest) for norm in norms])


def apply_update(gradients: Gradients, optimizer: Optimizer, *, clip: float | None, scale: LossScale) -> Update:
    """Clip, step and clear; a gradient that is not finite changes no weight.

    Differs from ``torch.nn.utils.clip_grad_norm_``: no 1e-6 is added to the length, so that a clipped gradient has
    the length asked for.

    Args:
        gradients: gradients of this step, times the loss scale.
        optimizer: optimiser of the parameters that the gradients belong to.
        clip: largest length of the gradient, > 0; None for no limit.
        scale: loss scale of this step's backward pass; it is adapted to the outcome.

    Returns:
        Result of the update. ``nonfinite`` is None where a lower loss scale may help.
    """
    # Both in float64 on the host; hypot does not overflow where a sum of squares would.
    length = math.hypot(*gradients.norms) / scale.value
    is_finite = all(math.isfinite(norm) for norm in gradients.norms)
    # While a lower scale may help, a gradient that is not finite is not a fault of a parameter.
    culprit = None
    if not is_finite and not (scale.is_active and scale.value > LOWEST):
        norms = zip(gradients.names, gradients.norms, strict=True)
        culprit = next(name for name, norm in norms if not math.isfinite(norm))
    if is_finite:
        # |g| min(1, c / |g|), and the loss scale taken out, in one pass. A factor of 1 is left out: float32
        # without clipping keeps the bits of the backward pass.
        factor = (1.0 if clip is None or length <= clip else clip / length) / scale.value
        if factor != 1.0:
            torch._foreach_mul_(gradients.tensors, factor)  # pyright: ignore[reportPrivateImportUsage]
        optimizer.step()
    # Only now: the factor above belongs to the scale that this gradient was computed with.
    scale.learn(is_finite=is_finite)
    # Also after a step that was left out: the next backward pass would add to infinities.
    optimizer.zero_grad(set_to_none=True)
    return Update(length, is_applied=is_finite, nonfinite=culprit)


def check_all_used(method: nn.Module, num_ranks: int) -> None:
    """Require a gradient for every trained parameter, as averaging over ranks needs it.

    Raises:
        TrainingError: a parameter without a gradient; it is named, and nothing has been updated.
    """
    unused = [name for name, p in method.named_parameters() if p.requires_grad and p.grad is None]
    if unused:
        raise TrainingError(
            f"parameter {some(unused, 1)} had no part in the loss; with {num_ranks} ranks every trained parameter "
            "must have one: remove it from the encoder, or set its requires_grad to False"
        )
