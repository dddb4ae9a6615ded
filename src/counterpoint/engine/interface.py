"""What the training loop asks of an engine: placement, the backward pass, the update, and the state of all ranks."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Update:
    """What became of one update; the same on every rank.

    Attributes:
        gradient_norm: length of the whole gradient before clipping; infinite or NaN where it is not finite.
        is_applied: False where the update was left out: float16's loss scale was too high, and is now lower.
        nonfinite: name of the first parameter whose gradient is not finite (on the first rank that has one), or None.
            Always None under float16's loss scale, which is lowered instead.
    """

    gradient_norm: float
    is_applied: bool
    nonfinite: str | None


@dataclass(frozen=True)
class FullState:
    """All weights and the optimiser's state as one process would hold them, on the CPU.

    Attributes:
        model: parameters and buffers of the method by name, without the names of wrappers.
        optimizer: as ``Optimizer.state_dict`` returns it.
        scaler: float16's loss scale and its counters; empty otherwise.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, float]


class Engine(Protocol):
    """One way to run a training step on one rank or many; see ``fabric_adapter`` and ``plain_engine``."""

    @property
    def device(self) -> torch.device:
        """Where batches belong."""
        ...

    def setup(self, method: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Place the method and wrap it for mixed precision and several ranks; the optimiser keeps its parameters.

        Returns:
            The module to call and the optimiser to hand to ``update``.
        """
        ...

    def accumulating(self, module: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one sub-batch: ranks exchange gradients after the last one only."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to the parameters' (scaled for float16)."""
        ...

    def update(self, module: nn.Module, optimizer: Optimizer, *, clip: float | None) -> Update:
        """Look at the gradient on all ranks, clip it, step, and clear it. One that is not finite changes nothing."""
        ...

    def full_state(self, module: nn.Module, optimizer: Optimizer) -> FullState:
        """Collect the whole state; called by every rank at once."""
        ...

    def load_state(self, module: nn.Module, optimizer: Optimizer, state: FullState) -> None:
        """Inverse of ``full_state``; every rank passes the same state."""
        ...
