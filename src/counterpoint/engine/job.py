"""Everything a training run needs, built and checked before the first step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer

from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.data.loader import BatchLoader
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.engine.engine import Engine
from counterpoint.engine.optimisers import Schedule
from counterpoint.nn.method import Method

# Figures that join an epoch's record, of: epochs done, whether the run is complete, the method. Every rank calls it.
Measure = Callable[[int, bool, nn.Module], Mapping[str, float]]


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
        settings: settings of the run, every ``auto`` filled in: its length, how a step is cut, how often it is saved.
        method: module that maps two views to a scalar loss.
        optimizer: optimiser of the method's parameters.
        schedule: learning rate of each step.
        loader: batches of raw samples, this rank's share.
        views: drawer of the two views of each sample.
        engine: device, precision and ranks.
        folder: folder of the run, for metrics and checkpoints.
        chance: loss of an encoder that has learned nothing; None if there is no such number.
        floor: loss that no embedding can go below; None if there is none.
        measure: function that gives figures for an epoch's record; None for no such figures.
        loggers: objects that log each epoch's record; called on the first rank only.
        facts: further facts that a checkpoint keeps about the run (versions, hashes).
        unit: name of what a rate counts: images or rows.
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
    measure: Measure | None
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
        per_epoch = self.loader.order.batches_per_epoch
        return frozenset() if epochs == "none" else frozenset(epoch * per_epoch for epoch in epochs)

    def is_due(self, step: int) -> bool:
        """Tell whether a checkpoint is due after this number of steps, anywhere in an epoch."""
        every = self.settings.engine.checkpoint_steps
        return (every != "none" and step % every == 0) or step in self.lasting_steps
