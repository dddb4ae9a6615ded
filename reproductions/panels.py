"""Panels of plain numbers and texts that a page of a reproduction draws: lines, points, matrices, tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.report.theory_pages.matrix_figure import MatrixPanel


@dataclass(frozen=True)
class Series:
    """Named values by position: a line in a LinePanel, a cloud of points in a PointPanel; NaN leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    def __post_init__(self) -> None:
        """Keep plain floats, whatever was given (lists, arrays, tensors)."""
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


Panel = LinePanel | PointPanel | MatrixPanel | TablePanel


def _floats(values: Sequence[float]) -> tuple[float, ...]:
    """Plain floats of any sequence of numbers."""
    return tuple(float(value) for value in values)
