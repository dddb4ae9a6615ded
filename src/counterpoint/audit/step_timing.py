"""How long training takes here: a few steps of the real engine, timed after a warm-up."""

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import own_draws
from counterpoint.core.validation import build, nest
from counterpoint.data.loader import Batch
from counterpoint.data.source import Source
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import place
from counterpoint.engine.step import take_step
from counterpoint.runs.assembly import assemble, training_job
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.user_inputs import Given

WARM_UP, FEWEST_STEPS, MOST_STEPS, MOST_SECONDS = 2, 4, 20, 4.0
LEAST_SPREAD = 0.15  # half width of an interval, as a share: other programs come and go within a run


@dataclass(frozen=True)
class Timing:
    """What one choice of encoder and size takes.

    Attributes:
        resolution: settings with every ``auto`` filled in, and the reasons.
        batches_per_epoch: steps of an epoch.
        step_seconds: mean over the steps that were timed.
        low: what 39 of 40 steps exceed, at least 15 % below the mean.
        high: what 39 of 40 steps stay below, at least 15 % above it.
        num_steps: how many were timed.
        setup_seconds: to open the data and build the run's parts.
    """

    resolution: Resolution
    batches_per_epoch: int
    step_seconds: float
    low: float
    high: float
    num_steps: int
    setup_seconds: float

    @property
    def epoch_seconds(self) -> float:
        """Of one pass over the training samples."""
        return self.batches_per_epoch * self.step_seconds


def time_steps(asked: dict[str, Any], source: Source, *, opening: float, hopeless: float) -> Timing:
    """Take some steps of a run as ``train`` takes them; nothing is written.

    Args:
        asked: settings by dotted path.
        source: the data, at the size that is asked for.
        opening: seconds that opening the data took.
        hopeless: seconds of a step beyond which one is enough to know.

    Raises:
        UsageError: the settings do not go together.
        DataError: too few samples.
    """
    started = time.perf_counter()
    settings = build(TrainSettings, nest(asked), "recommendation")
    placement = place(settings.engine.device, settings.engine.precision)
    assembled = assemble(resolve_holdout(settings, source), source, placement, Given())
    job = training_job(assembled, RunFolder(Path(os.devnull)))
    setup_seconds = opening + time.perf_counter() - started
    steps = _timed(job, hopeless)
    mean, (low, high) = fmean(steps), np.quantile(steps, (0.025, 0.975))
    return Timing(
        resolution=assembled.resolution,
        batches_per_epoch=job.loader.order.batches_per_epoch,
        step_seconds=mean,
        low=min(low, (1 - LEAST_SPREAD) * mean),
        high=max(high, (1 + LEAST_SPREAD) * mean),
        num_steps=len(steps),
        setup_seconds=setup_seconds,
    )


def _timed(job: TrainingJob, hopeless: float) -> Sequence[float]:
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    device = job.engine.device
    batches = _batches(job)
    position = Position(epoch=0, batch=0, step=0)

    def step() -> float:
        started = time.perf_counter()
        take_step(job, next(batches), position)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    with own_draws(devices=[device] if device.type == "cuda" else []):
        warm = [step() for _ in range(WARM_UP)]
        if warm[-1] > hopeless:
            return warm[-1:]
        steps = [step()]
        while len(steps) < MOST_STEPS and (len(steps) < FEWEST_STEPS or sum(steps) < MOST_SECONDS):
            steps.append(step())
    return steps


def _batches(job: TrainingJob) -> Iterator[Batch]:
    return (batch for epoch in itertools.count() for batch in job.loader.epoch(epoch))
