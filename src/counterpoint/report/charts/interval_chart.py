"""Dots with intervals in rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.report.charts.chart_frame import Axis, ChartText, svg, text, text_width
from counterpoint.report.charts.series_style import Style, marker
from counterpoint.report.markup import Markup, coordinate, element, join

STEP = 19.0  # between intervals of one row
ROW_GAP = 9.0
HEADING = 36.0
NARROW = 480.0  # below this width, labels are written above their intervals


@dataclass(frozen=True)
class IntervalRow:
    """One label with an interval per run: (low, value, high, style)."""

    label: str
    intervals: Sequence[tuple[float, float, float, Style]]


@dataclass(frozen=True)
class IntervalGroup:
    """Rows under one heading."""

    heading: str
    rows: Sequence[IntervalRow]


def interval_chart(
    width: float, axis: Axis, groups: Sequence[IntervalGroup], words: ChartText, *, zero: float | None = None
) -> Markup:
    """Draw groups of rows above one shared horizontal axis; ``zero`` is a value that all are compared with."""
    is_narrow = width < NARROW
    labels = [row.label for group in groups for row in group.rows]
    left = 14.0 if is_narrow else 24.0 + max((text_width(label) for label in labels), default=0.0)
    span = (left, width - 26.0)
    content, y = [], 0.0
    for group in groups:
        content.append(text(0, y + 16, group.heading, class_="group-title"))
        y += HEADING
        for row in group.rows:
            content.append(_row(row, axis, span, y))
            y += STEP * len(row.intervals) + ROW_GAP + (18.0 if is_narrow else 0.0)
        y += ROW_GAP
    line = None
    if zero is not None:
        path = f"M{coordinate(_at(axis, span, zero))} {coordinate(HEADING - 14)}V{coordinate(y + 4)}"
        line = element("path", d=path, class_="zero")
    body = [_ticks(axis, span, y + 4), line, content]
    return svg((width, y + 44), words, body, class_="chart")


def _row(row: IntervalRow, axis: Axis, span: tuple[float, float], y: float) -> Markup:
    is_above = span[0] < 20  # left of 14 in a narrow chart, of at least 24 in a wide one
    first = y + (22.0 if is_above else 0.0)
    centre = y + 8 if is_above else first + STEP * (len(row.intervals) - 1) / 2 + 4
    label = text(span[0] if is_above else 0, centre, row.label, class_="label halo")
    return join(label, [_interval(item, axis, span, first + STEP * place) for place, item in enumerate(row.intervals)])


def _interval(item: tuple[float, float, float, Style], axis: Axis, span: tuple[float, float], y: float) -> Markup:
    low, value, high, style = item
    x_low, x_value, x_high = (_at(axis, span, end) for end in (low, value, high))
    # First end stroke, back to its middle, across, second end stroke.
    path = f"M{coordinate(x_low)} {coordinate(y - 4)}v8m0 -4H{coordinate(x_high)}m0 -4v8"
    return join(element("path", d=path, class_=f"whisker {style.colour}"), marker(style, x_value, y, 4.5))


def _ticks(axis: Axis, span: tuple[float, float], y: float) -> Markup:
    """Draw grid lines through all rows, with labels and title below them."""
    places = [(_at(axis, span, value), label) for value, label in axis.ticks]
    lines = [
        element("path", d=f"M{coordinate(x)} {coordinate(HEADING - 14)}V{coordinate(y)}", class_="grid")
        for x, _ in places
    ]
    labels = [text(x, y + 16, label, class_="tick middle") for x, label in places]
    return join(element("g", lines, labels, class_="axes"), text(span[1], y + 36, axis.title, class_="axis-title end"))


def _at(axis: Axis, span: tuple[float, float], value: float) -> float:
    return span[0] + axis.fraction(value) * (span[1] - span[0])
