"""Encoders too large for one GPU: every rank keeps a part of each weight and borrows the rest (FSDP2).

The only module besides ``core.dist`` that knows torch.distributed: the types and hooks of sharded parameters live
there. Weights, gradients and optimiser state are sharded along their first axis; buffers are whole on every rank.
Scalar parameters cannot be sharded and stay whole, too.
"""

from collections.abc import Iterator
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from counterpoint.core.dist import sum_over_ranks, world_size
from counterpoint.core.errors import UsageError
from counterpoint.engine.gradients import Gradients, norms_of, with_gradients

# Before 2.7 no parameter could be left whole, and on the CPU no weight was gathered.
CAN_SHARD = "ignored_params" in signature(fully_shard).parameters


def shard(method: nn.Module, optimizer: Optimizer, device: torch.device) -> None:
    """Shard a method in place, block by block; the optimiser continues with the shards.

    Every rank must hold the same weights before: nothing is sent.

    Args:
        method: on its device already, in torch's usual memory layout.
        optimizer: of its parameters, before its first step.
        device: where this rank computes.
    """
    assert not optimizer.state, "optimisers are sharded before their first step"
    mesh = init_device_mesh(device.type, (world_size(),))
    # By name, as `fully_shard` puts new parameters in the place of those that the optimiser knows.
    place_of = {parameter: name for name, parameter in method.named_parameters()}
    whole = {parameter for parameter in place_of if parameter.ndim == 0}
    if not CAN_SHARD:
        raise UsageError("strategy fsdp needs torch 2.7 or newer; install it, or use strategy ddp")
    kept_whole: dict[str, Any] = {"ignored_params": whole} if whole else {}
    # From the inside out: a unit takes what no unit within it has taken.
    units = [*blocks(method), *(part for part in [getattr(method, "backbone", None)] if part is not None), method]
    for unit in units:
        fully_shard(unit, mesh=mesh, **kept_whole)
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
        method: after the backward pass. Scalars' gradients are averaged over ranks here, in place.
    """
    names, gradients = with_gradients(method)
    # What this rank holds; the squares of these lengths are added up over ranks.
    tensors = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
    is_whole = [not isinstance(gradient, DTensor) for gradient in gradients]
    # In float64: the square of a large float32 length overflows.
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


def whole_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself, or all shards of it put together; every rank must ask for the same ones in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def sharded_as(whole: Tensor, like: Tensor) -> Tensor:
    """This rank's shard of a whole tensor, cut as another one is; the tensor itself where that one is whole."""
    if not isinstance(like, DTensor) or whole.ndim == 0:  # scalars are never sharded
        return whole
    # Every rank holds the whole and cuts its own part: no rank needs to send anything.
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
