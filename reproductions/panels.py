"""Panels of plain numbers and texts that a page of a reproduction draws: lines, points, matrices, dots, tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """Named values by position: a line in a LinePanel, a cloud of points in a PointPanel; NaN leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    def __post_init__(self) -> None:
        """Convert lists, arrays and tensors to tuples of plain floats."""
        # The record is frozen; __post_init__ is where its parts may still be set.
        object.__setattr__(self, "x", _floats(self.x))
        object.__setattr__(self, "y", _floats(self.y))
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r} has {len(self.x)} positions and {len(self.y)} values")


@dataclass(frozen=True)
class LinePanel:
    """Lines over one horizontal axis; on a logarithmic axis values <= 0 are left out."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class PointPanel:
    """Points in a plane, one series per class."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]


@dataclass(frozen=True)
class MatrixPanel:
    """A matrix drawn as a heat map with its numbers.

    Attributes:
        title: what it is.
        values: rows of numbers.
        row_labels: a name per row.
        column_labels: a name per column.
    """

    title: str
    values: Sequence[Sequence[float]]
    row_labels: Sequence[str]
    column_labels: Sequence[str]

    def __post_init__(self) -> None:
        """Convert the values to plain floats, and require a name per row and column."""
        values = tuple(map(_floats, self.values))
        object.__setattr__(self, "values", values)
        # One length for all rows, too: a ragged matrix has several.
        shapes = {len(row) for row in values}
        if len(values) != len(self.row_labels) or shapes != {len(self.column_labels)}:
            labels = f"{len(self.row_labels)} row and {len(self.column_labels)} column labels"
            raise ValueError(f"matrix {self.title!r} has {len(values)} rows of length {sorted(shapes)}, but {labels}")


@dataclass(frozen=True)
class TablePanel:
    """A table of texts.

    Attributes:
        title: what it is.
        head: a name per column.
        rows: a text per column.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class DotPanel:
    """One figure of several arms.

    Attributes:
        title: what was measured.
        values: of each seed, by arm.
    """

    title: str
    values: Mapping[str, Sequence[float]]


Panel = LinePanel | PointPanel | MatrixPanel | DotPanel | TablePanel


def _floats(values: Sequence[float | None]) -> tuple[float, ...]:
    """Convert a sequence of numbers to plain floats; None, which JSON has for NaN, becomes NaN."""
    return tuple(math.nan if value is None else float(value) for value in values)
