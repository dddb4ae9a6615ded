"""Recipes on random pictures: the job that a recipe gives, and what its first two steps do to the weights."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, nest
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.engine.replay import weights_digest
from counterpoint.engine.step import take_step
from counterpoint.runs.active_settings import check_choices, refuse_idle
from counterpoint.runs.assembly import assemble, training_job
from counterpoint.runs.recipes import recipe_named
from counterpoint.runs.resolve import resolve_holdout
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


def trace_of(job: TrainingJob) -> str:
    """Hash of the weights after two steps, and of the learning rates that the whole run will have."""
    losses = take_two_steps(job)
    rates = [job.schedule(job.schedule.num_steps * part // 97) for part in range(97)]
    text = f"{weights_digest(job.method.state_dict())} {losses} {rates} {job.schedule.num_steps}"
    return hashlib.sha256(text.encode()).hexdigest()
