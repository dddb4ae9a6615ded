"""Everything a training run needs, built and checked before the first step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

from counterpoint.core.rundir import RunFolder
from counterpoint.data.loader import BatchLoader
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.engine.engine import Engine
from counterpoint.engine.hooks import Logger, Measurement
from counterpoint.engine.schedules import Schedule
from counterpoint.engine.weight_average import WeightAverage
from counterpoint.nn.method import Method


@dataclass(frozen=True)
class TrainingPlan:
    """How long a run is, how a step is cut, and how often it is saved.

    Attributes:
        num_epochs: passes over the training samples.
        checkpoint_every: epochs between checkpoints.
        checkpoint_steps: steps between checkpoints within an epoch; None saves at the ends of epochs only.
        keep: checkpoints kept.
        num_parts: sub-batches per step, each a batch to the loss; their gradients are averaged.
        clip: largest norm of a gradient; None leaves it as it is.
        chunk_size: samples that gradient caching encodes at once; None for all.
        seed: the run's seed.
    """

    num_epochs: int
    checkpoint_every: int
    checkpoint_steps: int | None
    keep: int
    num_parts: int
    clip: float | None
    chunk_size: int | None
    seed: int


@dataclass(frozen=True)
class Levels:
    """What a loss curve is read against.

    Attributes:
        chance: loss of an encoder that has learned nothing; None if there is no such number.
        floor: loss that no embedding can go below; None if there is none.
    """

    chance: float | None
    floor: float | None


@dataclass(frozen=True)
class TrainingJob:
    """The parts of a run.

    Attributes:
        method: maps two views to a scalar loss.
        optimizer: of the method's parameters.
        schedule: learning rate of each step.
        loader: batches of raw samples, this rank's share.
        views: draws the two views.
        engine: device, precision and ranks.
        folder: where metrics and checkpoints go.
        plan: how long, how often.
        levels: what the loss curve is read against.
        average: moving average of the weights, or None.
        measurements: join each epoch's record.
        loggers: take each epoch's record; on the first rank only.
        facts: what else a checkpoint should say about the run (versions, hashes).
    """

    method: Method
    optimizer: Optimizer
    schedule: Schedule
    loader: BatchLoader
    views: ViewDrawer
    engine: Engine
    folder: RunFolder
    plan: TrainingPlan
    levels: Levels
    average: WeightAverage | None
    measurements: tuple[Measurement, ...]
    loggers: tuple[Logger, ...]
    facts: Mapping[str, Any]
