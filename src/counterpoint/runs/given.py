"""What the caller holds in memory, and opening the data of a run with it."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import ARRAY, open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import name_skipped


@dataclass(frozen=True)
class Given:
    """What a settings file cannot hold: arrays and modules."""

    data: Any = None
    labels: Any = None
    encoder: nn.Module | None = None


def open_given(settings: TrainSettings, given: Given, reporter: Reporter) -> Source:
    """Open a run's data and say which files were left out.

    Raises:
        UsageError: the run needs an array that was not passed.
        DataError: the data cannot be used.
    """
    if settings.data == ARRAY and given.data is None:
        raise UsageError("this run was trained on an array in memory; pass it as data=")
    data = settings.data if given.data is None else given.data
    source = open_source(data, settings.source, labels=given.labels, progress=reporter.bar)
    name_skipped(source, reporter)
    return source
