"""The panels of a reproduced figure as charts: lines, clouds of points, and matrices as heat maps.

In a heat map colour tells the sign of an entry, depth of colour its size.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from counterpoint.core.markup import Markup, element
from counterpoint.report.charts.chart_frame import CHARACTER_WIDTH, ChartText, Frame, svg, text, text_width
from counterpoint.report.charts.figures import HALF, data_table, figure
from counterpoint.report.charts.line_chart import MAX_VERTICES, Line, label_room, line_chart
from counterpoint.report.charts.point_chart import Cloud, point_clouds
from counterpoint.report.charts.series_style import RUN_DASHES, RUN_MARKERS, Style
from counterpoint.report.charts.ticks import Axis, decade_axis, evenly_chosen, linear_axis
from counterpoint.report.theory_pages.panels import LinePanel, MatrixPanel, Panel, PointPanel, Series, TablePanel
from counterpoint.report.wording import MINUS, count, number

NUM_COLOURS = 6
MAX_AT_ENDS = 6  # lines named at their ends; more are named in a legend
MAX_LINES = 18  # in one chart; of more, so many are drawn
MAX_ROWS, MAX_COLUMNS = 60, 40  # of a table of numbers
MAX_POINTS = 2000  # drawn of one cloud
CHART_HEIGHT = 330.0
DISC_EDGE = 0.9  # length beyond which a point counts as at the edge of the unit disc
ONE_SCALE = 3.0  # ranges of a plane's axes that differ by a smaller factor share one scale
MAX_SHOWN = 64  # rows or columns of a drawing
MAX_TABLE = 40  # columns of the table of numbers
LARGEST_CELL = 66.0
DEEPEST = 0.55  # opacity of the largest entry: text on it keeps its contrast in both themes
MAX_LABEL = 120.0
DECIMALS, DECIMALS_OF_TENS = (4, 2), (2, 1, 0)  # of the numbers in the cells: the first that fits


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
        return matrix_figure(panel, width=width)
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
    clouds = [_cloud(series, series_style(place)) for place, series in enumerate(panel.series)]
    # The whole disc, so that planes of several panels compare.
    ends = [-1.0, 1.0] if _is_disc(panel) else []
    x_axis = linear_axis(panel.x_label, [*ends, *(x for series in panel.series for x in series.x)])
    y_axis = linear_axis(panel.y_label, [*ends, *(y for series in panel.series for y in series.y)])
    names = [series.name for series in panel.series]
    words = ChartText(panel.title, f"{panel.y_label} over {panel.x_label}: {', '.join(names)}.")
    legend = [list(zip((cloud.style for cloud in clouds), names, strict=True))] if len(names) > 1 else []

    def draw(room: float) -> Markup:
        return point_clouds(_plane_frame(room, x_axis, y_axis), words, clouds, legend)

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


def _cloud(series: Series, style: Style) -> Cloud:
    finite = [(x, y) for x, y in zip(series.x, series.y, strict=True) if math.isfinite(x) and math.isfinite(y)]
    kept = [finite[place] for place in evenly_chosen(len(finite), MAX_POINTS)]
    return Cloud([x for x, _ in kept], [y for _, y in kept], style)


def _line_table(panel: LinePanel) -> Markup:
    """Values of all lines by position; evenly chosen rows and columns of large tables."""
    shown = [panel.series[place] for place in evenly_chosen(len(panel.series), MAX_COLUMNS)]
    # Series may have positions of their own: the table holds all of them.
    columns = [dict(zip(series.x, series.y, strict=True)) for series in shown]
    positions = sorted(set().union(*columns))
    kept = [positions[place] for place in evenly_chosen(len(positions), MAX_ROWS)]
    rows = [[number(x), *_cells(column.get(x) for column in columns)] for x in kept]
    return data_table(panel.title, [panel.x_label, *(series.name for series in shown)], rows)


def _cells(values: Iterable[float | None]) -> list[str]:
    return ["" if value is None or not math.isfinite(value) else number(value, 4) for value in values]


def matrix_figure(panel: MatrixPanel, note: str = "", width: float = HALF) -> Markup:
    """Draw a matrix, with its numbers in a table behind a disclosure.

    Args:
        panel: the matrix with a name per row and column.
        note: how to read it, set after its title.
        width: width on a wide screen.

    Returns:
        The figure.
    """
    shown = _thinned(panel)
    is_signed = any(value < 0 for row in panel.values for value in row)
    sign = "Blue is positive, orange negative; the" if is_signed else "The"
    words = [note, f"{sign} deeper the colour, the larger the entry."]
    if shown is not panel:
        words.append(f"{len(shown.values)} of {len(panel.values)} rows, evenly chosen, are drawn.")
    table = matrix_table(panel) if len(panel.column_labels) <= MAX_TABLE else None
    return figure(panel.title, " ".join(filter(None, words)), lambda room: heat_map(shown, room), width, table)


def heat_map(panel: MatrixPanel, width: float) -> Markup:
    """Draw the cells, and the numbers where they fit."""
    num_rows, num_columns = len(panel.row_labels), len(panel.column_labels)
    left = 8.0 + min(MAX_LABEL, max(text_width(label) for label in panel.row_labels))
    cell = min(LARGEST_CELL, (width - left) / num_columns)
    top = _label_height(panel.column_labels, cell)
    # or 1: a matrix of zeros has depth 0 everywhere.
    largest = max((abs(value) for row in panel.values for value in row if math.isfinite(value)), default=0.0) or 1.0
    texts = cell_texts(panel.values, cell)
    cells = [
        _cell((left + cell * column, top + cell * row), cell, value, texts[row][column], largest)
        for row, values in enumerate(panel.values)
        for column, value in enumerate(values)
    ]
    size = (left + cell * num_columns + 1, top + cell * num_rows + 1)
    frame = element("rect", x=left, y=top, width=cell * num_columns, height=cell * num_rows, class_="frame")
    labels = [_row_labels(panel, left, top, cell), _column_labels(panel, left, top, cell)]
    description = f"{num_rows} rows and {num_columns} columns; largest entry by size {number(largest)}."
    return svg(size, ChartText(panel.title, description), cells, frame, labels, class_="chart matrix")


def matrix_table(panel: MatrixPanel) -> Markup:
    """All numbers as a table; what is no number is left empty."""
    rows = [
        [label, *(number(value, 5) if math.isfinite(value) else "" for value in row)]
        for label, row in zip(panel.row_labels, panel.values, strict=True)
    ]
    return data_table(panel.title, ["", *panel.column_labels], rows)


def cell_texts(values: Sequence[Sequence[float]], room: float) -> list[list[str]]:
    """Write all numbers of a matrix with as many decimals as fit into so many pixels, or leave all out.

    Whole numbers have no decimals; an entry that is no number is empty.

    >>> cell_texts([[1.0, -0.62651]], 60.0), cell_texts([[1.0, -0.62651]], 40.0), cell_texts([[1.0, -0.62651]], 20.0)
    ([['1', '−0.6265']], [['1', '−0.63']], [['', '']])
    >>> cell_texts([[0.0, 128.7924]], 50.0)
    [['0', '128.79']]
    """
    has_tens = any(math.isfinite(value) and abs(value) >= 10 for row in values for value in row)
    # One number of decimals for the whole matrix: its entries are there to be compared.
    for decimals in DECIMALS_OF_TENS if has_tens else DECIMALS:
        texts = [[_written(value, decimals) for value in row] for row in values]
        longest = max((len(text) for row in texts for text in row), default=0)
        if CHARACTER_WIDTH * longest + 5 <= room:
            return texts
    return [["" for _ in row] for row in values]


def _written(value: float, decimals: int) -> str:
    """One number."""
    if not math.isfinite(value):
        return ""
    is_whole = abs(value - round(value)) < 1e-9
    # + 0.0: -0.004 is 0.00, not -0.00.
    return f"{round(value, decimals) + 0.0:.{0 if is_whole else decimals}f}".replace("-", MINUS)


def _cell(corner: tuple[float, float], size: float, value: float, words: str, largest: float) -> Markup:
    """One cell: a coloured square and its number."""
    x, y = corner
    if not math.isfinite(value):
        return element("rect", x=x, y=y, width=size, height=size, class_="cell empty")
    colour = "c1" if value >= 0 else "c2"
    # By size, on the scale of the whole matrix; colour has the sign.
    depth = f"{DEEPEST * abs(value) / largest:.3f}"
    square = element("rect", x=x, y=y, width=size, height=size, class_=f"cell {colour}", fill_opacity=depth)
    label = text(x + size / 2, y + size / 2 + 4, words, class_="middle") if words else None
    return element("g", square, label)


def _row_labels(panel: MatrixPanel, left: float, top: float, cell: float) -> list[Markup]:
    # Every ceil(14 / cell)-th name: 14 pixels from one to the next.
    step = max(1, -(-14 // max(1, int(cell))))
    return [
        text(left - 6, top + cell * (row + 0.5) + 4, _clipped(label), class_="tick end")
        for row, label in enumerate(panel.row_labels)
        if row % step == 0
    ]


def _column_labels(panel: MatrixPanel, left: float, top: float, cell: float) -> list[Markup]:
    """Name the columns: level where the names fit, upright otherwise."""
    step = max(1, -(-14 // max(1, int(cell))))
    is_level = _is_level(panel.column_labels, cell)
    labels = []
    for column, label in enumerate(panel.column_labels):
        x = left + cell * (column + 0.5)
        if is_level:
            labels.append(text(x, top - 6, label, class_="tick middle"))
        elif column % step == 0:
            turn = f"rotate(-90 {x + 4:.1f} {top - 6:.1f})"
            labels.append(text(x + 4, top - 6, _clipped(label), class_="tick", transform=turn))
    return labels


def _label_height(labels: Sequence[str], cell: float) -> float:
    """Room above the matrix for the names of its columns."""
    return 20.0 if _is_level(labels, cell) else 10.0 + min(MAX_LABEL, max(text_width(label) for label in labels))


def _is_level(labels: Sequence[str], cell: float) -> bool:
    return max(text_width(label) for label in labels) + 4 <= cell


def _clipped(label: str) -> str:
    """Cut a name that is longer than its room."""
    longest = int(MAX_LABEL / CHARACTER_WIDTH)
    return label if len(label) <= longest else label[: longest - 1] + "…"


def _thinned(panel: MatrixPanel) -> MatrixPanel:
    """The matrix itself, or evenly chosen rows and columns of a large one."""
    rows, columns = (evenly_chosen(len(labels), MAX_SHOWN) for labels in (panel.row_labels, panel.column_labels))
    # The very same record says that nothing is left out.
    if len(rows) == len(panel.row_labels) and len(columns) == len(panel.column_labels):
        return panel
    values = [[panel.values[row][column] for column in columns] for row in rows]
    row_names, column_names = [panel.row_labels[row] for row in rows], [panel.column_labels[c] for c in columns]
    return MatrixPanel(panel.title, values, row_names, column_names)
