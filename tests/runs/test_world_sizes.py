"""One process, two or four: the same samples, views, losses and weights, for every method."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from counterpoint.data.formats import indexed_images
from counterpoint.methods.catalogue import CATALOGUE
from counterpoint.nn.encoders import ResidualBlock
from counterpoint.runs.user_inputs import UserInputs
from data import picture_files as pictures
from rank_processes import RankResult, Result, run_on_ranks
from runs.rank_steps import Steps, job_of, take_steps
from tolerances import relative_error

pytestmark = pytest.mark.thorough

NUM_STEPS = 20
NUM_SAMPLES, SIDE, BATCH = 40, 8, 16
FOLDER = "COUNTERPOINT_TEST_FOLDER"  # where ranks find the pictures
WORKERS = (0, 1, 3)
METHOD_LIMIT = 1e-6
LOSS_LIMIT = 1e-5
ROUNDING = 1e-15  # such as the gradient of a bias before a BatchNorm, which is zero
EVERYWHERE = {"batch_size": BATCH, "epochs": 10, "source.holdout": 0.0, "seed": 7, "projector.features": 8}


def images() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (NUM_SAMPLES, 3, SIDE, SIDE), dtype=np.uint8)


def labels() -> np.ndarray:
    return np.arange(NUM_SAMPLES) % 4


def paired_file(folder: Path) -> Path:
    """Images with a caption's vector each."""
    path = folder / "pairs.npz"
    captions = np.random.default_rng(6).normal(size=(NUM_SAMPLES, 6)).astype(np.float32)
    np.savez(path, images=images(), captions=captions)
    return path


def steps_of(method: str, **settings: Any) -> Steps:
    """The first steps of a method, in 64-bit numbers."""
    chosen: dict[str, Any] = {**EVERYWHERE, "method": method, **settings}
    given = UserInputs(images(), labels())
    if CATALOGUE[method].wiring == "cross-modal":
        chosen["data"], given = os.environ[FOLDER] + "/pairs.npz", UserInputs()
    if CATALOGUE[method].wiring == "queue":
        chosen["target.queue_size"] = 2 * BATCH
    return take_steps(job_of(Path(os.environ[FOLDER]) / "run", given, **chosen), NUM_STEPS, torch.float64)


def every_method() -> Result:
    found: dict[str, Tensor | str] = {}
    for method in CATALOGUE:
        steps = steps_of(method)
        found |= {f"{method}/{name}": value for name, value in steps.tensors.items()}
        found[f"{method}/losses"] = torch.tensor(steps.losses, dtype=torch.float64)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    paired_file(folder)
    pictures.save_plain(folder / "pictures", [f"{i % 3}/{i}.png" for i in range(48)], np.random.default_rng(8))
    return folder


@pytest.fixture(scope="module", autouse=True)
def _folder_for_ranks(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder))
        yield


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, _folder_for_ranks: None) -> list[RankResult]:
    return run_on_ranks(every_method, 2, tmp_path_factory.mktemp("pair"), seconds=600)


def assert_equal_tensors(actual: Tensor, expected: Tensor, limit: float, name: str) -> None:
    """Largest difference over the largest entry; zeros of exact arithmetic may hold any rounding errors."""
    difference = float((actual.double() - expected.double()).abs().max()) if expected.numel() else 0.0
    error = relative_error(actual.double(), expected.double())
    assert error <= limit or difference <= ROUNDING, f"{name}: {error:.3g} relative, {difference:.3g}"


def assert_equal_runs(actual: dict[str, Tensor], expected: Steps, limit: float) -> None:
    """Losses, weights, buffers and optimiser state."""
    assert actual.keys() == {*expected.tensors, "losses"}
    losses = torch.tensor(expected.losses, dtype=torch.float64)
    for name, value in {**expected.tensors, "losses": losses}.items():
        assert_equal_tensors(actual[name], value, limit, name)


def of(result: RankResult, name: str) -> dict[str, Tensor]:
    return {key.split("/", 1)[1]: value for key, value in result.tensors.items() if key.split("/", 1)[0] == name}


@cache
def alone(method: str) -> Steps:
    return steps_of(method)


@pytest.mark.parametrize("method", CATALOGUE)
def test_two_ranks_are_one_process(pair: list[RankResult], method: str) -> None:
    expected = alone(method)
    assert len(expected.losses) == NUM_STEPS
    assert len(set(expected.losses)) == NUM_STEPS
    moved = [name for name, value in expected.start.items() if not torch.equal(value, expected.tensors[name])]
    assert len(moved) >= len(expected.start) - 2
    for result in pair:
        assert_equal_runs(of(result, method), expected, METHOD_LIMIT)


# --- the same run with copies and with shards

STRATEGIES = ("ddp", "fsdp")
FEW = 4


def encoder_with_blocks() -> nn.Module:
    """Residual blocks, which are sharded each by itself."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        blocks = nn.Sequential(ResidualBlock(6, 6, 1, 1), ResidualBlock(6, 8, 2, 1))
        return nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), blocks)


def few_steps(**settings: Any) -> Steps:
    """Some steps of MoCo, which has a momentum encoder and a queue."""
    chosen = {**EVERYWHERE, "encoder": "custom", "method": "moco", "target.queue_size": 16, **settings}
    given = UserInputs(images(), encoder=encoder_with_blocks())
    job = job_of(Path(os.environ[FOLDER]) / "run", given, **chosen)
    return take_steps(job, FEW, torch.float64)


def every_strategy() -> Result:
    found: dict[str, Tensor | str] = {}
    for name in STRATEGIES:
        steps = few_steps(**{"engine.strategy": name})
        found |= {f"{name}/{key}": value for key, value in steps.tensors.items()}
        found[f"{name}/losses"] = torch.tensor(steps.losses, dtype=torch.float64)
    return found


@pytest.fixture(scope="module")
def strategies(tmp_path_factory: pytest.TempPathFactory, _folder_for_ranks: None) -> list[RankResult]:
    return run_on_ranks(every_strategy, 2, tmp_path_factory.mktemp("strategies"), seconds=600)


@cache
def few_alone() -> Steps:
    return few_steps()


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_one_process(strategies: list[RankResult], name: str) -> None:
    for result in strategies:
        assert_equal_runs(of(result, name), few_alone(), METHOD_LIMIT)


# --- world sizes and workers


def seen_with_workers() -> Result:
    """Which samples each step had on this rank, with their views, and the losses, for each number of workers."""
    found: dict[str, Tensor | str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 0)  # pictures stay on disk, where workers read them
        for workers in WORKERS:
            settings = {**EVERYWHERE, "data": os.environ[FOLDER] + "/pictures", "engine.workers": workers}
            settings |= {"source.image_size": 16, "source.labels": "none"}
            job = job_of(Path(os.environ[FOLDER]) / "run", UserInputs(), **settings)
            assert (job.loader._pool is not None) == (workers > 0)
            steps = take_steps(job, 5)
            found[f"{workers}"] = json.dumps([list(step.items()) for step in steps.views])
            found[f"losses {workers}"] = torch.tensor(steps.losses, dtype=torch.float64)
    return found


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_world_sizes_and_workers_change_neither_samples_nor_views(
    tmp_path: Path, num_ranks: int, one_rank: RankResult
) -> None:
    results = [one_rank] if num_ranks == 1 else run_on_ranks(seen_with_workers, num_ranks, tmp_path, seconds=600)
    expected = [dict(step) for step in json.loads(one_rank.texts["0"])]
    assert len(expected) == 5
    assert all(len(step) == BATCH for step in expected)
    for workers in WORKERS:
        parts = [[[tuple(item) for item in step] for step in json.loads(one.texts[f"{workers}"])] for one in results]
        for number, step in enumerate(expected):
            together = [item for part in parts for item in part[number]]
            assert together == list(step.items()), f"step {number}, {workers} workers"
        for one in results:
            assert_equal_tensors(one.tensors[f"losses {workers}"], one_rank.tensors["losses 0"], LOSS_LIMIT, "losses")


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory, _folder_for_ranks: None) -> RankResult:
    return run_on_ranks(seen_with_workers, 1, tmp_path_factory.mktemp("one"), seconds=600)[0]
