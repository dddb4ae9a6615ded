"""Where a run is computed: device, precision, and which of several processes this one is."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import Ranks, read_ranks


@dataclass(frozen=True)
class Placement:
    """Where and in which precision a run is computed, and why.

    Attributes:
        device: cpu or cuda.
        precision: fp32, bf16 or fp16; of the encoder.
        reasons: why, by setting, for those that were ``auto``.
        ranks: this process among those that train together.
    """

    device: str
    precision: str
    reasons: dict[str, str]
    ranks: Ranks = field(default_factory=Ranks)

    @property
    def rank(self) -> int:
        """Number of this process; rank 0 writes the run folder."""
        return self.ranks.rank

    @property
    def local_rank(self) -> int:
        """Number of this process on its machine."""
        return self.ranks.local_rank

    @property
    def world_size(self) -> int:
        """Number of processes that share a batch."""
        return self.ranks.world_size

    @property
    def torch_device(self) -> torch.device:
        """This process's own device."""
        if self.device != "cuda":
            return torch.device(self.device)
        return torch.device("cuda", 0 if self.ranks.has_own_gpus else self.ranks.local_rank)


def place(device: str, precision: str, *, environment: Mapping[str, str] | None = None) -> Placement:
    """Fill in ``auto``, and find out which of several processes this one is.

    Args:
        device: auto, cpu or cuda.
        precision: auto, fp32, bf16 or fp16.
        environment: where torchrun and SLURM write (default: this process's).

    Raises:
        UsageError: a GPU is asked for and none is there, or more ranks than GPUs, or float16 without a GPU.
    """
    ranks = read_ranks(os.environ if environment is None else environment)
    reasons: dict[str, str] = {}
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        device = "cuda" if num_gpus else "cpu"
        reasons["engine.device"] = "a GPU is there" if num_gpus else "no GPU was found"
    elif device == "cuda" and not num_gpus:
        raise UsageError("engine.device is cuda, but torch finds no GPU here; use --engine.device cpu")
    if device == "cuda" and not ranks.has_own_gpus and ranks.local_world_size > num_gpus:
        raise UsageError(
            f"{ranks.local_world_size} ranks on this machine, but it has {_gpus(num_gpus)}; start at most one rank per "
            "GPU, or use --engine.device cpu"
        )
    if precision == "auto":
        has_bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "fp32"
        reasons["engine.precision"] = (
            "the GPU computes bfloat16 natively" if has_bf16 else "full precision on this device"
        )
    if precision == "fp16" and device != "cuda":
        raise UsageError("engine.precision fp16 needs a GPU, and the device is cpu; use fp32 or bf16")
    return Placement(device, precision, reasons, ranks)


def _gpus(count: int) -> str:
    return f"{count} GPU" + ("" if count == 1 else "s")
