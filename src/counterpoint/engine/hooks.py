"""What the loop calls at the end of each epoch: how measurements and loggers join without the loop knowing them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import nn


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
