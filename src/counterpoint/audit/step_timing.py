"""The time of a training step on this machine, measured in a child process with a time limit."""

import itertools
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from counterpoint.core.errors import CounterpointError, DataError, RunError, UsageError
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
from counterpoint.runs.user_inputs import Given

FEWEST_UPDATES, FEWEST_EPOCHS = 400, 10
HOPELESS = 4.0  # times the step that there is time for; the first step of all takes longer than others
SHARE_FOR_STEPS = 0.85  # of the time; the rest is for reading, checkpoints and the end
SHARE_FOR_TIMING = 0.2  # of the training time; the limit for timing all candidates together
WARM_UP, FEWEST_STEPS, MOST_STEPS, MOST_SECONDS = 2, 4, 20, 4.0
LEAST_SPREAD = 0.15  # half width of an interval, as a share: other programs come and go within a run
CHILD = "from counterpoint.audit.step_timing import serve; serve()"


@dataclass(frozen=True)
class Timing:
    """The time of one choice of encoder and size.

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
    def fewest_epochs(self) -> int:
        """Fewer would leave features hardly trained."""
        return max(FEWEST_EPOCHS, math.ceil(FEWEST_UPDATES / self.batches_per_epoch))

    def epochs_within(self, minutes: float) -> int:
        """Epochs that there is time for."""
        seconds = max(0.0, SHARE_FOR_STEPS * 60 * minutes - self.setup_seconds)
        return int(seconds / (self.batches_per_epoch * self.step_seconds))

    def fits(self, minutes: float) -> bool:
        """Whether enough epochs are within the time."""
        return self.epochs_within(minutes) >= self.fewest_epochs


TIMING, ERROR = TypeAdapter(Timing), "error"


def timed_aside(
    candidates: Sequence[dict[str, Any]], minutes: float, advance: Callable[[], object]
) -> Sequence[Timing]:
    """Time candidates in a child process, which is stopped after ``SHARE_FOR_TIMING`` of the minutes.

    Args:
        candidates: settings by dotted path, the fastest first.
        minutes: that training may take.
        advance: called for each that was timed.

    Returns:
        Of those that were timed, in their order; the last may not fit into the time.

    Raises:
        CounterpointError: what the child ran into.
    """
    found: list[Timing | CounterpointError] = []
    # The same modules as here, wherever they were found.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    asked, answers = child.stdin, child.stdout
    assert asked is not None
    assert answers is not None

    def listen() -> None:
        try:
            asked.write(json.dumps([torch.get_num_threads(), candidates, minutes]).encode())
            asked.close()
            for line in answers:
                found.append(_answer(line))
                advance()
        except (OSError, ValueError):
            return  # it was stopped within a line

    listener = threading.Thread(target=listen, daemon=True)
    try:
        listener.start()
        listener.join(SHARE_FOR_TIMING * 60 * minutes)
    finally:
        child.kill()
        child.wait()
        listener.join()
        answers.close()
    for each in found:
        if isinstance(each, CounterpointError):
            raise each
    return [each for each in found if isinstance(each, Timing)]


def serve() -> None:
    """The child's part: candidates come by standard input, timings go to standard output."""
    threads, candidates, minutes = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # nothing else goes there
        torch.set_num_threads(threads)
        try:
            for timing in timings(candidates, minutes):
                out.write(TIMING.dump_json(timing) + b"\n")
                out.flush()
        except CounterpointError as error:
            out.write(json.dumps({ERROR: type(error).__name__, "words": str(error)}).encode() + b"\n")


def _answer(line: bytes) -> Timing | CounterpointError:
    """What the child wrote: a timing, or why there is none."""
    if ERROR not in (values := json.loads(line)):
        return TIMING.validate_json(line)
    kind = {each.__name__: each for each in (UsageError, DataError, RunError)}.get(values[ERROR], CounterpointError)
    return kind(values["words"])


def timings(candidates: Sequence[dict[str, Any]], minutes: float) -> Iterator[Timing]:
    """Time candidates in turn; none after the first that is too slow."""
    opened: dict[Any, tuple[Source, float]] = {}
    hopeless = HOPELESS * 60 * minutes / FEWEST_UPDATES
    seconds = min(MOST_SECONDS, SHARE_FOR_TIMING * 60 * minutes / 8)
    for asked in candidates:
        side = asked.get("source.image_size")
        if side not in opened:
            started = time.perf_counter()
            settings = build(TrainSettings, nest(asked), "recommendation")
            source = open_source(settings.data, settings.source, progress=Reporter(quiet=True).bar)
            opened = {side: (source, time.perf_counter() - started)}  # the last alone is kept
        source, opening = opened[side]
        timing = time_steps(asked, source, opening=opening, hopeless=hopeless, seconds=seconds)
        yield timing
        if not timing.fits(minutes):
            return


def time_steps(asked: dict[str, Any], source: Source, *, opening: float, hopeless: float, seconds: float) -> Timing:
    """Take some steps of a run as ``train`` takes them; nothing is written.

    Args:
        asked: settings by dotted path.
        source: the data, at the size that is asked for.
        opening: seconds that opening the data took.
        hopeless: seconds of a step beyond which one is enough to know.
        seconds: after which no further step is timed, once there are enough.

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
