"""Time of a training step on this machine, for candidates from the fastest up while there is time."""

import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from counterpoint.core.errors import TrainingError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import own_draws
from counterpoint.core.validation import build, nest
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.engine.step import take_step
from counterpoint.runs.assembly import assemble
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.run_job import training_job
from counterpoint.runs.user_inputs import UserInputs

FEWEST_UPDATES, FEWEST_EPOCHS = 400, 10
HOPELESS = 4.0  # times the step that there is time for; the first step of all takes longer than others
SHARE_FOR_STEPS = 0.85  # of the time; the rest is for reading, checkpoints and the end
SHARE_FOR_TIMING = 0.2  # of the time that was asked for, after which no further candidate is timed
WARM_UP, FEWEST_STEPS, MOST_STEPS, MOST_SECONDS = 2, 4, 20, 4.0
LEAST_SPREAD = 0.15  # half width of an interval, as a share: other programs come and go within a run


@dataclass(frozen=True)
class Timing:
    """The time of one choice of encoder and size.

    Attributes:
        resolution: settings with every ``auto`` filled in, and the reasons.
        batches_per_epoch: steps of an epoch.
        step_seconds: mean over the steps that were timed.
        low: time that 39 of 40 steps exceed, at least 15 % below the mean.
        high: time that 39 of 40 steps stay below, at least 15 % above it.
        num_steps: number of steps that were timed.
        setup_seconds: time to open the data and build the run's parts.
    """

    resolution: Resolution
    batches_per_epoch: int
    step_seconds: float
    low: float
    high: float
    num_steps: int
    setup_seconds: float

    @property
    def fewest_epochs(self) -> int:
        """The fewest epochs that train features enough."""
        return max(FEWEST_EPOCHS, math.ceil(FEWEST_UPDATES / self.batches_per_epoch))

    def epochs_within(self, minutes: float) -> int:
        """Number of epochs that there is time for."""
        seconds = max(0.0, SHARE_FOR_STEPS * 60 * minutes - self.setup_seconds)
        return int(seconds / (self.batches_per_epoch * self.step_seconds))

    def fits(self, minutes: float) -> bool:
        """Tell whether enough epochs fit into the time."""
        return self.epochs_within(minutes) >= self.fewest_epochs


def timings(candidates: Sequence[dict[str, Any]], minutes: float) -> Iterator[Timing]:
    """Time candidates in turn; none after the first that is too slow, or after ``SHARE_FOR_TIMING`` of the minutes.

    Args:
        candidates: settings by dotted path, the fastest first.
        minutes: time that training may take.

    Yields:
        The timing of each candidate that was timed; the last may not fit into the time.
    """
    begun, share = time.perf_counter(), SHARE_FOR_TIMING * 60 * minutes
    opened: dict[Any, tuple[Source, float]] = {}
    for candidate in candidates:
        side, settings = candidate.get("source.image_size"), build(TrainSettings, nest(candidate), "recommendation")
        if side not in opened:
            started = time.perf_counter()
            source = open_source(settings.data, settings.source, progress=Reporter(quiet=True).bar)
            opened = {side: (source, time.perf_counter() - started)}  # the last alone is kept
        source, opening = opened[side]
        hopeless, seconds = HOPELESS * 60 * minutes / FEWEST_UPDATES, min(MOST_SECONDS, share / 8)
        try:
            timing = _time_steps(settings, source, opening, hopeless, seconds)
        except (TrainingError, MemoryError, torch.OutOfMemoryError):
            if candidate is candidates[0]:
                raise
            return  # a larger encoder, or larger pictures, than this machine has memory for
        yield timing
        if not timing.fits(minutes) or time.perf_counter() - begun > share:
            return


def _time_steps(settings: TrainSettings, source: Source, opening: float, hopeless: float, seconds: float) -> Timing:
    """Take steps as ``train`` does, for some seconds, or one if it is hopelessly long; nothing is written."""
    started = time.perf_counter()
    placement = place(settings.engine.device, settings.engine.precision)
    assembled = assemble(resolve_holdout(settings, source), source, placement, UserInputs())
    job = training_job(assembled, RunFolder(Path(os.devnull)))
    setup_seconds = opening + time.perf_counter() - started
    steps = _step_times(job, hopeless, seconds)
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


def _step_times(job: TrainingJob, hopeless: float, seconds: float) -> Sequence[float]:
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    device = job.engine.device
    batches = (batch for epoch in itertools.count() for batch in job.loader.epoch(epoch))
    position = Position(epoch=0, batch=0, step=0)

    def step() -> float:
        started = time.perf_counter()
        take_step(job, next(batches), position)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    with own_draws(devices=[device] if device.type == "cuda" else []):
        for _ in range(WARM_UP):
            if (warm := step()) > hopeless:
                return [warm]
        steps = [step()]
        while len(steps) < MOST_STEPS and (len(steps) < FEWEST_STEPS or sum(steps) < seconds):
            steps.append(step())
    return steps
