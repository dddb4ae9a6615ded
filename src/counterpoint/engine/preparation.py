"""What is done to a method before it is wrapped: device, memory layout, compilation, shards."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from counterpoint.engine.sharding import shard
from counterpoint.nn.synced_norm import keep_out_of_graphs

LOW_PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16}


# Buffers are equal on all ranks by themselves: normalisation is synced, queues hold the samples of all.
def data_parallel_options(world_size: int) -> dict[str, Any]:
    """Arguments of ``DistributedDataParallel``.

    After the first step DDP sorts its buckets anew, and with them the order in which more than two ranks are summed:
    the first step of a resumed run would differ in the last bit. With ``find_unused_parameters`` it keeps the order.

    Args:
        world_size: number of ranks.
    """
    return {
        "broadcast_buffers": False,
        "gradient_as_bucket_view": True,
        "find_unused_parameters": world_size > 2,
    }


@dataclass(frozen=True)
class Preparation:
    """How a method is prepared.

    Attributes:
        device: where it computes.
        compiles: compile the encoder, in place: names of its parameters stay.
        shards: keep a part of each weight per rank.
    """

    device: torch.device
    compiles: bool = False
    shards: bool = False


def prepare(method: nn.Module, optimizer: Optimizer, plan: Preparation) -> None:
    """Move, lay out, compile and shard a method in place; the optimiser keeps its parameters, or their shards."""
    method.to(plan.device)
    if plan.compiles:
        encoder = getattr(method, "backbone", method)
        assert isinstance(encoder, nn.Module)
        keep_out_of_graphs(encoder)
        encoder.compile()
    if plan.shards:
        shard(method, optimizer, plan.device)
    else:
        # Channels last is what the CPU's and GPU's convolutions are written for; it changes no other parameter.
        # Shards must be contiguous and do without.
        method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
