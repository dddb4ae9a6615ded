"""The training benchmark measures what it says, and refuses unequal work."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import training
import training_runs
from training_runs import PARTS, WARM_UPS, Setup

from counterpoint.data.loader import Batch

pytestmark = pytest.mark.thorough


@pytest.fixture
def setup(rng: np.random.Generator) -> Setup:
    """Four steps of four small images; any encoder will do."""
    images = rng.integers(0, 256, (16, 16, 16, 3), dtype=np.uint8)
    return Setup(images, "convnet", 4, "fp32", "cpu")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_bare_loop_does_what_the_engine_does(setup: Setup, precision: str, tmp_path: Path) -> None:
    """Same batches, views, loss and optimiser: at one learning rate, both end with the same weights."""
    setup = replace(setup, precision=precision)
    job = training_runs.make_job(setup, tmp_path / "run")
    bare, before = copy.deepcopy(job.method), copy.deepcopy(job.method)
    decay = job.optimizer.param_groups[0]["weight_decay"]
    assert decay > 0
    step = training_runs.bare_step(bare, job.views, decay, setup)
    loader = training_runs.Interleaved(job.loader, {"bare": step})
    constant = replace(job.schedule, peak=training_runs.LEARNING_RATE, num_warmup=0, final_share=1.0)
    steady = replace(job, loader=loader, schedule=constant)  # pyright: ignore[reportArgumentType]
    training_runs.run_training(steady, training_runs.Reporter(quiet=True))
    weights = [list(method.state_dict().values()) for method in (job.method, bare, before)]
    for ours, theirs, first in zip(*weights, strict=True):
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, first)


def test_a_step_ends_when_the_next_batch_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = [0.0]
    monkeypatch.setattr(training_runs, "now", lambda: ticks[0])

    class Loader:
        order = None

        def epoch(self, epoch: int, *, first_batch: int):
            for number in range(3):
                ticks[0] += 1  # fetching belongs to the step
                yield Batch(torch.tensor([number]), torch.tensor([number]), torch.zeros(1))

    def other(batch: Batch) -> None:
        ticks[0] += 100

    loader = training_runs.Interleaved(Loader(), {"other": other})  # pyright: ignore[reportArgumentType]
    for _ in loader.epoch(0):
        ticks[0] += 10
    assert loader.seconds == {"ours": [11, 11, 11], "other": [100, 100, 100]}


def test_the_parts_make_up_the_step(setup: Setup, tmp_path: Path) -> None:
    found = training_runs.part_seconds(setup, tmp_path / "run")
    assert set(found) == {*PARTS, "step"}
    assert all(value > 0 for seconds in found.values() for value in seconds)
    for number, whole in enumerate(found["step"]):
        assert sum(found[part][number] for part in PARTS) <= whole


@pytest.mark.slow
def test_the_example_of_lightly_trains_the_same_encoder(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lightly_simclr = pytest.importorskip("lightly_simclr", reason="lightly or pytorch-lightning is not installed")
    setup = Setup(rng.integers(0, 256, (8, 16, 16, 3), dtype=np.uint8), "resnet9", 2, "fp32", "cpu")
    method = training_runs.make_job(setup, tmp_path / "run").method
    assert lightly_simclr.differences(method, "resnet9") == []
    (text,) = lightly_simclr.differences(method, "resnet18")
    assert "encoders have other weights" in text
    for loads in (True, False):
        assert len(lightly_simclr.lightly_seconds(setup, loads=loads)) == setup.num_steps - WARM_UPS
    monkeypatch.setattr(lightly_simclr, "TEMPERATURE", 0.1)
    assert "losses differ" in " ".join(lightly_simclr.differences(method, "resnet9"))


def test_unequal_work_is_not_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(training, "differences_from_peer", lambda *_: ["the losses differ"])
    assert training.main(["--quick"]) == 1
    output = capsys.readouterr()
    assert "the losses differ" in output.err
    assert "| ours |" not in output.out
