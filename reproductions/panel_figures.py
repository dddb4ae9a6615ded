"""The panels of a reproduced figure as charts: lines, clouds of points, matrices and tables."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.report.charts.chart_frame import ChartText, Frame, style_legend, svg
from counterpoint.report.charts.figures import data_table, figure
from counterpoint.report.charts.line_chart import MAX_VERTICES, Line, label_room, line_chart
from counterpoint.report.charts.series_style import RUN_DASHES, RUN_MARKERS, Style, marker_path
from counterpoint.report.charts.ticks import Axis, decade_axis, evenly_chosen, linear_axis
from counterpoint.report.markup import Markup, element
from counterpoint.report.wording import count, number
from reproductions.matrix_figure import matrix_figure
from reproductions.panels import LinePanel, MatrixPanel, Panel, PointPanel, Series, TablePanel

NUM_COLOURS = 6
CHART_HEIGHT = 330.0
MAX_AT_ENDS = 6  # lines named at their ends; more are named in a legend
MAX_LINES = 18  # in one chart; of more, so many are drawn
MAX_ROWS, MAX_COLUMNS = 60, 40  # of a table of numbers
MAX_POINTS = 2000  # drawn of one cloud
DISC_EDGE = 0.9  # length beyond which a point counts as at the edge of the unit disc
ONE_SCALE = 3.0  # ranges of a plane's axes that differ by a smaller factor share one scale


@dataclass(frozen=True)
class _Names:
    """Where the lines of a chart are named: at their ends, or below."""

    at_ends: Sequence[str]
    below: Sequence[str]


def panel_figure(panel: Panel, width: float) -> Markup:
    """Draw one panel at a width."""
    if isinstance(panel, TablePanel):
        return element("div", element("h3", panel.title), data_table(panel.title, panel.head, panel.rows))
    if isinstance(panel, MatrixPanel):
        return matrix_figure(panel, width)
    return line_figure(panel, width) if isinstance(panel, LinePanel) else point_figure(panel, width)


def series_style(place: int) -> Style:
    """Look of the series at a place: colour and marker together tell 36 of them apart, and dashes help.

    >>> styles = [series_style(place) for place in range(36)]
    >>> styles[0].colour, styles[7].colour, len({style.colour + style.marker for style in styles})
    ('c1', 'c2', 36)
    """
    # Marker and colour shift against each other with each turn: a Latin square, in which no pair comes twice.
    turn, colour = divmod(place % (NUM_COLOURS * len(RUN_MARKERS)), NUM_COLOURS)
    look = (colour + turn) % len(RUN_MARKERS)
    return Style(f"c{colour + 1}", RUN_DASHES[look], RUN_MARKERS[look])


def line_figure(panel: LinePanel, width: float) -> Markup:
    """Draw lines, with their numbers in a table behind a disclosure."""
    shown = [panel.series[place] for place in evenly_chosen(len(panel.series), MAX_LINES)]
    lines = [_line(panel, series, series_style(place)) for place, series in enumerate(shown)]
    x_axis = _axis(panel.x_label, [x for line in lines for x in line.x], is_log=panel.log_x, ends_at_data=True)
    y_axis = _axis(panel.y_label, [y for line in lines for y in line.y], is_log=panel.log_y)
    names = [series.name for series in shown]
    words = ChartText(panel.title, f"{panel.y_label} over {panel.x_label}. {count(len(lines), 'line')}.")

    def draw(room: float) -> Markup:
        # Called for each width, so that names may stand at the ends on a wide screen and below on a phone.
        placed = _place_names(names, room)
        named = [Line(name, line.x, line.y, line.style) for line, name in zip(lines, placed.at_ends, strict=True)]
        frame = Frame(room, CHART_HEIGHT, x_axis, y_axis, right=label_room(placed.at_ends))
        return line_chart(frame, words, named, names_below=placed.below)

    is_whole = len(shown) == len(panel.series)
    parts = [] if is_whole else [f"{len(shown)} of {len(panel.series)} lines, evenly chosen, are drawn."]
    if _place_names(names, width).below:
        parts.append("Each line ends in its marker of the legend.")
    return figure(panel.title, " ".join(parts), draw, width, _line_table(panel))


def point_figure(panel: PointPanel, width: float) -> Markup:
    """Draw clouds of points; both axes share one scale where their ranges are alike."""
    styles = [series_style(place) for place in range(len(panel.series))]
    # The whole disc, so that planes of several panels compare.
    ends = [-1.0, 1.0] if _is_disc(panel) else []
    x_axis = linear_axis(panel.x_label, [*ends, *(x for series in panel.series for x in series.x)])
    y_axis = linear_axis(panel.y_label, [*ends, *(y for series in panel.series for y in series.y)])
    names = [series.name for series in panel.series]
    words = ChartText(panel.title, f"{panel.y_label} over {panel.x_label}: {', '.join(names)}.")
    legend = [list(zip(styles, names, strict=True))] if len(names) > 1 else []

    def draw(room: float) -> Markup:
        frame = _plane_frame(room, x_axis, y_axis)
        key, key_height = style_legend(frame, legend)
        clouds = [_cloud(frame, series, style) for series, style in zip(panel.series, styles, strict=True)]
        return svg((frame.width, frame.height + key_height), words, [frame.axes(), clouds, key], class_="chart")

    is_thinned = any(len(series.x) > MAX_POINTS for series in panel.series)
    note = f"At most {number(MAX_POINTS)} points of each class are drawn." if is_thinned else ""
    return figure(panel.title, note, draw, width, None)


def _is_disc(panel: PointPanel) -> bool:
    """Whether the points lie in the unit disc and reach its edge: such planes are all drawn from -1 to 1."""
    points = [point for series in panel.series for point in zip(series.x, series.y, strict=True)]
    lengths = [length for length in (math.hypot(*point) for point in points) if math.isfinite(length)]
    # 1e-6: unit vectors in float32 may be longer by their rounding.
    return bool(lengths) and DISC_EDGE < max(lengths) <= 1 + 1e-6


def _place_names(names: Sequence[str], room: float) -> _Names:
    """Name lines at their ends where there is room, below otherwise."""
    # Names may take a third of the drawing.
    if len(names) <= MAX_AT_ENDS and label_room(names) <= room / 3:
        return _Names(names, [])
    return _Names(["" for _ in names], names)


def _line(panel: LinePanel, series: Series, style: Style) -> Line:
    """Put a series on the panel's axes: logarithms where the axis is logarithmic, None where there is no value."""
    placed = [(_scaled(x, panel.log_x), _scaled(y, panel.log_y)) for x, y in zip(series.x, series.y, strict=True)]
    # A position that the axis does not have is left out; a value that it does not have leaves a gap.
    known = [(x, y) for x, y in placed if x is not None]
    kept = [known[place] for place in evenly_chosen(len(known), MAX_VERTICES)]
    return Line(series.name, [x for x, _ in kept], [y for _, y in kept], style)


def _scaled(value: float, is_log: bool) -> float | None:
    """A value's position on its axis, or None where it has none."""
    if not math.isfinite(value) or (is_log and value <= 0):
        return None
    return math.log10(value) if is_log else value


def _axis(title: str, values: Sequence[float | None], *, is_log: bool, ends_at_data: bool = False) -> Axis:
    if is_log:
        return decade_axis(title, values)
    axis = linear_axis(title, values)
    finite = [value for value in values if value is not None]
    low, high = (min(finite), max(finite)) if ends_at_data and finite else (axis.low, axis.high)
    if not low < high:
        return axis
    return Axis(title, low, high, tuple(tick for tick in axis.ticks if low <= tick[0] <= high))


def _plane_frame(room: float, x_axis: Axis, y_axis: Axis) -> Frame:
    """A frame in which one unit is as long upwards as sideways, if that makes a bearable picture."""
    x_range, y_range = x_axis.high - x_axis.low, y_axis.high - y_axis.low
    frame = Frame(room, CHART_HEIGHT, x_axis, y_axis)
    if not 1 / ONE_SCALE < x_range / y_range < ONE_SCALE:
        return frame
    widest = frame.x_end - frame.left
    # Not much higher than wide, whatever the ranges: the height is at most 1.1 of the widest width.
    inner = min(widest, 1.1 * widest * x_range / y_range)
    height = frame.top + frame.bottom + inner * y_range / x_range
    # What the plane does not take is margin, so that the drawing keeps its width.
    return Frame(room, height, x_axis, y_axis, right=frame.right + widest - inner)


def _cloud(frame: Frame, series: Series, style: Style) -> Markup:
    """Draw many points as one path: an element per point would make the page many times as large."""
    finite = [(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    kept = [finite[place] for place in evenly_chosen(len(finite), MAX_POINTS)]
    outlines = (marker_path(style.marker, frame.px(x), frame.py(y), 3.2) for x, y in kept)
    return element("path", d="".join(outlines), class_=f"mark faint {style.colour}")


def _line_table(panel: LinePanel) -> Markup:
    """Values of all lines by position; evenly chosen rows and columns of large tables."""
    shown = [panel.series[place] for place in evenly_chosen(len(panel.series), MAX_COLUMNS)]
    # Series may have positions of their own: the table holds all of them.
    columns = [dict(zip(series.x, series.y, strict=True)) for series in shown]
    positions = sorted(set().union(*columns))
    kept = [positions[place] for place in evenly_chosen(len(positions), MAX_ROWS)]
    values = [[column.get(x) for column in columns] for x in kept]
    rows = [
        [number(x), *("" if value is None or not math.isfinite(value) else number(value, 4) for value in row)]
        for x, row in zip(kept, values, strict=True)
    ]
    return data_table(panel.title, [panel.x_label, *(series.name for series in shown)], rows)
