"""What an encoder keeps for its backward pass, counted by hand, and the refusal of a batch that is too large."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.engine import memory
from counterpoint.engine.memory import check_memory, free_bytes, kept_bytes

CPU = torch.device("cpu")


def test_what_is_kept_is_what_a_hand_count_finds() -> None:
    """A convolution keeps its input, BatchNorm its input and two statistics, ReLU its output."""
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU())
    side = 16 * 16
    statistics = 2 * 2 // 2  # mean and deviation of two channels, over two samples
    assert kept_bytes(module, (1, 16, 16)) == 4 * (side + 2 * side + 2 * side + statistics)


def test_a_batch_beyond_the_memory_is_refused_with_a_chunk_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    each = kept_bytes(module, (3, 64, 64))
    number = memory.SMALL_BATCH // (3 * 64 * 64) + 1
    monkeypatch.setattr(memory, "free_bytes", lambda _: each * number - 1)
    with pytest.raises(
        UsageError, match=r"keep the batch and its negatives with --engine.chunk-size (\d+), or"
    ) as caught:
        check_memory(module, (3, 64, 64), number, device=CPU, is_half=False)
    chunk = int(str(caught.value).partition("--engine.chunk-size ")[2].partition(",")[0])
    assert number // 4 < chunk <= number // 2  # a power of two that takes at most half
    check_memory(module, (3, 64, 64), number, device=CPU, is_half=True)
    monkeypatch.setattr(memory, "free_bytes", lambda _: each * number)
    check_memory(module, (3, 64, 64), number, device=CPU, is_half=False)


def test_a_small_batch_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: 0)
    check_memory(nn.Linear(4, 4), (4,), 100, device=CPU, is_half=False)


def test_free_memory_is_within_that_of_the_machine() -> None:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    total = 1024 * int(text.split("MemTotal:")[1].split()[0])
    assert 0 < free_bytes(CPU) <= total


def test_training_says_so_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SMALL_BATCH", 1)
    monkeypatch.setattr(memory, "free_bytes", lambda _: 10**6)
    pictures = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), dtype=np.uint8)
    small = {"encoder": "resnet9-narrow", "batch_size": 32, "epochs": 1, "out": tmp_path / "run", "quiet": True}
    with pytest.raises(UsageError, match="chunk-norm true"):
        cp.train(pictures, **small)
    assert not (tmp_path / "run").exists()
    cp.train(pictures, **small, **{"engine.chunk_size": 8, "engine.chunk_norm": True})
