"""The command on a disk that fails: one line, an exit code that is not 0, and nothing lost that was saved."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from counterpoint.cli.main import main
from counterpoint.engine.checkpoint import list_checkpoints
from counterpoint.engine.checkpoint_format import find_damage
from failing_disk import FAULTS, FailingDisk

pytestmark = pytest.mark.thorough

NUM_SAMPLES, BATCH = 24, 8
WORDS = ["--method", "moco", "--encoder", "mlp", "--target.queue-size", "16"]
WORDS += ["--epochs", "2", "--batch-size", str(BATCH), "--engine.checkpoint-steps", "2", "--engine.device", "cpu", "-q"]
FILES = ("metrics.jsonl", "encoder.safetensors", "encoder.json", "checkpoints/step-00000006/MANIFEST.json")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("data") / "vectors.npy"
    np.save(path, np.random.default_rng(5).standard_normal((NUM_SAMPLES, 4)).astype(np.float32))
    return ["train", "--data", str(path), *WORDS]


@pytest.fixture(scope="module")
def whole(train: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the run computes on a disk in order."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main([*train, "--out", str(run)]) == 0
    return {name: (run / name).read_bytes() for name in FILES}


def main_on(disk: FailingDisk, words: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        return main(words)


def num_calls(train: list[str], folder: Path) -> int:
    """Calls of a whole run."""
    disk = FailingDisk(0, 10**9, is_lasting=False)
    assert main_on(disk, [*train, "--out", str(folder / "counted")]) == 0
    return len(disk.names)


def attempts(train: list[str], folder: Path, *, share: float) -> Iterator[int]:
    """Which call fails: all of them, or a share drawn from a fixed seed."""
    number = num_calls(train, folder)
    assert number > 200
    draw = np.random.default_rng(11)
    yield from (first for first in range(1, number + 1) if draw.random() < share)


def fail_at(
    first: int, train: list[str], run: Path, whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> str | None:
    """Let one call of a run fail; returns its name if the run stopped at it."""
    number = list(FAULTS.values())[first % len(FAULTS)]
    disk = FailingDisk(number, first, is_lasting=False)
    capsys.readouterr()
    code = main_on(disk, [*train, "--out", str(run)])
    said = capsys.readouterr().err
    assert disk.failed
    if code != 0:
        (line,) = said.splitlines()
        assert line.startswith("counterpoint train: error: "), line
        assert os.strerror(number) in line
        assert all(find_damage(path) is None for path in list_checkpoints(run / "checkpoints"))
        has_saved = bool(list_checkpoints(run / "checkpoints"))
        again = ["resume", str(run), "-q"] if has_saved else [*train, "--out", str(run), "--overwrite"]
        if not run.exists() or not (run / "run.json").exists():
            again = [*train, "--out", f"{run}-again"]
            run = Path(f"{run}-again")
        assert main(again) == 0, capsys.readouterr().err
    assert [name for name in FILES if (run / name).read_bytes() != whole[name]] == [], (first, disk.failed, code)
    return disk.failed[0] if code != 0 else None


def test_some_calls_of_a_run_fail_in_turn(
    tmp_path: Path, train: list[str], whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    told = [
        fail_at(first, train, tmp_path / str(first), whole, capsys) for first in attempts(train, tmp_path, share=0.05)
    ]
    assert sum(name is not None for name in told) >= 5


@pytest.mark.slow
def test_every_call_of_a_run_fails_in_turn(
    tmp_path: Path, train: list[str], whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    told = {fail_at(first, train, tmp_path / str(first), whole, capsys) for first in attempts(train, tmp_path, share=1)}
    assert {"open", "write", "fsync", "close", "rename", "replace", "mkdir"} <= told


def test_a_disk_that_is_full_from_some_moment_on_stops_the_run_in_one_line(
    tmp_path: Path, train: list[str], whole: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    half = num_calls(train, tmp_path) // 2
    for number, first in zip(FAULTS.values(), count(half, 7), strict=False):
        run = tmp_path / str(first)
        disk = FailingDisk(number, first, is_lasting=True)
        capsys.readouterr()
        assert main_on(disk, [*train, "--out", str(run)]) != 0
        (line,) = capsys.readouterr().err.splitlines()
        assert os.strerror(number) in line
        assert main(["resume", str(run), "-q"]) == 0
        assert [name for name in FILES if (run / name).read_bytes() != whole[name]] == []
