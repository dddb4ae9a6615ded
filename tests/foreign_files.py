"""Checkpoints as programs write them: with configurations, arguments, optimisers and calls beside the weights."""

import argparse
import math
import os
import pathlib
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Call:
    """What calls a function of the file's choosing when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


def bomb(fired: Path) -> Call:
    return Call(os.system, f"touch {fired}")


def with_company(weights: dict[str, Tensor]) -> dict[str, Any]:
    """What frameworks save beside weights."""
    moments = {place: {"step": 1, "exp_avg": torch.zeros_like(value)} for place, value in enumerate(weights.values())}
    optimiser = {"state": moments, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [*moments]}]}
    return {
        "epoch": 3,
        "state_dict": OrderedDict(weights),
        "optimizer_states": [optimiser],
        "optimizer": optimiser,
        "args": argparse.Namespace(lr=0.1, out=pathlib.Path("runs"), nested=argparse.Namespace(x=[1, (2.5, None)])),
        "callbacks": {"best": np.float64(0.5), "device": torch.device("cpu"), "seen": {1, 2}, "by": defaultdict(list)},
        "rng": np.random.default_rng(0).integers(0, 9, 3),
        "scale": torch.ones((), dtype=torch.bfloat16),
    }


def prefixed(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: value for name, value in weights.items()}


def filled(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module in evaluation mode, with weights of a seed and statistics that differ from those of a new norm."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in module.state_dict().items():
        if value.ndim > 1:
            value.copy_(torch.randn(value.shape, generator=generator) / math.sqrt(value[0].numel()))
        elif value.is_floating_point():
            low = 0.5 if name.endswith(("weight", "running_var")) else -0.1
            value.copy_(torch.rand(value.shape, generator=generator) * 0.2 + low)
    return module.eval()
