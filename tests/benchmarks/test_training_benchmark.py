"""The training benchmark measures what it says."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import training_runs
from training_runs import Setup

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
