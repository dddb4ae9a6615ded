"""Weights and optimiser state as one process would hold them, out of an engine and back into it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from counterpoint.engine.loss_scale import LossScale
from counterpoint.engine.sharding import sharded_as, whole_tensor


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


def collect_state(method: nn.Module, optimizer: Optimizer, scale: LossScale) -> FullState:
    """Copy everything to the CPU; sharded tensors are put together, which every rank does at once.

    Args:
        method: without wrappers.
        optimizer: of its parameters.
        scale: float16's.
    """
    model = {name: _on_cpu(value) for name, value in method.state_dict().items()}
    own = optimizer.state_dict()
    state = {
        number: {name: _on_cpu(value) if isinstance(value, Tensor) else value for name, value in entries.items()}
        for number, entries in own["state"].items()
    }
    return FullState(model, {**own, "state": state}, scale.state())


def restore_state(method: nn.Module, optimizer: Optimizer, scale: LossScale, state: FullState) -> None:
    """Inverse of ``collect_state``: copies values into the tensors that are there.

    Raises:
        RuntimeError: names or shapes are not those of the method, as ``load_state_dict`` raises.
    """
    own = method.state_dict()
    method.load_state_dict({name: sharded_as(value, own.get(name, value)) for name, value in state.model.items()})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    entries = {
        number: {name: _for_parameter(name, value, parameters[int(number)]) for name, value in values.items()}
        for number, values in state.optimizer["state"].items()
    }
    optimizer.load_state_dict({**state.optimizer, "state": entries})
    scale.restore(state.scaler)


def _on_cpu(tensor: Tensor) -> Tensor:
    """A copy: training goes on while a checkpoint is written."""
    return whole_tensor(tensor.detach()).to("cpu", copy=True, memory_format=torch.contiguous_format)


def _for_parameter(name: str, value: Any, parameter: Tensor) -> Any:
    """An entry of the optimiser's state: cut and laid out like its parameter where it has its shape, else as it is.

    Fused optimisers on the CPU walk through memory and take for granted that state and parameter have the same strides.
    """
    # The number of steps is a scalar whose device the optimiser chooses; a scalar parameter has its shape by chance.
    if not isinstance(value, Tensor) or value.shape != parameter.shape or name == "step":
        return value
    cut = sharded_as(value, parameter)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(cut)
