"""Data as tests open them: without progress, and with what is said where they are refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from refusals import refused


@contextmanager
def silent(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar that is advanced and never drawn."""
    yield lambda: None


def open_data(data: Any, given: Any = None, **settings: Any) -> Source:
    return open_source(data, SourceSettings(**settings), labels=given, progress=silent)


def refusal(data: Any, given: Any = None, **settings: Any) -> str:
    return refused((DataError, UsageError), open_data, data, given, **settings)


def samples_of(source: Source) -> torch.Tensor:
    return source.store.fetch(range(len(source)))


def numbers_of(source: Source) -> list[int] | None:
    """The numbers of the samples' classes; None where the source has no labels."""
    return None if source.labels is None else source.labels.tolist()


def labels_of(source: Source) -> dict[str, str | None]:
    """The samples' classes by name; None of samples without one."""
    classes = source.classes()
    assert classes is not None
    return dict(zip(source.sample_names, classes, strict=True))
