"""A resumed run equals the uninterrupted one bit for bit, and keeps to its settings and its data."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import InterruptedRunError, RunError, UsageError
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from counterpoint.methods.joint import JointEmbedding

NUM_SAMPLES = 50
BATCHES = NUM_SAMPLES // 16
SMALL: dict[str, Any] = {"epochs": 4, "batch_size": 16, "quiet": True}


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (NUM_SAMPLES, 8, 8), dtype=np.uint8)


def stop_after(monkeypatch: pytest.MonkeyPatch, num_steps: int) -> None:
    """Let Ctrl-C arrive during a step."""
    original, calls = JointEmbedding.forward, []

    def forward(self: JointEmbedding, *views: Any) -> Tensor:
        calls.append(1)
        if len(calls) == num_steps:
            signal.raise_signal(signal.SIGINT)
        return original(self, *views)

    monkeypatch.setattr(JointEmbedding, "forward", forward)


def interrupted(monkeypatch: pytest.MonkeyPatch, num_steps: int, data: Any, **settings: Any) -> Path:
    """A run that was stopped after some steps."""
    with monkeypatch.context() as patch:
        stop_after(patch, num_steps)
        with pytest.raises(InterruptedRunError):
            cp.train(data, **{**SMALL, **settings})
    return Path(settings["out"])


def losses(run: cp.Run) -> list[float]:
    return [record["loss"] for record in run.metrics]


def assert_same_run(actual: cp.Run, expected: cp.Run) -> None:
    assert actual.folder.weights.read_bytes() == expected.folder.weights.read_bytes()
    assert losses(actual) == losses(expected)


@pytest.mark.thorough
def test_mid_epoch_and_at_an_epochs_end(tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cp.train(images, method="ncl", out=tmp_path / "whole", **SMALL)
    for name, num_steps in (("mid", BATCHES + 1), ("end", 2 * BATCHES)):
        path = interrupted(monkeypatch, num_steps, images, method="ncl", out=tmp_path / name)
        status = cp.Run(path).folder.read_status()
        assert status.status == "interrupted"
        assert not (path / "encoder.safetensors").exists()
        resumed = cp.resume(cp.Run(path, data=images), quiet=True)
        assert resumed.folder.read_status().status == "finished"
        assert (resumed.folder.read_status().seconds or 0.0) > (status.seconds or 0.0)
        assert_same_run(resumed, whole)


@pytest.mark.thorough
def test_twice_with_workers_sgd_and_dropout_of_the_users_own(
    tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Dropout(0.5))

    settings = {"optim": {"name": "sgd"}, "engine": {"workers": 2}}
    whole = cp.train(images, encoder=network(), out=tmp_path / "whole", **settings, **SMALL)
    path = interrupted(monkeypatch, 4, images, encoder=network(), out=tmp_path / "run", **settings)
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(InterruptedRunError):
            cp.resume(cp.Run(path, data=images, encoder=network()), quiet=True)
    assert_same_run(cp.resume(cp.Run(path, data=images, encoder=network()), quiet=True), whole)


@pytest.mark.thorough
def test_views_encoded_apart_resume_and_verify(
    tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each view has BatchNorm statistics of its own: other weights than together, the same in each run."""

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())

    apart = {"engine": {"encode_views": "apart"}}
    whole = cp.train(images, encoder=network(), out=tmp_path / "whole", **apart, **SMALL)
    together = cp.train(images, encoder=network(), out=tmp_path / "together", **SMALL)
    assert losses(whole) != losses(together)
    path = interrupted(monkeypatch, BATCHES + 1, images, encoder=network(), out=tmp_path / "run", **apart)
    resumed = cp.resume(cp.Run(path, data=images, encoder=network()), quiet=True)
    assert_same_run(resumed, whole)
    assert all(check.result != "failed" for check in cp.verify(resumed, quiet=True).checks)


@pytest.mark.parametrize("shape", [(4, 4), (1, 1, 1), (20, 9), (9, 20, 3), (1030, 2)], ids=str)
@pytest.mark.sampled(12)
def test_images_of_any_size_and_shape_resume_and_are_judged(
    tmp_path: Path, shape: tuple[int, ...], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 6))

    images, labels = rng.integers(0, 256, (NUM_SAMPLES, *shape), dtype=np.uint8), np.arange(NUM_SAMPLES) % 2
    settings = {"labels": labels, "views": {"preset": "none"}}
    whole = cp.train(images, encoder=network(), out=tmp_path / "whole", **settings, **SMALL)
    path = interrupted(monkeypatch, 2, images, encoder=network(), out=tmp_path / "run", **settings)
    known = cp.Run(path, data=images, labels=labels, encoder=network())
    assert_same_run(cp.resume(known, quiet=True), whole)
    assert len(cp.evaluate(known, k=3, quiet=True).rows) == 6
    assert cp.embed(known, quiet=True).vectors.shape == (NUM_SAMPLES, 6)


@pytest.mark.thorough
def test_train_with_resume_goes_on_where_there_is_a_run_and_begins_where_there_is_none(
    tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = cp.train(images, out=tmp_path / "whole", resume=True, **SMALL)
    path = interrupted(monkeypatch, 5, images, out=tmp_path / "run")
    assert_same_run(cp.train(images, out=path, resume=True, **SMALL), whole)


def test_a_finished_run_stays_as_it_is(tmp_path: Path, images: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    run = cp.train(images, out=tmp_path / "run", **SMALL)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    again = cp.resume(run.path)
    assert again.path == run.path
    assert "is finished; nothing to resume" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


@pytest.mark.parametrize("name", ["encoder.safetensors", "encoder.json"])
@pytest.mark.thorough
def test_a_finished_run_with_a_damaged_encoder_gets_it_back(tmp_path: Path, images: np.ndarray, name: str) -> None:
    run = cp.train(images, out=tmp_path / "run", **SMALL)
    content = (run.path / name).read_bytes()
    (run.path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match="damaged"):
        cp.load(run.path)
    cp.resume(run, quiet=True)
    assert (run.path / name).read_bytes() == content


def test_a_checkpoint_that_a_killed_save_left_too_many_is_dropped(tmp_path: Path, images: np.ndarray) -> None:
    run = cp.train(images, out=tmp_path / "run", **SMALL)
    kept = list_checkpoints(run.folder.checkpoints)
    saved = load_checkpoint(kept[0])
    save_checkpoint(run.folder.checkpoints, replace(saved, position=replace(saved.position, step=1)), keep=9)
    run.folder.weights.unlink()  # killed before it was done: no save follows
    cp.resume(run, quiet=True)
    assert list_checkpoints(run.folder.checkpoints) == kept


# --- the same settings, the same data


@pytest.mark.thorough
def test_changed_data_or_labels_are_refused(
    tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.arange(NUM_SAMPLES) % 2
    path = interrupted(monkeypatch, 2, images, labels=labels, out=tmp_path / "run")
    changed, relabelled = images.copy(), labels.copy()
    changed[0, 0, 0] ^= 1
    relabelled[0] = 1
    for data, given in ((changed, labels), (images, relabelled), (images[:-1], labels[:-1])):
        with pytest.raises(RunError, match="data"):
            cp.resume(cp.Run(path, data=data, labels=given), quiet=True)
    assert cp.Run(path).folder.read_status().status == "interrupted"
    cp.resume(cp.Run(path, data=images, labels=labels), quiet=True)


def test_an_array_or_a_module_must_be_given_again(
    tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def network(width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width))

    path = interrupted(monkeypatch, 2, images, encoder=network(16), out=tmp_path / "run")
    with pytest.raises(UsageError, match="data="):
        cp.resume(path, quiet=True)
    with pytest.raises(UsageError, match="encoder="):
        cp.resume(cp.Run(path, data=images), quiet=True)
    with pytest.raises(RunError, match="does not fit this model") as caught:
        cp.resume(cp.Run(path, data=images, encoder=network(8)), quiet=True)
    assert "\n" not in str(caught.value)
    cp.resume(cp.Run(path, data=images, encoder=network(16)), quiet=True)


# --- what is no run, or no longer one


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_a_run_goes_on_with_as_many_threads_as_it_began_with(
    tmp_path: Path,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    set_threads: Callable[[int], None],
) -> None:
    """Sums over 512 views are split over threads, and end in other bits with another number of them."""
    vectors = rng.normal(size=(600, 32)).astype(np.float32)
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 256, "quiet": True}
    runs = {}
    for number in (1, 2):
        set_threads(number)
        runs[number] = cp.train(vectors, out=tmp_path / f"whole-{number}", **settings)
    assert runs[1].folder.weights.read_bytes() != runs[2].folder.weights.read_bytes()
    set_threads(1)
    stopped = interrupted(monkeypatch, 3, vectors, out=tmp_path / "stopped", **settings)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    set_threads(2)
    resumed = cp.resume(cp.Run(stopped, data=vectors))
    assert_same_run(resumed, runs[1])
    assert "threads: 1, as it began, not 2 as here" in capsys.readouterr().err
    assert torch.get_num_threads() == 2
    assert "threads" not in [check.what for check in cp.verify(resumed, quiet=True).checks]


def test_another_number_of_threads_is_said_by_resume_and_verify(
    tmp_path: Path,
    images: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    set_threads: Callable[[int], None],
) -> None:
    set_threads(2)
    stopped = interrupted(monkeypatch, 5, images, out=tmp_path / "stopped")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # another machine
    set_threads(1)
    run = cp.resume(cp.Run(stopped, data=images))
    assert "threads: 1, and it began with 2 (processors here: 1)" in capsys.readouterr().err
    (threads,) = [check for check in cp.verify(run, quiet=True).checks if check.what == "threads"]
    assert (threads.result, threads.detail[:30]) == ("not checked", "began with 2, continued with 1")
