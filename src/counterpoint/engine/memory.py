"""Whether a batch can be encoded at once in the memory that there is, asked before the first step."""

import copy
import os
from pathlib import Path

import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError

NUM_TRIED = 2  # samples; what is kept for them is in proportion to any other number
SMALL_BATCH = 2**25  # values of a batch: below it no encoder fills a memory, and asking takes seconds
SHARE = 0.5  # of the memory that a chunk may take; weights, their gradients and moments need the rest
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def check_memory(
    backbone: nn.Module, in_shape: tuple[int, ...], num_samples: int, *, device: torch.device, is_half: bool
) -> None:
    """Refuse a batch whose representations cannot be computed at once, with the size of a chunk that can.

    What is counted is a lower bound: only what the encoder keeps for its backward pass.

    Args:
        backbone: the encoder.
        in_shape: of one sample.
        num_samples: views that pass the encoder in one go.
        device: where.
        is_half: the encoder computes in 16 bits.

    Raises:
        UsageError: more is needed than there is.
    """
    if num_samples * torch.Size(in_shape).numel() < SMALL_BATCH:
        return
    each = kept_bytes(backbone, in_shape) // (2 if is_half else 1)
    there = free_bytes(device)
    if each * num_samples <= there:
        return
    # The largest power of two that fits, at least 1.
    chunk = 1 << max(0, (int(SHARE * there) // max(1, each)).bit_length() - 1)
    has_norm = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in backbone.modules())
    norm = " --engine.chunk-norm true (BatchNorm with the statistics of each chunk)" if has_norm else ""
    raise UsageError(
        f"{num_samples} views at once need more than {each * num_samples / 1e9:,.0f} GB for the encoder's activations, "
        f"and {device.type} has {there / 1e9:,.1f} GB free: keep the batch and its negatives with --engine.chunk-size "
        f"{chunk}{norm}, or lower --batch-size"
    )


def kept_bytes(module: nn.Module, in_shape: tuple[int, ...]) -> int:
    """Bytes that a module keeps for the backward pass of one sample in float32, without its weights.

    Found on torch's meta device: shapes are followed, and nothing is computed.

    >>> kept_bytes(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), (8,))  # the input and the output
    48
    """
    module = copy.deepcopy(module).to("meta").train()
    weights = {value.untyped_storage()._cdata for value in (*module.parameters(), *module.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # holds them, so that no address is used twice

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage
        return value

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        module(torch.empty(NUM_TRIED, *in_shape, device="meta"))
    return sum(storage.nbytes() for storage in kept.values()) // NUM_TRIED


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device: of a GPU, or of this machine within the limit of its container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    if MEMINFO.exists():
        lines = (line.split() for line in MEMINFO.read_text(encoding="ascii").splitlines())
        free += [1024 * int(words[1]) for words in lines if words[0] == "MemAvailable:"]
    limits = [(CGROUP / f"memory.{name}") for name in ("max", "current")]
    if all(path.exists() for path in limits):
        most, used = (path.read_text(encoding="ascii").strip() for path in limits)
        free += [int(most) - int(used)] if most.isdigit() else []
    return max(0, min(free))
