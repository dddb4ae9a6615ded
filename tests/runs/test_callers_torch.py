"""What the caller has set in torch, and what other threads do, changes no bit of a run; or one sentence refuses it."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.torch_state import GENERATOR, own_draws

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
}
SMALL: dict[str, Any] = {"method": "simclr", "epochs": 1, "batch_size": 8, "quiet": True}


def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32)


def weights(run: cp.Run) -> bytes:
    return run.folder.weights.read_bytes()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    return cp.train(vectors(), out=tmp_path_factory.mktemp("plain") / "run", **SMALL)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_modes_of_the_caller_change_no_bit(
    plain: cp.Run, tmp_path: Path, mode: Callable[[], AbstractContextManager[Any]]
) -> None:
    embedded, encoder = cp.embed(plain, quiet=True).vectors, cp.load(plain.path)
    with mode():
        trained = cp.train(vectors(), out=tmp_path / "run", **SMALL)
        assert np.array_equal(cp.embed(plain, quiet=True).vectors, embedded)
        assert np.array_equal(encoder.represent(vectors()), embedded)
    assert weights(trained) == weights(plain)


def test_another_default_dtype_is_refused(plain: cp.Run, tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(cp.UsageError, match=r"default dtype is torch.float64.*set_default_dtype\(torch.float32\)"):
            cp.train(vectors(), out=tmp_path / "run", **SMALL)
        with pytest.raises(cp.UsageError, match="default dtype is"):
            cp.load(plain.path)
    finally:
        torch.set_default_dtype(torch.float32)
    assert not (tmp_path / "run").exists()


def test_a_second_training_in_one_process_is_refused(plain: cp.Run, tmp_path: Path) -> None:
    """In another thread and within a callback: both would draw from one generator."""
    refused: list[str] = []

    def train_another(name: str) -> None:
        try:
            cp.train(vectors(), out=tmp_path / name, **SMALL)
        except cp.UsageError as error:
            refused.append(str(error))

    class Meddler(nn.Module):
        def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
            if not refused:
                beside = threading.Thread(target=train_another, args=("beside",))
                beside.start()
                beside.join()
                train_another("within")
            return (z0 - z1).square().mean()

    cp.train(vectors(), out=tmp_path / "run", loss=Meddler(), **SMALL)
    assert len(refused) == 2
    assert all("another training is at work in this process" in each for each in refused)
    assert not (tmp_path / "beside").exists()
    assert not (tmp_path / "within").exists()
    # Let go after the run, also after one that failed.
    with pytest.raises(cp.CounterpointError):
        cp.train(vectors()[:2], out=tmp_path / "few", **SMALL)
    assert weights(cp.train(vectors(), out=tmp_path / "after", **SMALL)) == weights(plain)


def test_draws_of_another_thread_wait() -> None:
    """A step holds the generator: what another thread draws meanwhile is its own, and so is what the step draws."""
    drawn: list[Tensor] = []

    def draw() -> None:
        with own_draws(seed=1):
            drawn.append(torch.rand(3))

    with GENERATOR:
        torch.manual_seed(0)
        other = threading.Thread(target=draw)
        other.start()
        other.join(0.05)
        here = torch.rand(3)
    other.join()
    assert torch.equal(here, torch.rand(3, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(drawn[0], torch.rand(3, generator=torch.Generator().manual_seed(1)))
