"""Line charts, labelled at the lines, histograms, dots with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.report.charts.chart_frame import CHARACTER_WIDTH, Axis, ChartText, Frame, spread_labels, svg, text
from counterpoint.report.charts.figures import Draw, Style, marker
from counterpoint.report.markup import Markup, coordinate, element, join

MAX_VERTICES = 400
STEP = 19.0  # pixels between the intervals of one row
ROW_GAP = 9.0
HEADING = 36.0
NARROW = 480.0  # below this width, labels are written above their intervals


@dataclass(frozen=True)
class Line:
    """One line of a chart: values by position; None interrupts the line."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    style: Style


@dataclass(frozen=True)
class Reference:
    """A level with which lines are compared, labelled inside the plot, above its line or below it."""

    label: str
    value: float
    is_below: bool = False


@dataclass(frozen=True)
class Band:
    """A range with which lines are compared: lower and upper ends by position."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def line_drawing(
    words: ChartText,
    axes: tuple[Axis, Axis],
    lines: Sequence[Line],
    references: Sequence[Reference] = (),
    band: Band | None = None,
) -> Draw:
    """Make a function that draws lines with a marker and a label at the end, levels and a band, at any width."""
    drawn = [line for line in lines if any(value is not None for value in line.y)]

    def draw(width: float) -> Markup:
        room = 16.0 + CHARACTER_WIDTH * max((len(line.label) for line in lines), default=0)  # for labels at the ends
        frame = Frame(width, min(320, 160 + width / 3), *axes, right=room)
        levels, level_labels = [], []
        for reference in references:
            y = frame.py(reference.value)
            path = f"M{coordinate(frame.left)} {coordinate(y)}H{coordinate(frame.x_end)}"
            levels.append(element("path", d=path, class_="reference"))
            # Below the line only if the label does not run into the axis.
            label_y = y + 15 if reference.is_below and y + 22 < frame.y_end else y - 6
            level_labels.append(text(frame.x_end, label_y, reference.label, class_="label halo end"))
        area = None
        if band and len(band.x):
            upper = [(frame.px(x), frame.py(min(y, frame.y.high))) for x, y in zip(band.x, band.high, strict=True)]
            lower = [(frame.px(x), frame.py(max(y, frame.y.low))) for x, y in zip(band.x, band.low, strict=True)]
            outline = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in [*upper, *reversed(lower)])
            area = element("path", d=f"M{outline}Z", class_="band")
        # The order is that of painting: labels of levels lie over the lines, lines over the levels.
        content = [
            frame.axes(),
            area,
            levels,
            [_stroke(frame, line) for line in drawn],
            _end_labels(frame, drawn),
            level_labels,
        ]
        # page.js reads these to place the cursor and to find the value under the pointer.
        hover = {"data_left": frame.left, "data_right": frame.x_end, "data_low": frame.x.low, "data_high": frame.x.high}
        plot = {"data_top": frame.top, "data_bottom": frame.y_end}
        return svg((frame.width, frame.height), words, content, class_="chart hover", **hover, **plot)

    return draw


def histogram_drawing(
    words: ChartText,
    height: float,
    axes: tuple[Axis, Axis],
    edges: Sequence[float],
    areas: Sequence[tuple[Sequence[float], str]],
) -> Draw:
    """Make a function that draws histograms in the same bins at any width; each has the class of its outline."""

    def draw(width: float) -> Markup:
        frame = Frame(width, height, *axes)
        outlines = [step_area(frame, edges, heights, class_) for heights, class_ in areas]
        return svg((width, height), words, frame.axes(), outlines, class_="chart")

    return draw


def step_area(frame: Frame, edges: Sequence[float], heights: Sequence[float], class_: str) -> Markup:
    """Draw a histogram as one outline, from its first bin that is not empty to its last."""
    filled = [place for place, height in enumerate(heights) if height > 0]
    if not filled:
        return join()
    first, last = filled[0], filled[-1]
    base = coordinate(frame.y_end)
    # Upright to the height of each bin, flat across it.
    steps = [
        f"V{coordinate(frame.py(heights[place]))}H{coordinate(frame.px(edges[place + 1]))}"
        for place in range(first, last + 1)
    ]
    return element("path", d=f"M{coordinate(frame.px(edges[first]))} {base}{''.join(steps)}V{base}Z", class_=class_)


def _stroke(frame: Frame, line: Line) -> Markup:
    pieces, pen = [], "M"
    for x, y in zip(line.x, line.y, strict=True):
        if y is None:
            # A gap: the next value begins a new stroke.
            pen = "M"
            continue
        pieces.append(f"{pen}{coordinate(frame.px(x))} {coordinate(frame.py(y))}")
        pen = "L"
    dash = line.style.dash or None
    return element("path", d="".join(pieces), class_=f"line {line.style.colour}", stroke_dasharray=dash)


def _end_labels(frame: Frame, lines: Sequence[Line]) -> Markup:
    # The label stands at the last point that is not a gap.
    ends = [[(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None][-1] for line in lines]
    heights = spread_labels([frame.py(y) for _, y in ends], frame.top, frame.y_end - 8)
    marks = [marker(line.style, frame.px(x), frame.py(y)) for line, (x, y) in zip(lines, ends, strict=True)]
    labels = [
        text(frame.px(x) + 9, height + 4, line.label, class_="label halo")
        for line, (x, _), height in zip(lines, ends, heights, strict=True)
    ]
    return join(marks, labels)


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


def interval_drawing(
    axis: Axis, groups: Sequence[IntervalGroup], words: ChartText, *, zero: float | None = None
) -> Draw:
    """Make a function that draws groups of rows above one shared horizontal axis at any width.

    Args:
        axis: the horizontal axis of all rows.
        groups: the rows below their headings.
        words: title and description for readers who cannot see the chart.
        zero: a value with which all are compared; None draws no line.
    """
    labels = [row.label for group in groups for row in group.rows]

    def draw(width: float) -> Markup:
        is_narrow = width < NARROW
        left = 14.0 if is_narrow else 24.0 + CHARACTER_WIDTH * max(map(len, labels), default=0)
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
            path = f"M{coordinate(_x_position(axis, span, zero))} {coordinate(HEADING - 14)}V{coordinate(y + 4)}"
            line = element("path", d=path, class_="zero")
        ticks = [(_x_position(axis, span, value), label) for value, label in axis.ticks]
        grid = [
            element("path", d=f"M{coordinate(x)} {coordinate(HEADING - 14)}V{coordinate(y + 4)}", class_="grid")
            for x, _ in ticks
        ]
        tick_labels = [text(x, y + 20, label, class_="tick middle") for x, label in ticks]
        axes = element("g", grid, tick_labels, class_="axes")
        title = text(span[1], y + 40, axis.title, class_="axis-title end")
        return svg((width, y + 44), words, axes, title, line, content, class_="chart")

    return draw


def _row(row: IntervalRow, axis: Axis, span: tuple[float, float], y: float) -> Markup:
    is_above = span[0] < 20  # the left edge is 14 in a narrow chart, at least 24 in a wide one
    first = y + (22.0 if is_above else 0.0)
    centre = y + 8 if is_above else first + STEP * (len(row.intervals) - 1) / 2 + 4
    label = text(span[0] if is_above else 0, centre, row.label, class_="label halo")
    return join(label, [_interval(item, axis, span, first + STEP * place) for place, item in enumerate(row.intervals)])


def _interval(item: tuple[float, float, float, Style], axis: Axis, span: tuple[float, float], y: float) -> Markup:
    low, value, high, style = item
    x_low, x_value, x_high = (_x_position(axis, span, end) for end in (low, value, high))
    # First end stroke, back to its middle, across, second end stroke.
    path = f"M{coordinate(x_low)} {coordinate(y - 4)}v8m0 -4H{coordinate(x_high)}m0 -4v8"
    return join(element("path", d=path, class_=f"whisker {style.colour}"), marker(style, x_value, y, 4.5))


def _x_position(axis: Axis, span: tuple[float, float], value: float) -> float:
    return span[0] + axis.fraction(value) * (span[1] - span[0])
