"""The panels of a reproduced figure as one drawing: SVG by matplotlib, two panels in a row.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; dashes and marks tell lines apart, too.
"""

import base64
import io
import math
import re
import textwrap
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError
from reproductions.panels import DotPanel, LinePanel, MatrixPanel, Panel, PointPanel

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise UsageError("a drawing needs matplotlib; install it with: pip install matplotlib") from error

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES, MARKS = ("-", "--", ":", "-."), "osD^vX"
WIDTH, HEIGHT, PER_ROW = 4.6, 3.4, 2  # inches of a panel
MOST_LINES, MOST_NAMED, MOST_NUMBERED = 18, 8, 6  # drawn, named; rows of a matrix whose numbers are written
STEEP = 30.0  # largest value over the median one, from which an axis of both signs is logarithmic
PLACED, LONG = re.compile(r' (?:d|x|y|transform)="[^"]*"'), re.compile(r"\d+\.\d{3,}|\s*\n\s*")
LOOK: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "image.cmap": "RdBu",
}
DrawnPanel = LinePanel | PointPanel | MatrixPanel | DotPanel


def draw_panels(panels: Sequence[Panel], name: str) -> str:
    """Draw lines, points, matrices and dots as SVG; tables are not drawn.

    Args:
        panels: of a figure.
        name: of the figure, from which ids within the file are made: the same panels give the same bytes.

    Returns:
        The file's text; empty if nothing can be drawn.
    """
    drawn = [panel for panel in panels if isinstance(panel, DrawnPanel)]
    if not drawn:
        return ""
    columns, rows = min(PER_ROW, len(drawn)), math.ceil(len(drawn) / PER_ROW)
    names = {tuple(each.name for each in panel.series) for panel in drawn if isinstance(panel, LinePanel | PointPanel)}
    height = max(0.9 + 0.35 * len(panel.values) if isinstance(panel, DotPanel) else HEIGHT for panel in drawn)
    with mpl.rc_context({**LOOK, "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH * columns, height * rows), layout="constrained")
        places = figure.subplots(rows, columns, squeeze=False).flat
        for panel, axes in zip(drawn, places, strict=False):  # in this order no place is lost
            axes.set_title(_wrapped(panel.title, 56))
            match panel:
                case MatrixPanel():
                    _draw_matrix(axes, panel)
                case DotPanel():
                    _draw_dots(axes, panel)
                case LinePanel() | PointPanel():
                    _draw_series(axes, panel)
                    if len(names) > 1 and 1 < len(panel.series) <= MOST_NAMED:
                        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
                    elif len(panel.series) > MOST_NAMED:
                        axes.set_title(_wrapped(f"{panel.title}, {len(panel.series)} lines", 56))
        for axes in places:  # those that no panel took
            axes.set_visible(False)
        if len(names) == 1 and 1 < len(next(iter(names))) <= MOST_NAMED:  # all panels have one legend
            (shared, words) = next(axes for axes in figure.axes if axes.lines).get_legend_handles_labels()
            figure.legend(shared, words, loc="outside lower center", ncols=min(4, len(words)))
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    # Two decimals of a point are enough to draw, and a path is one line.
    return PLACED.sub(
        lambda match: LONG.sub(lambda digits: f"{float(digits[0]):.2f}" if digits[0].strip() else " ", match[0]),
        text.getvalue(),
    )


def as_address(drawing: str) -> str:
    """Encode a drawing as a ``data:`` address for a page."""
    return f"data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode('ascii')}"


def _wrapped(text: str, width: int) -> str:
    """Wrap a text into lines, its dollar signs escaped so that no formula begins."""
    return textwrap.fill(text, width).replace("$", r"\$")


def _draw_series(axes: Axes, panel: LinePanel | PointPanel) -> None:
    """Draw lines or clouds of points, at most ``MOST_LINES`` of them, with both axes."""
    places = np.linspace(0, len(panel.series) - 1, min(len(panel.series), MOST_LINES)).round().astype(int)
    drawn_series = [panel.series[place] for place in dict.fromkeys(places.tolist())]
    for place, (series, (dash, colour)) in enumerate(zip(drawn_series, product(DASHES, COLOURS), strict=False)):
        look: dict[str, Any] = {
            "color": colour,
            "marker": MARKS[place % len(MARKS)] if len(drawn_series) <= MOST_NAMED else None,
            "label": _wrapped(textwrap.shorten(series.name, 30, placeholder="…"), 30),
        }
        if isinstance(panel, PointPanel):
            axes.plot(series.x, series.y, linestyle="none", markersize=3, alpha=0.5, **look)
        else:
            axes.plot(series.x, series.y, dash, markevery=max(1, len(series.x) // 6), markersize=3.5, lw=1.3, **look)
    axes.set_xlabel(_wrapped(panel.x_label, 50))
    axes.set_ylabel(_wrapped(panel.y_label, 34))
    if isinstance(panel, PointPanel):
        axes.set_aspect("equal", adjustable="datalim")
        return
    xs, ys = (np.array([value for series in drawn_series for value in getattr(series, axis)]) for axis in "xy")
    if panel.log_x and (xs > 0).any():
        axes.set_xscale("log", nonpositive="mask")
    sizes = np.abs(ys[np.isfinite(ys) & (ys != 0)])
    if panel.log_y and (ys > 0).any():
        axes.set_yscale("log", nonpositive="mask")
    elif not panel.log_y and len(sizes) and sizes.max() > STEEP * np.median(sizes):
        axes.set_yscale("symlog", linthresh=float(np.median(sizes)))


def _draw_matrix(axes: Axes, panel: MatrixPanel) -> None:
    """Draw a heat map: blue is positive, red negative."""
    values = np.array(panel.values)
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0) or 1.0
    axes.imshow(values, vmin=-largest, vmax=largest, aspect="auto" if values.shape[0] != values.shape[1] else "equal")
    for ticks, names in ((axes.set_xticks, panel.column_labels), (axes.set_yticks, panel.row_labels)):
        step = math.ceil(len(names) / MOST_NAMED)
        ticks(range(0, len(names), step), [_wrapped(name, 30) for name in names[::step]])
    if max(map(len, panel.column_labels)) > 4 < values.shape[1]:
        axes.tick_params(axis="x", labelrotation=90)
    if max(values.shape) <= MOST_NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            colour = "white" if abs(value) > 0.6 * largest else "black"
            axes.text(column, row, f"{value:.3g}", ha="center", va="center", color=colour, fontsize=7.5)


def _draw_dots(axes: Axes, panel: DotPanel) -> None:
    """Draw a row for each arm: a dot for each seed, and a bar at the mean."""
    for place, values in enumerate(panel.values.values()):
        axes.plot(values, [place] * len(values), "o", color=COLOURS[0], markersize=4, alpha=0.6)
        axes.plot([float(np.mean(values))], [place], "|", color=COLOURS[0], markersize=14)
    axes.set_yticks(range(len(panel.values)), [_wrapped(name, 30) for name in panel.values])
    axes.set_ylim(len(panel.values) - 0.5, -0.5)
