"""The only module that imports Lightning Fabric: device, mixed precision and several ranks of a training step.

Of Fabric it takes the wrapping of the module, autocast, data-parallel averaging and the backward pass. Seeds, order of
samples, checkpoints and the start of processes are our own: Fabric's save, load, samplers and launchers stay unused.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import Precision
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.single_device import SingleDeviceStrategy
from lightning_fabric.strategies.strategy import Strategy
from torch import Tensor, nn
from torch.optim import Optimizer

from counterpoint.core.ranks import Ranks
from counterpoint.engine.full_state import collect_state, restore_state
from counterpoint.engine.gradients import apply_update, check_all_used, read_gradients
from counterpoint.engine.interface import FullState, Update
from counterpoint.engine.loss_scale import LossScale
from counterpoint.engine.placement import Placement, place
from counterpoint.engine.preparation import LOW_PRECISION, Preparation, data_parallel_options, prepare
from counterpoint.engine.sharding import exchange_gradients, read_sharded_gradients

__all__ = ["FabricEngine", "Placement", "place"]


class FabricEngine:
    """Device, mixed precision and several ranks through Fabric; see ``engine.interface.Engine``.

    Args:
        placement: device, precision and ranks, filled in; the ranks have met (``core.dist.join_ranks``).
        compiles: compile the encoder.
        shards: FSDP instead of a copy of the encoder on each rank.
    """

    def __init__(self, placement: Placement, *, compiles: bool = False, shards: bool = False) -> None:
        self._num_ranks = placement.world_size
        self._plan = Preparation(placement.torch_device, compiles, shards and placement.world_size > 1)
        self._scale = LossScale.for_precision(placement.precision)
        self._method: nn.Module | None = None
        self._is_first_update = True
        with _silence():
            self._fabric = Fabric(
                accelerator=placement.device,
                devices=1,
                strategy=_strategy(placement, self._plan),
                plugins=[_MixedPrecision(self._plan.device, LOW_PRECISION.get(placement.precision))],
            )
            self._fabric.launch()

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
        """Place the method and wrap it for mixed precision and several ranks; see the contract."""
        prepare(method, optimizer, self._plan)
        self._method = method
        with _silence():
            module, wrapped = self._fabric.setup(method, optimizer, move_to_device=False)
        return module, wrapped  # pyright: ignore[reportReturnType]

    def accumulating(self, module: nn.Module, *, is_last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one sub-batch: ranks exchange gradients after the last one only."""
        if self._plan.shards:
            exchange_gradients(self.method, is_last)
        if is_last or self._plan.shards or self._num_ranks == 1:
            return nullcontext()
        return self._fabric.no_backward_sync(module)  # pyright: ignore[reportArgumentType]

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to the parameters', scaled for float16."""
        self._fabric.backward(loss if self._scale.value == 1.0 else loss * self._scale.value)

    def update(self, module: nn.Module, optimizer: Optimizer, *, clip: float | None) -> Update:
        """Look at the gradient on all ranks, clip it, step, and clear it; see the contract."""
        if self._is_first_update and self._num_ranks > 1 and not self._plan.shards:
            check_all_used(self.method, self._num_ranks)
        self._is_first_update = False
        gradients = read_sharded_gradients(self.method) if self._plan.shards else read_gradients(self.method)
        return apply_update(gradients, optimizer, clip=clip, scale=self._scale)

    def full_state(self, module: nn.Module, optimizer: Optimizer) -> FullState:
        """Collect the whole state; called by every rank at once."""
        return collect_state(self.method, optimizer, self._scale)

    def load_state(self, module: nn.Module, optimizer: Optimizer, state: FullState) -> None:
        """Inverse of ``full_state``; every rank passes the same state."""
        restore_state(self.method, optimizer, self._scale, state)


class _MixedPrecision(Precision):
    """Autocast around the forward pass; inputs and outputs keep their type, and losses are scaled by the engine."""

    def __init__(self, device: torch.device, dtype: torch.dtype | None) -> None:
        self._device = device
        self._dtype = dtype

    def forward_context(self) -> AbstractContextManager[Any]:
        """Autocast, where there is a low precision."""
        return nullcontext() if self._dtype is None else torch.autocast(self._device.type, dtype=self._dtype)

    def convert_input(self, data: Any) -> Any:
        """As it is."""
        return data

    def convert_output(self, data: Any) -> Any:
        """As it is."""
        return data


class _Started(ClusterEnvironment):
    """Tells Fabric what torchrun or SLURM has told us."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self._ranks = ranks

    @property
    def creates_processes_externally(self) -> bool:
        """The processes are there."""
        return True

    @property
    def main_address(self) -> str:
        """Machine of rank 0."""
        return self._ranks.address

    @property
    def main_port(self) -> int:
        """Where rank 0 listens."""
        return self._ranks.port

    @staticmethod
    def detect() -> bool:
        """Never chosen by Fabric itself."""
        return False

    def world_size(self) -> int:
        """Number of processes."""
        return self._ranks.world_size

    def set_world_size(self, size: int) -> None:
        """It is given."""

    def global_rank(self) -> int:
        """Number of this process."""
        return self._ranks.rank

    def set_global_rank(self, rank: int) -> None:
        """It is given."""

    def local_rank(self) -> int:
        """Number of this process on its machine."""
        return self._ranks.local_rank

    def node_rank(self) -> int:
        """Number of this machine."""
        return self._ranks.node_rank


def _strategy(placement: Placement, plan: Preparation) -> Strategy:
    """Copies of the module on several ranks, or one module: shards average their gradients themselves."""
    if placement.world_size == 1 or plan.shards:
        return SingleDeviceStrategy(plan.device)
    devices = [plan.device] * placement.ranks.local_world_size  # Fabric looks up its own only
    return DDPStrategy(
        parallel_devices=devices,
        cluster_environment=_Started(placement.ranks),
        **data_parallel_options(placement.world_size),
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Fabric says nothing that our own banner does not say."""
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning_fabric.*")
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        yield
