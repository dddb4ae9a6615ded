"""How many dimensions does it use? Singular values, and the measurements of each set of vectors."""

# D eigenvalues, K of the band

import math
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.metric import Metric
from counterpoint.report.charts.chart_frame import Axis, ChartText, decade_axis, evenly_chosen, linear_axis
from counterpoint.report.charts.drawings import Band, Line, Reference, line_drawing
from counterpoint.report.charts.figures import (
    absences,
    data_table,
    figure,
    max_rows,
    panel_width,
    panels,
    place_style,
    readings,
    run_tag,
)
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_reading import EMBEDDING, PLACES, REPRESENTATION, UNTRAINED, RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.headline import DIAGNOSTICS
from counterpoint.report.wording import figure_of, number

TITLE = "Singular values, in descending order"
HOW_TO_READ = "A flat line uses all its dimensions alike; a cliff means the rest are unused."
BAND_WORDS = " The grey band is where isotropic features of the embedding's shape lie."
MOST, FEW = 0.5, 0.1  # shares of the possible rank from which most, and below which few dimensions are used
MAX_POINTS = 160  # most points of a line
FLOOR_WORDS = "floor: rounding"
SHORT_NAMES = {REPRESENTATION: "representation", EMBEDDING: "embedding", UNTRAINED: "untrained"}


def _fill(runs: Sequence[RunRecord]) -> Markup:
    drawn = [run for run in runs if run.spectra]
    absent = absences([run for run in runs if not run.spectra], "spectra", "diagnose")
    # All runs share an axis of powers of ten, down to the floor of the arithmetic if a spectrum reaches it.
    spectra = [values for run in drawn for values in run.spectra.values() if values.size]
    exponents = [exponent for values in spectra for exponent in log_values(values)]
    y_axis, words = decade_axis("singular value of the covariance", exponents), readings(runs, _rank_words)
    figures = [_figure(run, y_axis, len(runs)) for run in drawn]
    if len(runs) == 1:
        return join(words, element("div", figures, _measurements(runs), class_="main-and-side even"), absent)
    return join(words, panels(figures, TITLE, HOW_TO_READ) if figures else None, _measurements(runs), absent)


def _rank_words(run: RunRecord) -> str:
    parts = []
    for name in (REPRESENTATION, EMBEDDING):
        rank, ceiling = run.measured(name, "effective_rank"), run.measured(name, "rank_ceiling")
        most = f" of at most {number(ceiling)}" if ceiling is not None else ""
        if rank is not None:
            parts.append(f"the {name} spreads over {number(rank)}{most} dimensions")
    if not parts:
        return ""
    words = "; ".join(parts)
    before = run.measured(UNTRAINED, "effective_rank")
    tail = f" Before training the representation used {number(before)}." if before is not None else ""
    if num_dead := run.measured(EMBEDDING, "dead_dims"):
        place = run.place(EMBEDDING)
        total = f" of {number(place.num_dims)}" if place and place.num_dims else ""
        tail += f" In the embedding, {number(num_dead)}{total} dimensions are never active."
    return f"{words[0].upper()}{words[1:]}.{tail}"


def _answer(run: RunRecord) -> str:
    rank, most = (run.measured(REPRESENTATION, name) for name in ("effective_rank", "rank_ceiling"))
    if rank is None or not most:
        return ""
    used = next(word for word, least in (("most", MOST), ("some", FEW), ("few", -1.0)) if rank / most >= least)
    return f"It uses {used} of them: {number(rank)} of at most {number(most)}"


def _figure(run: RunRecord, y_axis: Axis, num_runs: int) -> Markup:
    spectra = run.spectra
    lines = [_line(run, place, values, num_runs) for place, values in spectra.items() if values.size]
    floors = [
        Reference(FLOOR_WORDS, math.log10(floor))
        for values in spectra.values()
        if values.size and values[0] > (floor := rounding(values)) > 0 and values[-1] <= floor
    ]
    band = None if run.band is None else spectrum_band(run.band, y_axis)
    words = ChartText(f"Spectra of {run.name}", _rank_words(run) or "Singular values in descending order.")
    # Each run has its own index axis, as widths may differ; 2: a single value needs a range, too.
    longest = max(2, *map(len, spectra.values()))
    x_axis = linear_axis("index", [1.0, float(longest)], num_ticks=6, is_whole=True)
    # Each line may reach a floor of its own; the floors lie close to each other, so only the first is named.
    draw = line_drawing(words, (x_axis, y_axis), lines, floors[:1], band)
    title = run_tag(run) if num_runs > 1 else TITLE
    note = HOW_TO_READ + (BAND_WORDS if band else "")
    return figure(title, note if num_runs == 1 else "", draw, panel_width(num_runs), _table(run, num_runs))


def rounding(values_D: NDArray[np.float64]) -> float:
    """Least level that a covariance in float64 resolves: D eps of its largest eigenvalue, 12 decades below it or more.

    >>> round(math.log10(rounding(np.array([1.0] * 128))), 1)
    -13.5
    """
    return len(values_D) * sys.float_info.epsilon * float(values_D[0]) if values_D.size else 0.0


def log_values(values_D: NDArray[np.float64]) -> list[float | None]:
    """Logarithms of a descending spectrum, at least that of its floor; a 0 is None if the floor is 0."""
    levels = np.maximum(values_D, rounding(values_D)).tolist()
    return [math.log10(level) if level > 0 else None for level in levels]


def spectrum_band(band_2K: NDArray[np.float64], axis: Axis) -> Band:
    """Build the band of isotropic features by the index of the eigenvalue, from 1, cut to an axis of logarithms."""

    def within(value: float) -> float:
        """Take the logarithm, moved to the end of the axis if it lies beyond."""
        return min(max(math.log10(value), axis.low), axis.high) if value > 0 else axis.low

    low, high = ([within(float(value)) for value in ends] for ends in band_2K)
    chosen = evenly_chosen(band_2K.shape[1], MAX_POINTS)
    return Band([at + 1.0 for at in chosen], [low[at] for at in chosen], [high[at] for at in chosen])


def _line(run: RunRecord, place: str, values: NDArray[np.float64], num_runs: int) -> Line:
    chosen = evenly_chosen(len(values), MAX_POINTS)
    exponents = log_values(values)
    style = place_style(place, run.order, num_runs)
    return Line(SHORT_NAMES[place], [at + 1.0 for at in chosen], [exponents[at] for at in chosen], style)


def _table(run: RunRecord, num_runs: int) -> Markup:
    spectra = run.spectra
    chosen = evenly_chosen(max(map(len, spectra.values())), max_rows(num_runs))
    head = ["index", *(SHORT_NAMES[place] for place in spectra)]
    rows = [
        [f"index {at + 1}", *(number(float(values[at])) if at < len(values) else "–" for values in spectra.values())]
        for at in chosen
    ]
    return data_table(f"Spectra of {run.name}", head, rows, [at + 1.0 for at in chosen])


def _measurements(runs: Sequence[RunRecord]) -> Markup | None:
    """List the metrics; the columns are the sets of vectors of one run, or else the runs."""
    metrics = [
        metric
        for metric in DIAGNOSTICS.values()
        if metric.is_shown and any(run.measured(place, metric.name) is not None for run in runs for place in PLACES)
    ]
    if not metrics:
        return None
    if len(runs) == 1:
        places = [name for name in PLACES if runs[0].place(name) is not None]
        rows = [[metric.short, *(_cell(runs[0], name, metric) for name in places)] for metric in metrics]
        table = data_table("Measurements", ["", *(SHORT_NAMES[name] for name in places)], rows)
        return element("div", table, class_="places")
    rows = [
        [metric.short, SHORT_NAMES[name], *(_cell(run, name, metric) for run in runs)]
        for metric in metrics
        for name in PLACES
        if any(run.measured(name, metric.name) is not None for run in runs)
    ]
    return data_table("Measurements", ["", "vectors", *(run_tag(run) for run in runs)], rows)


def _cell(run: RunRecord, place: str, metric: Metric) -> str:
    value, reference = run.measured(place, metric.name), run.measured(place, metric.reference)
    beside = "" if reference is None else f" of {figure_of(metric.unit, reference)}"
    return "–" if value is None else figure_of(metric.unit, value) + beside


SECTION = Section(40, "spectra", "Spectra", "How many dimensions does it use?", _fill, _answer)
