"""Data as tests open them: without progress, and with what is said where they are refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source


@contextmanager
def silent(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar that is advanced and never drawn."""
    yield lambda: None


def open_data(data: Any, given: Any = None, **settings: Any) -> Source:
    return open_source(data, SourceSettings(**settings), labels=given, progress=silent)


def refusal(data: Any, given: Any = None, **settings: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        open_data(data, given, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def samples_of(source: Source) -> torch.Tensor:
    return source.store.fetch(range(len(source)))


def labels_of(source: Source) -> dict[str, str | None]:
    assert source.labels is not None
    return {
        name: source.class_names[number] if number >= 0 else None
        for name, number in zip(source.sample_names, source.labels.tolist(), strict=True)
    }
