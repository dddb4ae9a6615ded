"""Rows of an index in batches, so that no export holds the whole table."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from counterpoint.core.stored_rows import row_slices
from counterpoint.core.user_files import shown_name
from counterpoint.search.vector_index import VectorIndex

BATCH = 4096  # rows


@dataclass(frozen=True)
class RowBatch:
    """Some rows.

    Attributes:
        ids: their numbers.
        names: of the samples, as text that every database takes.
        labels: classes, or None.
        vectors_BD: float32, at unit length.
    """

    ids: range
    names: tuple[str, ...]
    labels: tuple[str | None, ...]
    vectors_BD: np.ndarray


def batches(index: VectorIndex) -> Iterator[RowBatch]:
    """All rows in their order."""
    for own in row_slices(len(index), BATCH):
        names = tuple(map(clean, index.names[own]))
        labels = (None,) * len(names) if index.labels is None else index.labels[own]
        yield RowBatch(
            range(own.start, own.stop),
            names,
            tuple(None if label is None else clean(label) for label in labels),
            index.vectors(own).numpy(),
        )


def clean(text: str) -> str:
    """Text in UTF-8 without NUL."""
    return shown_name(text).replace("\0", "\\x00")
