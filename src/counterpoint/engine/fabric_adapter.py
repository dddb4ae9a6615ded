"""The only module that imports Lightning Fabric: device, precision, and the optimisation step."""

import logging
import warnings
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from counterpoint.core.errors import UsageError

FABRIC_PRECISION = {"fp32": "32-true", "bf16": "bf16-mixed"}


@dataclass(frozen=True)
class Placement:
    """Where and in which precision a run is computed, and why."""

    device: str
    precision: str
    reasons: dict[str, str]


def place(device: str, precision: str) -> Placement:
    """Fill in ``auto``.

    Raises:
        UsageError: a GPU is asked for and none is there.
    """
    reasons: dict[str, str] = {}
    has_gpu = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if has_gpu else "cpu"
        reasons["engine.device"] = "a GPU is there" if has_gpu else "no GPU was found"
    elif device == "cuda" and not has_gpu:
        raise UsageError("engine.device is cuda, but torch finds no GPU here; use --engine.device cpu")
    if precision == "auto":
        has_bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "fp32"
        reasons["engine.precision"] = (
            "the GPU computes bfloat16 natively" if has_bf16 else "full precision on this device"
        )
    return Placement(device, precision, reasons)


class FabricEngine:
    """One device: casts, back-propagates and steps through Fabric.

    Args:
        placement: device and precision, filled in.
    """

    def __init__(self, placement: Placement) -> None:
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
            self._fabric = Fabric(
                accelerator=placement.device,
                devices=1,
                precision=FABRIC_PRECISION[placement.precision],  # pyright: ignore[reportArgumentType]
            )

    @property
    def device(self) -> torch.device:
        """Where batches belong."""
        return self._fabric.device

    def setup(self, module: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Move the module to the device and wrap both for ``step``; the originals share all state."""
        # Channels last is what the CPU's and GPU's convolutions are written for; it changes no other parameter.
        module.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        wrapped_module, wrapped_optimizer = self._fabric.setup(module, optimizer)
        return wrapped_module, wrapped_optimizer  # pyright: ignore[reportReturnType]

    def step(self, loss: Tensor, optimizer: Optimizer) -> None:
        """Back-propagate and update."""
        optimizer.zero_grad()
        self._fabric.backward(loss)
        optimizer.step()
