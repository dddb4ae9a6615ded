"""Small snapshots for tests of checkpoints: every kind of optimiser state, and comparison to the last bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from counterpoint.engine.checkpoint import Position, Snapshot, save_checkpoint
from counterpoint.engine.engine import FullState

FILES = ("model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json", "MANIFEST.json")
OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "adamw": lambda module: torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1),
    "sgd": lambda module: torch.optim.SGD(module.parameters(), lr=1e-2, momentum=0.9),
    "sgd without momentum": lambda module: torch.optim.SGD(module.parameters(), lr=1e-2),
}


def trained(name: str = "adamw", num_steps: int = 3) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(0)
    first = nn.Conv2d(1, 3, 2).to(memory_format=torch.channels_last)
    module = nn.Sequential(first, nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 4))
    optimizer, generator = OPTIMIZERS[name](module), torch.Generator().manual_seed(1)
    for _ in range(num_steps):
        optimizer.zero_grad()
        module(torch.randn(6, 1, 4, 4, generator=generator)).square().mean().backward()
        optimizer.step()
    return module, optimizer


def snapshot_of(pair: tuple[nn.Module, Optimizer], step: int, **changes: Any) -> Snapshot:
    module, optimizer = pair
    parts: dict[str, Any] = {
        "state": FullState(dict(module.state_dict()), optimizer.state_dict(), {"scale": 65536.0}),
        "average": {name: value * 0.5 for name, value in module.state_dict().items()},
        "position": Position(epoch=step // 4, batch=step % 4, step=step),
        "log": {"loss_sum": 0.1 * step},
        "facts": {"seed": 3},
    }
    return Snapshot(**{**parts, **changes})


def save(folder: Path, step: int, pair: tuple[nn.Module, Optimizer] | None = None, *, keep: int = 9) -> Path:
    return save_checkpoint(folder, snapshot_of(pair or trained(num_steps=step), step), keep=keep)


def tiny(step: int) -> Snapshot:
    """A few hundred bytes, for tests that write thousands; two of them differ in every tensor but in no length."""
    generator = torch.Generator().manual_seed(step)
    model = {"weight": torch.randn(5, 2, generator=generator), "count": torch.tensor(step)}
    moments = {0: {"step": torch.tensor(float(step)), "exp_avg": torch.randn(5, 2, generator=generator)}}
    groups = [{"lr": 0.001, "betas": (0.9, 0.999), "foreach": None, "params": [0]}]
    average = {"weight": torch.randn(5, 2, generator=generator)}
    state = FullState(model, {"state": moments, "param_groups": groups}, {})
    return Snapshot(state, average, Position(0, step, step), {"loss_sum": 0.25}, {"seed": 3})


def assert_same(actual: Any, expected: Any) -> None:
    """Types, dtypes, shapes and bits."""
    assert type(actual) is type(expected)
    if isinstance(expected, Tensor):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert torch.equal(actual, expected)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(actual[key], value)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif hasattr(expected, "__dataclass_fields__"):
        assert_same(vars(actual), vars(expected))
    else:
        assert actual == expected
