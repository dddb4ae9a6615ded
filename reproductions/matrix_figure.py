"""Matrices of plain numbers as heat maps: colour tells the sign of an entry, depth of colour its size."""

import math
from collections.abc import Sequence

from counterpoint.report.charts.chart_frame import CHARACTER_WIDTH, ChartText, svg, text, text_width
from counterpoint.report.charts.figures import data_table, figure
from counterpoint.report.charts.ticks import evenly_chosen
from counterpoint.report.markup import Markup, element
from counterpoint.report.wording import MINUS, number
from reproductions.panels import MatrixPanel

MAX_SHOWN = 64  # rows or columns of a drawing
MAX_TABLE = 40  # columns of the table of numbers
LARGEST_CELL = 66.0
DEEPEST = 0.55  # opacity of the largest entry: text on it keeps its contrast in both themes
MAX_LABEL = 120.0
DECIMALS, DECIMALS_OF_TENS = (4, 2), (2, 1, 0)  # of the numbers in the cells: the first that fits


def matrix_figure(panel: MatrixPanel, width: float) -> Markup:
    """Draw a matrix, with its numbers in a table behind a disclosure."""
    shown = _thinned(panel)
    is_signed = any(value < 0 for row in panel.values for value in row)
    sign = "Blue is positive, orange negative; the" if is_signed else "The"
    words = [f"{sign} deeper the colour, the larger the entry."]
    if shown is not panel:
        words.append(f"{len(shown.values)} of {len(panel.values)} rows, evenly chosen, are drawn.")
    table = matrix_table(panel) if len(panel.column_labels) <= MAX_TABLE else None
    return figure(panel.title, " ".join(words), lambda room: heat_map(shown, room), width, table)


def heat_map(panel: MatrixPanel, width: float) -> Markup:
    """Draw the cells, and the numbers where they fit."""
    num_rows, num_columns = len(panel.row_labels), len(panel.column_labels)
    left = 8.0 + min(MAX_LABEL, max(text_width(label) for label in panel.row_labels))
    cell = min(LARGEST_CELL, (width - left) / num_columns)
    # Room above the matrix for the names of its columns.
    widest = max(text_width(label) for label in panel.column_labels)
    top = 20.0 if _is_level(panel.column_labels, cell) else 10.0 + min(MAX_LABEL, widest)
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
