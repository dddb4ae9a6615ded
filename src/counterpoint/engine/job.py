"""Everything a training run needs, built and checked before the first step, and what joins the end of its epochs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer

from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.data.loader import BatchLoader
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.engine.engine import Engine
from counterpoint.engine.schedules import Schedule
from counterpoint.nn.method import Method


@dataclass(frozen=True)
class EpochEnd:
    """The moment after an epoch's last update.

    Attributes:
        epoch: how many epochs are done, counted from 1.
        step: how many updates are done.
        is_last: the run is complete.
        method: the trained method itself (not a wrapper of it).
    """

    epoch: int
    step: int
    is_last: bool
    method: nn.Module


class Measurement(Protocol):
    """Adds figures to an epoch's record; called on every rank, in the same order."""

    def __call__(self, moment: EpochEnd) -> Mapping[str, float]:
        """Figures by name, a pure function of the weights; may be empty."""
        ...


class Logger(Protocol):
    """Takes each epoch's record as it is written; called on rank 0 only."""

    def __call__(self, record: Mapping[str, float | int | None]) -> None:
        """Log one record of ``metrics.jsonl``."""
        ...

    def close(self) -> None:
        """Flush what is left."""
        ...


@dataclass(frozen=True)
class TrainingJob:
    """The parts of a run.

    Attributes:
        settings: with every ``auto`` filled in: how long the run is, how a step is cut, how often it is saved.
        method: maps two views to a scalar loss.
        optimizer: of the method's parameters.
        schedule: learning rate of each step.
        loader: batches of raw samples, this rank's share.
        views: draws the two views.
        engine: device, precision and ranks.
        folder: where metrics and checkpoints go.
        chance: loss of an encoder that has learned nothing; None if there is no such number.
        floor: loss that no embedding can go below; None if there is none.
        measurements: join each epoch's record.
        loggers: take each epoch's record; on the first rank only.
        facts: what else a checkpoint should say about the run (versions, hashes).
        unit: what a rate counts: images or rows.
    """

    settings: TrainSettings
    method: Method
    optimizer: Optimizer
    schedule: Schedule
    loader: BatchLoader
    views: ViewDrawer
    engine: Engine
    folder: RunFolder
    chance: float | None
    floor: float | None
    measurements: tuple[Measurement, ...]
    loggers: tuple[Logger, ...]
    facts: Mapping[str, Any]
    unit: str = "images"

    @property
    def num_epochs(self) -> int:
        """Passes over the training samples."""
        return int(self.settings.epochs)

    @property
    def lasting_steps(self) -> frozenset[int]:
        """Updates after which a checkpoint is saved that stays."""
        epochs = self.settings.engine.checkpoint_at
        each = self.loader.order.batches_per_epoch
        return frozenset() if epochs == "none" else frozenset(epoch * each for epoch in epochs)

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due after this number of steps, anywhere in an epoch."""
        every = self.settings.engine.checkpoint_steps
        return (every != "none" and step % every == 0) or step in self.lasting_steps
