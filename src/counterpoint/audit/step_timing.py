"""How long training takes here: a few steps of the real engine, timed after a warm-up."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

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
from counterpoint.evaluation.metric_types import t_interval
from counterpoint.runs.assembly import assemble, training_job
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.user_inputs import Given

WARM_UP, NUM_BLOCKS = 2, 4  # steps before, and blocks of steps that are timed
MOST_STEPS, MOST_SECONDS = 5, 1.0  # of a block
LEAST_SPREAD = 0.15  # half width of an interval, as a share: other programs come and go within a run


@dataclass(frozen=True)
class Timing:
    """What one choice of encoder and size takes.

    Attributes:
        resolution: settings with every ``auto`` filled in, and the reasons.
        batches_per_epoch: steps of an epoch.
        step_seconds: mean over the blocks.
        low: lower end of its interval, at least 15 % below.
        high: upper end, likewise.
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
    blocks = _timed(job, hopeless)
    found = t_interval([fmean(block) for block in blocks])
    least = LEAST_SPREAD * found.value
    low, high = (found.value if end is None else end for end in (found.low, found.high))
    return Timing(
        resolution=assembled.resolution,
        batches_per_epoch=job.loader.order.batches_per_epoch,
        step_seconds=found.value,
        low=max(0.0, min(low, found.value - least)),
        high=max(high, found.value + least),
        num_steps=sum(map(len, blocks)),
        setup_seconds=setup_seconds,
    )


def _timed(job: TrainingJob, hopeless: float) -> Sequence[Sequence[float]]:
    """Seconds of single steps, in blocks."""
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
            return [warm[-1:]]
        blocks = []
        for _ in range(NUM_BLOCKS):
            block = [step()]
            while len(block) < MOST_STEPS and sum(block) < MOST_SECONDS:
                block.append(step())
            blocks.append(block)
    return blocks


def _batches(job: TrainingJob) -> Iterator[Batch]:
    """Batches of epoch after epoch, without end."""
    epoch = 0
    while True:
        yield from job.loader.epoch(epoch)
        epoch += 1
