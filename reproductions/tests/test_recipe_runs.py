"""Every recipe takes steps at its own hyper-parameters on random pictures."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, nest
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.engine.step import take_step
from counterpoint.runs.active_settings import check_choices, refuse_idle
from counterpoint.runs.assembly import assemble
from counterpoint.runs.recipes import all_recipes, recipe_named
from counterpoint.runs.resolve import resolve_holdout
from counterpoint.runs.run_job import training_job
from counterpoint.runs.user_inputs import Given, open_given

# The parts of named sets and the size of photographs in folders have no meaning for a file of pictures.
ELSEWHERE = {"source.split": "auto", "source.image_size": "auto"}
CLASSES = ("airplane", "automobile", "bird", "cat")
SMALL_SIDES = {"cifar10": 32, "cifar100": 32, "dsprites": 64, "tinyimagenet": 64, "stl10": 96}
SIDES = {**SMALL_SIDES, "imagenet100": 224, "imagenet": 224}


def pictures_file(folder: Path, *, number: int, side: int, counts: tuple[int, ...] = ()) -> Path:
    """Random pictures of four classes, equally many of each or as many as are counted."""
    generator = np.random.default_rng(0)
    labels = np.repeat(CLASSES[: len(counts)], counts) if counts else np.resize(CLASSES, number)
    path = folder / "pictures.npz"
    np.savez(path, images=generator.integers(0, 256, (len(labels), side, side, 3), dtype=np.uint8), labels=labels)
    return path


def settings_of(recipe: str, data: Path, changes: Mapping[str, Any]) -> TrainSettings:
    """A recipe's settings for a file of pictures, some of them changed."""
    asked = {**recipe_named(recipe).settings, **ELSEWHERE, "engine.device": "auto", "data": str(data), **changes}
    known = {path: value for path, value in asked.items() if path in recipe_named(recipe).settings or value != "auto"}
    return build(TrainSettings, nest(known), recipe)


def job_of(settings: TrainSettings, folder: Path) -> TrainingJob:
    """The training job as ``train`` builds it; nothing is written."""
    check_choices(settings)
    placement = place(settings.engine.device, settings.engine.precision)
    source = open_given(settings, Given(), Reporter(quiet=True))
    assembled = assemble(resolve_holdout(settings, source), source, placement, Given())
    refuse_idle(settings, assembled.resolution.idle)
    return training_job(assembled, RunFolder(folder / "run"))


def take_two_steps(job: TrainingJob) -> list[float]:
    """The losses of the first two steps."""
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    losses = []
    for number, batch in zip(range(2), job.loader.epoch(0, first_batch=0), strict=False):
        losses.append(take_step(job, batch, Position(0, number, number)).loss)
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("name", all_recipes())
def test_a_recipe_takes_two_steps_at_its_own_hyper_parameters(name: str, tmp_path: Path) -> None:
    """With its own batch, in chunks where it does not fit 16 GiB; photographs at a seventh of their side on a CPU."""
    settings = recipe_named(name).settings
    side = SIDES[name.split("-")[1]]
    side = side if side < 200 or torch.cuda.is_available() else side // 7
    counts = settings.get("source.class_counts", ())
    queue = settings.get("target.queue_size", 0) if settings["method"] == "moco" else 0
    kept = 1 - settings.get("source.holdout", 0.0)
    number = max(math.ceil((2 * settings["batch_size"] + len(CLASSES)) / kept), queue)
    data = pictures_file(tmp_path, number=number, side=side, counts=tuple(counts))
    most = 256 if settings["encoder"] == "resnet50" else 512  # 22 MB of activations for a picture of 32 px
    caching = {"engine.chunk_size": 256, "engine.chunk_norm": True} if settings["batch_size"] > most else {}
    losses = take_two_steps(job_of(settings_of(name, data, caching), tmp_path))
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)
