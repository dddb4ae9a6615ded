"""What a training step runs on: device, mixed precision and several ranks, in plain torch."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from counterpoint.engine.full_state import FullState, collect_state, restore_state
from counterpoint.engine.gradients import Update, apply_update, check_all_used, read_gradients
from counterpoint.engine.loss_scale import LossScale
from counterpoint.engine.placement import Placement
from counterpoint.engine.preparation import LOW_PRECISION, Preparation, data_parallel_options, prepare
from counterpoint.engine.sharding import exchange_gradients, read_sharded_gradients


class InPrecision(nn.Module):
    """A method whose forward pass runs in mixed precision.

    Args:
        method: what is called.
        device: where it computes.
        dtype: low precision of its matrix products; None for none.
    """

    def __init__(self, method: nn.Module, device: torch.device, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.method = method
        self._context = {"device_type": device.type, "dtype": dtype, "enabled": dtype is not None}

    def forward(self, *inputs: Any) -> Any:
        """What the method returns."""
        with torch.autocast(**self._context):
            return self.method(*inputs)


class Engine:
    """Runs training steps on one rank or many.

    Args:
        placement: device, precision and ranks, filled in; the ranks have met (``core.dist.join_ranks``).
        compiles: compile the encoder.
        shards: FSDP instead of a copy of the encoder on each rank.
    """

    def __init__(self, placement: Placement, *, compiles: bool = False, shards: bool = False) -> None:
        self._placement = placement
        self._plan = Preparation(placement.torch_device, compiles, shards and placement.world_size > 1)
        self._scale = LossScale.for_precision(placement.precision)
        self._method: nn.Module | None = None
        self._is_first_update = True

    @property
    def device(self) -> torch.device:
        """Where batches belong."""
        return self._plan.device

    @property
    def method(self) -> nn.Module:
        """The method without wrappers."""
        assert self._method is not None, "setup comes first"
        return self._method

    def setup(self, method: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Place the method and wrap it for mixed precision and several ranks; the optimiser keeps its parameters.

        Returns:
            The module to call and the optimiser to hand to ``update``.
        """
        prepare(method, optimizer, self._plan)
        self._method = method
        module: nn.Module = InPrecision(method, self.device, LOW_PRECISION.get(self._placement.precision))
        if self._placement.world_size > 1 and not self._plan.shards:
            devices = [self.device] if self.device.type == "cuda" else None
            module = DistributedDataParallel(
                module, device_ids=devices, **data_parallel_options(self._placement.world_size)
            )
        return module, optimizer

    def accumulating(self, module: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one sub-batch: ranks exchange gradients after the last one only."""
        if self._plan.shards:
            exchange_gradients(self.method, is_last)
        return nullcontext() if is_last or not isinstance(module, DistributedDataParallel) else module.no_sync()

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to the parameters' (scaled for float16)."""
        (loss * self._scale.value).backward()

    def update(self, module: nn.Module, optimizer: Optimizer, *, clip: float | None) -> Update:
        """Look at the gradient on all ranks, clip it, step, and clear it. One that is not finite changes nothing."""
        if self._is_first_update and isinstance(module, DistributedDataParallel):
            check_all_used(self.method, self._placement.world_size)
        self._is_first_update = False
        gradients = read_sharded_gradients(self.method) if self._plan.shards else read_gradients(self.method)
        return apply_update(gradients, optimizer, clip=clip, scale=self._scale)

    def full_state(self, module: nn.Module, optimizer: Optimizer) -> FullState:
        """Collect the whole state; called by every rank at once."""
        return collect_state(self.method, optimizer, self._scale)

    def load_state(self, module: nn.Module, optimizer: Optimizer, state: FullState) -> None:
        """Inverse of ``full_state``; every rank passes the same state."""
        restore_state(self.method, optimizer, self._scale, state)
