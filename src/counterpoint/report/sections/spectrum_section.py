"""How many dimensions does it use? Singular values, and the measurements of each set of vectors."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.metric import Metric
from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import absences, data_table, figure, max_rows, panel_width, panels, readings
from counterpoint.report.charts.line_chart import Line, label_room, line_chart
from counterpoint.report.charts.series_style import place_style, run_tag
from counterpoint.report.charts.ticks import Axis, decade_axis, evenly_chosen, linear_axis
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_record import EMBEDDING, PLACES, REPRESENTATION, UNTRAINED, RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.headline import DIAGNOSTICS
from counterpoint.report.wording import figure_of, number

MAX_POINTS = 160
NUM_DECADES = 6  # below the largest value by more than this, a value is numerically zero for the reader
TITLE = "Singular values, in descending order"
HOW_TO_READ = "A flat line uses all its dimensions alike; a cliff means the rest are unused."
SHORT_NAMES = {REPRESENTATION: "representation", EMBEDDING: "embedding", UNTRAINED: "untrained"}


def spectrum_section(runs: Sequence[RunRecord]) -> Markup:
    """Draw each run's spectra on common axes beside its measurements."""
    drawn = [run for run in runs if run.arrays.spectra]
    absent = absences([run for run in runs if not run.arrays.spectra], "spectra", "diagnose")
    y_axis = _value_axis(drawn)
    figures = [_figure(run, y_axis, len(runs)) for run in drawn]
    if len(runs) == 1:
        chart_and_table = element("div", figures, _place_table(runs[0]), class_="main-and-side even")
        return join(readings(runs, _rank_words), chart_and_table, absent)
    return join(
        readings(runs, _rank_words), panels(figures, TITLE, HOW_TO_READ) if figures else None, _run_table(runs), absent
    )


def _rank_words(run: RunRecord) -> str:
    """Say how many dimensions the embedding and the representation use, and how many they used untrained."""
    parts = [_one_rank(run, place) for place in (REPRESENTATION, EMBEDDING)]
    words = "; ".join(part for part in parts if part)
    if not words:
        return ""
    before = run.measured(UNTRAINED, "effective_rank")
    tail = f" Before training the representation used {number(before)}." if before is not None else ""
    return f"{words[0].upper()}{words[1:]}.{tail}{_dead_words(run)}"


def _one_rank(run: RunRecord, name: str) -> str:
    rank, ceiling = run.measured(name, "effective_rank"), run.measured(name, "rank_ceiling")
    most = f" of at most {number(ceiling)}" if ceiling is not None else ""
    return "" if rank is None else f"the {name} spreads over {number(rank)}{most} dimensions"


def _dead_words(run: RunRecord) -> str:
    place, num_dead = run.place(EMBEDDING), run.measured(EMBEDDING, "dead_dims")
    total = f" of {number(place.num_dims)}" if place and place.num_dims else ""
    return f" In the embedding, {number(num_dead)}{total} dimensions are never active." if num_dead else ""


def _value_axis(runs: Sequence[RunRecord]) -> Axis:
    """Powers of ten down to what still matters, common to all runs."""
    spectra = [values for run in runs for values in run.arrays.spectra.values() if values.size]
    return decade_axis("singular value of the covariance", [shown for values in spectra for shown in _log10(values)])


def _index_axis(run: RunRecord) -> Axis:
    longest = max((len(values) for values in run.arrays.spectra.values()), default=1)
    # 2: a single value needs a range, too.
    return linear_axis("index", [1.0, float(max(longest, 2))], num_ticks=6, is_whole=True)


def _log10(values: NDArray[np.float64]) -> list[float | None]:
    """Logarithms; values beyond the shown decades are None."""
    # Values descend, so the first is the largest.
    least = values[0] * 10.0**-NUM_DECADES if values.size else 0.0
    return [math.log10(value) if value > least else None for value in values]


def _figure(run: RunRecord, y_axis: Axis, num_runs: int) -> Markup:
    spectra = {place: run.arrays.spectra[place] for place in PLACES if place in run.arrays.spectra}
    lines = [_line(run, place, values, num_runs) for place, values in spectra.items() if values.size]
    words = ChartText(f"Spectra of {run.name}", _rank_words(run) or "Singular values in descending order.")

    # Each run has its own index axis, as widths may differ; the vertical one is common.
    def draw(width: float) -> Markup:
        right = label_room([line.label for line in lines])
        return line_chart(Frame(width, min(330, 170 + width / 3), _index_axis(run), y_axis, right=right), words, lines)

    title = run_tag(run.name, run.order) if num_runs > 1 else TITLE
    return figure(title, HOW_TO_READ if num_runs == 1 else "", draw, panel_width(num_runs), _table(run, num_runs))


def _line(run: RunRecord, place: str, values: NDArray[np.float64], num_runs: int) -> Line:
    chosen = evenly_chosen(len(values), MAX_POINTS)
    exponents = _log10(values)
    style = place_style(place, run.order, num_runs)
    return Line(SHORT_NAMES[place], [at + 1.0 for at in chosen], [exponents[at] for at in chosen], style)


def _table(run: RunRecord, num_runs: int) -> Markup:
    """List the values of all spectra at the same indices."""
    spectra = {place: run.arrays.spectra[place] for place in PLACES if place in run.arrays.spectra}
    chosen = evenly_chosen(max(map(len, spectra.values())), max_rows(num_runs))
    head = ["index", *(SHORT_NAMES[place] for place in spectra)]
    rows = [
        [f"index {at + 1}", *(number(float(values[at])) if at < len(values) else "–" for values in spectra.values())]
        for at in chosen
    ]
    return data_table(f"Spectra of {run.name}", head, rows, [at + 1.0 for at in chosen])


def _place_table(run: RunRecord) -> Markup | None:
    """Set the metrics of one run in rows, its sets of vectors in columns."""
    places = [name for name in PLACES if run.place(name) is not None]
    rows = [[metric.short, *(_cell(run, name, metric) for name in places)] for metric in _measured_metrics([run])]
    table = data_table("Measurements", ["", *(SHORT_NAMES[name] for name in places)], rows)
    return element("div", table, class_="places") if rows else None


def _run_table(runs: Sequence[RunRecord]) -> Markup | None:
    """Set the metrics of each set of vectors in rows, the runs in columns."""
    diagnosed = [run for run in runs if any(run.place(name) for name in PLACES)]
    rows = [
        [metric.short, SHORT_NAMES[name], *(_cell(run, name, metric) for run in diagnosed)]
        for metric in _measured_metrics(diagnosed)
        for name in PLACES
        if any(run.measured(name, metric.name) is not None for run in diagnosed)
    ]
    head = ["", "vectors", *(run_tag(run.name, run.order) for run in diagnosed)]
    return data_table("Measurements", head, rows) if rows else None


def _measured_metrics(runs: Sequence[RunRecord]) -> list[Metric]:
    """The metrics that reports show and some run has."""
    return [
        each
        for each in DIAGNOSTICS.values()
        if each.is_shown and any(run.measured(place, each.name) is not None for run in runs for place in PLACES)
    ]


def _cell(run: RunRecord, place: str, metric: Metric) -> str:
    """A figure, and what it is to be compared with."""
    value, reference = run.measured(place, metric.name), run.measured(place, metric.reference)
    beside = "" if reference is None else f" of {figure_of(metric.unit, reference)}"
    return "–" if value is None else figure_of(metric.unit, value) + beside


SECTION = Section(40, "spectra", "Spectra", "How many dimensions does it use?", spectrum_section)
