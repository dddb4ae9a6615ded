"""The engine of training steps: device, mixed precision and several ranks, in plain torch; its state in and out.

Where an encoder is too large for one GPU, every rank keeps a part of each weight and borrows the rest (FSDP2). Weights,
gradients and optimiser state are sharded along their first axis; buffers are whole on every rank, and so are scalar
parameters, which cannot be sharded. With ``core.dist`` this is the only module that knows torch.distributed: the types
and hooks of sharded parameters live there.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from counterpoint.core.dist import sum_over_ranks, world_size
from counterpoint.core.errors import UsageError
from counterpoint.engine.gradients import (
    Gradients,
    LossScale,
    Update,
    apply_update,
    check_all_used,
    norms_of,
    read_gradients,
    with_gradients,
)
from counterpoint.engine.optimisers import entries_of
from counterpoint.engine.placement import Placement
from counterpoint.nn.synced_norm import keep_out_of_graphs

LOW_PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Before 2.7 no parameter could be left whole, and on the CPU no weight was gathered.
CAN_SHARD = "ignored_params" in signature(fully_shard).parameters


@dataclass(frozen=True)
class FullState:
    """All weights and the optimiser's state as one process would hold them, on the CPU.

    Attributes:
        model: parameters and buffers of the method by name, without the names of wrappers.
        optimizer: state of the optimiser, as ``Optimizer.state_dict`` returns it.
        scaler: float16's loss scale and its counters; empty otherwise.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, float]


class _OptimizerState(BaseModel, strict=True):
    state: dict[int, dict[str, Any]]
    param_groups: list[dict[str, Any]]


class Engine:
    """Runs training steps on one rank or many.

    Args:
        placement: device, precision and ranks, filled in; the ranks have met (``core.dist.join_ranks``).
        compiles: whether the encoder is compiled, in place: names of its parameters stay.
        shards: whether several ranks share the method in shards (FSDP) instead of a copy on each.

    Attributes:
        device: device that batches are moved to.
        method: method that ``setup`` was given, without wrappers.
        module: module that a step calls: the method, or its wrapper where several ranks hold copies.
        optimizer: optimiser of the method's parameters, or of their shards.
    """

    method: nn.Module
    module: nn.Module
    optimizer: Optimizer

    def __init__(self, placement: Placement, *, compiles: bool = False, shards: bool = False) -> None:
        self.device = placement.torch_device
        self._world_size = placement.world_size
        self._compiles, self._shards = compiles, shards and placement.world_size > 1
        self._dtype = LOW_PRECISION.get(placement.precision)
        self._scale = LossScale.for_precision(placement.precision)
        self._is_first_update = True

    def setup(self, method: nn.Module, optimizer: Optimizer) -> nn.Module:
        """Place the method and wrap it for several ranks; the optimiser keeps its parameters, or their shards.

        Returns:
            The module that a step calls, within ``in_precision``.
        """
        method.to(self.device)
        if self._compiles:
            encoder = getattr(method, "backbone", method)
            assert isinstance(encoder, nn.Module)
            keep_out_of_graphs(encoder)
            encoder.compile()
        if self._shards:
            shard(method, optimizer, self.device)
        else:
            # Channels last is what the CPU's and GPU's convolutions are written for; it changes no other parameter.
            # Shards must be contiguous and do without.
            method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.method, self.module, self.optimizer = method, method, optimizer
        if self._world_size > 1 and not self._shards:
            # A copy on each rank, whose gradients are averaged. After the first step DDP sorts its buckets again, and
            # with them the order in which more than two ranks are summed: the first step of a resumed run would differ
            # in the last bit. With `find_unused_parameters` it keeps the order. Buffers are equal on all ranks by
            # themselves: normalisation is synced, a queue holds all samples.
            self.module = DistributedDataParallel(
                method,
                device_ids=[self.device] if self.device.type == "cuda" else None,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,  # no second copy of all gradients
                find_unused_parameters=self._world_size > 2,
            )
        return self.module

    def in_precision(self) -> AbstractContextManager[Any]:
        """Context of the forward pass: mixed precision, if the run has one."""
        return torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None)

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to the parameters' (scaled for float16)."""
        # A scale of 1, where the precision needs none, changes no bit.
        (loss * self._scale.value).backward()

    def update(self, *, clip: float | None) -> Update:
        """Look at the gradient on all ranks, clip it, step, and clear it. One that is not finite changes nothing."""
        # Once, before the first update: DDP itself reports such a parameter a step later, by number.
        if self._is_first_update and isinstance(self.module, DistributedDataParallel):
            check_all_used(self.method, self._world_size)
        self._is_first_update = False
        gradients = read_sharded_gradients(self.method) if self._shards else read_gradients(self.method)
        return apply_update(gradients, self.optimizer, clip=clip, scale=self._scale)

    def full_state(self) -> FullState:
        """Copy the whole state to the CPU; sharded tensors are put together, so every rank calls it at once."""
        model = {name: _on_cpu(value) for name, value in self.method.state_dict().items()}
        own = self.optimizer.state_dict()
        state = {
            number: {name: _on_cpu(value) if isinstance(value, Tensor) else value for name, value in entries.items()}
            for number, entries in own["state"].items()
        }
        return FullState(model, {**own, "state": state}, self._scale.state())

    def load_state(self, state: FullState) -> None:
        """Inverse of ``full_state``: copies values into the tensors that are there. Every rank passes the same state.

        Raises:
            RuntimeError: names or shapes are not those of the method, as ``load_state_dict`` raises.
        """
        own = self.method.state_dict()
        # A name that this method does not have passes through, for `load_state_dict` to tell.
        model = {name: sharded_as(value, own.get(name, value)) for name, value in state.model.items()}
        self.method.load_state_dict(model)
        # An optimiser's state goes by number: parameters counted through all groups in order.
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        saved, names = _OptimizerState.model_validate(state.optimizer), entries_of(self.optimizer)
        # Only the parameters of the groups are loaded: rates, decays and the like come from the settings.
        groups = self.optimizer.state_dict()["param_groups"]
        if [group.get("params") for group in saved.param_groups] != [group["params"] for group in groups]:
            raise RuntimeError("the state of the optimiser is of other groups of parameters")
        if unknown := set(saved.state) - set(range(len(parameters))):
            raise RuntimeError(f"the state of the optimiser has no parameter {min(unknown)}")
        # The order is the same on all ranks, which put shards together name by name.
        entries = {
            number: {name: _for_parameter(name, values.get(name), parameters[number]) for name in names}
            for number, values in saved.state.items()
        }
        self.optimizer.load_state_dict({"state": entries, "param_groups": groups})
        self._scale.restore(state.scaler)


def _on_cpu(tensor: Tensor) -> Tensor:
    """Copy a tensor, or all its shards put together, to the CPU: training continues while a checkpoint is written."""
    whole = tensor.detach()
    if isinstance(whole, DTensor):
        whole = whole.full_tensor()  # every rank must ask for the same ones in the same order
    return whole.to("cpu", copy=True, memory_format=torch.contiguous_format)


def _for_parameter(name: str, value: Any, parameter: Tensor) -> Tensor:
    """An entry of the optimiser's state, cut and laid out like its parameter; the number of steps is a scalar.

    Fused optimisers on the CPU walk through memory and take for granted that state and parameter have the same shape
    and strides.
    """
    shape = () if name == "step" else parameter.shape
    if not isinstance(value, Tensor) or value.shape != shape:
        raise RuntimeError(f"the state of the optimiser has no {name} of shape {tuple(shape)}")
    if name == "step":  # its device is the optimiser's choice
        return value.to(torch.get_default_dtype())
    return torch.empty_like(parameter, requires_grad=False).copy_(sharded_as(value, parameter))


def shard(method: nn.Module, optimizer: Optimizer, device: torch.device) -> None:
    """Shard a method in place, block by block; the optimiser continues with the shards.

    Every rank must hold the same weights before: nothing is sent.

    Args:
        method: method that is on its device already, in torch's usual memory layout.
        optimizer: optimiser of the method's parameters, before its first step.
        device: device on which this rank computes.
    """
    assert not optimizer.state, "optimisers are sharded before their first step"
    mesh = init_device_mesh(device.type, (world_size(),))
    # Parameters are found again by name, as `fully_shard` puts new ones in the place of those the optimiser knows.
    place_of = {parameter: name for name, parameter in method.named_parameters()}
    scalars = {parameter for parameter in place_of if parameter.ndim == 0}
    if not CAN_SHARD:
        raise UsageError("strategy fsdp needs torch 2.7 or newer; install it, or use strategy ddp")
    exceptions: dict[str, Any] = {"ignored_params": scalars} if scalars else {}
    # Units are sharded from the inside out: each takes what no unit within it has taken.
    for unit in dict.fromkeys([*blocks(method), getattr(method, "backbone", method), method]):
        fully_shard(unit, mesh=mesh, **exceptions)
    sharded = dict(method.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [sharded[place_of[parameter]] for parameter in group["params"]]


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Members of lists and sequences that are networks themselves, such as residual blocks; the outermost ones.

    >>> block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> list(blocks(nn.Sequential(block, nn.Flatten()))) == [block]
    True
    >>> list(blocks(block))
    []
    """
    is_list = isinstance(module, nn.Sequential | nn.ModuleList)
    for child in module.children():
        if is_list and any(True for _ in child.children()) and any(True for _ in child.parameters()):
            yield child
        else:
            yield from blocks(child)


def read_sharded_gradients(method: nn.Module) -> Gradients:
    """Gradients of a sharded method, from one collective: lengths of the shards, and the scalars' gradients.

    Args:
        method: method whose backward pass is done. Scalars' gradients are averaged over ranks here, in place.
    """
    names, gradients = with_gradients(method)
    # Parts that this rank holds; the squares of their lengths are added up over ranks.
    tensors = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
    is_whole = [not isinstance(gradient, DTensor) for gradient in gradients]
    # Squares are in float64: that of a large float32 length overflows.
    squares = norms_of(tensors).double().square()
    scalars = [tensor for tensor, alone in zip(tensors, is_whole, strict=True) if alone]
    # Squares of shards and gradients of scalars in one collective, and one wait for the device.
    packed = torch.cat([squares, *(scalar.double().reshape(1) for scalar in scalars)])
    totals = sum_over_ranks(packed)
    # FSDP averages the gradients of what it shards; scalars are not its own.
    for scalar, total in zip(scalars, totals[len(squares) :], strict=True):
        scalar.copy_(total / world_size())
    values = totals.tolist()
    # `values` continues behind the squares with the scalars' sums: so the zip is not strict.
    means = iter(value / world_size() for value in values[len(squares) :])
    norms = [abs(next(means)) if alone else value**0.5 for value, alone in zip(values, is_whole, strict=False)]
    return Gradients(names, tensors, norms)


def sharded_as(whole: Tensor, like: Tensor) -> Tensor:
    """This rank's shard of a whole tensor, cut as another one is; the tensor itself where that one is whole."""
    if not isinstance(like, DTensor) or whole.ndim == 0:  # scalars are never sharded
        return whole
    # Every rank holds the whole and cuts its own part: no rank needs to send anything.
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
