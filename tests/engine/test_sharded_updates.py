"""Optimisers on shards: two gloo ranks with half of each weight equal one process with all."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.settings import OptimSettings
from counterpoint.engine.engine import shard, sharded_as, whole_tensor
from counterpoint.engine.optimisers import build_optimizer
from rank_processes import Result, run_on_ranks
from tolerances import assert_close

pytestmark = pytest.mark.thorough

NAMES = ("adamw", "adam", "sgd", "lars")
NUM_STEPS = 4


class Scaled(nn.Module):
    """Matrices, vectors, a counter, and a scalar, which stays whole."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
        self.scale = nn.Parameter(torch.tensor(0.5))


def trained(name: str, *, is_sharded: bool) -> dict[str, Tensor]:
    """Weights after some steps with given gradients."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Scaled()
    settings = OptimSettings(name=name, learning_rate=0.05, weight_decay=0.1)  # pyright: ignore[reportArgumentType]
    optimizer = build_optimizer(module, settings, is_sharded=is_sharded)
    if is_sharded:
        shard(module, optimizer, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    for _ in range(NUM_STEPS):
        for parameter in module.parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = sharded_as(gradient, parameter)
        optimizer.step()
    return {f"{name}.{key}": whole_tensor(v).clone() for key, v in module.state_dict().items()}


def all_trained(*, is_sharded: bool) -> dict[str, Tensor]:
    return {key: value for name in NAMES for key, value in trained(name, is_sharded=is_sharded).items()}


def sharded() -> Result:
    """What each rank does."""
    return dict(all_trained(is_sharded=True))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    return [result.tensors for result in run_on_ranks(sharded, 2, folder)]


@pytest.mark.thorough
def test_two_ranks_with_shards_equal_one_process(ranks: list[dict[str, Tensor]]) -> None:
    expected = all_trained(is_sharded=False)
    for tensors in ranks:
        assert tensors.keys() == expected.keys()
        for key, value in expected.items():
            if value.is_floating_point():
                assert_close(tensors[key], value)
            else:
                assert torch.equal(tensors[key], value)


def test_both_ranks_hold_the_same(ranks: list[dict[str, Tensor]]) -> None:
    assert all(torch.equal(ranks[0][key], ranks[1][key]) for key in ranks[0])
