"""Figures against the number of features kept, an order of the features to a line."""

import math
from collections.abc import Sequence

from counterpoint.core.markup import Markup, element, join
from counterpoint.core.metric import KEEPING, Unit, in_condition
from counterpoint.core.run_records import EvaluationRow
from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import data_table, figure, panel_width, panels
from counterpoint.report.charts.line_chart import Line, line_chart
from counterpoint.report.charts.series_style import RUN_DASHES, RUN_MARKERS, Style, run_tag
from counterpoint.report.charts.ticks import Axis, linear_axis, percent_axis
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections.headline import metric_of
from counterpoint.report.wording import figure_of, number

MAX_CHARTS = 6
MAX_LINES = len(RUN_DASHES)  # orders of a chart that can be told from each other
NOTE = "The features are kept in the order that a line is named after; a flat line means that few of them are enough."


def selection_curves(runs: Sequence[RunRecord]) -> Markup | None:
    """Draw the curves of each run, a chart for each metric and set of features; None where there are none."""
    charts = [chart for run in runs for chart in _charts(run, len(runs))][:MAX_CHARTS]
    note = element("p", NOTE, class_="note")
    return join(element("h3", "With a part of the features"), note, panels(charts)) if charts else None


def _charts(run: RunRecord, num_runs: int) -> list[Markup]:
    """The charts of one run."""
    found: dict[tuple[str, str], list[EvaluationRow]] = {}
    for row in run.evaluation.rows if run.evaluation else ():
        name, condition = in_condition(row.protocol)
        is_point = condition.startswith(KEEPING) and isinstance(row.settings.get("kept"), int)
        if is_point and row.figure is not None and "order" in row.settings:
            found.setdefault((name, row.features), []).append(row)
    return [_chart(run, name, features, rows, num_runs) for (name, features), rows in found.items()]


def _chart(run: RunRecord, name: str, features: str, rows: Sequence[EvaluationRow], num_runs: int) -> Markup:
    """One metric of one set of features: a line for each order."""
    metric, orders = metric_of(name), _orders(rows)
    lines = _lines(rows, orders)
    build = percent_axis if metric.unit == "share" else linear_axis
    y_axis, x_axis = build(metric.short, [row.figure for row in rows]), _size_axis(rows)
    title = f"{metric.title}, {features}"
    ranked_on = rows[0].settings.get("ranked on")
    words = ChartText(f"{title} of {run.name}", f"{title} against the number of features kept, by order.")

    def draw(width: float) -> Markup:
        # Names of orders are too long for the ends of the lines: a legend has them.
        return line_chart(Frame(width, min(330, 190 + width / 3), x_axis, y_axis), words, lines, (), orders)

    head = join(run_tag(run.name, run.order), " ", title) if num_runs > 1 else title
    note = f"Orders were made from {ranked_on}." if ranked_on else ""
    return figure(head, note, draw, panel_width(2), _table(title, rows, metric.unit))


def _orders(rows: Sequence[EvaluationRow]) -> list[str]:
    """The orders that have lines."""
    return list(dict.fromkeys(str(row.settings["order"]) for row in rows))[:MAX_LINES]


def _lines(rows: Sequence[EvaluationRow], orders: Sequence[str]) -> list[Line]:
    """A line for each order, by the binary logarithm of the size."""
    lines = []
    for place, order in enumerate(orders):
        own = sorted((row for row in rows if row.settings["order"] == order), key=_size)
        style = Style(f"c{place + 1}", RUN_DASHES[place], RUN_MARKERS[place])
        lines.append(Line("", [math.log2(_size(row)) for row in own], [row.figure for row in own], style))
    return lines


def _size(row: EvaluationRow) -> int:
    """How many features were kept."""
    return int(row.settings["kept"])


def _size_axis(rows: Sequence[EvaluationRow]) -> Axis:
    """Powers of two from the smallest size to the largest."""
    low, high = (math.log2(bound(map(_size, rows))) for bound in (min, max))
    high = max(high, low + 1)
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = tuple((float(power), number(2.0**power)) for power in powers if low <= power <= high)
    return Axis("features kept", low, high, ticks)


def _table(label: str, rows: Sequence[EvaluationRow], unit: Unit) -> Markup:
    """Sizes in rows, orders in columns."""
    orders = _orders(rows)
    at = {(_size(row), row.settings["order"]): row.figure for row in rows}
    sizes = sorted({size for size, _ in at})
    cells = [[f"{size} kept", *(figure_of(unit, at.get((size, order))) for order in orders)] for size in sizes]
    return data_table(label, ["features kept", *orders], cells, [math.log2(size) for size in sizes])
