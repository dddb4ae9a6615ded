"""Section 4: how many dimensions does it use? Singular values, and the measurements of each set of vectors."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterpoint.report.chart_frame import ChartText, Frame
from counterpoint.report.figures import absences, data_table, figure, panel_width, panels, readings
from counterpoint.report.line_chart import Line, label_room, line_chart
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_record import EMBEDDING, PLACES, REPRESENTATION, UNTRAINED, RunRecord
from counterpoint.report.series_style import place_style, run_tag
from counterpoint.report.ticks import Axis, decade_axis, evenly_chosen, linear_axis
from counterpoint.report.wording import number, percent

MAX_POINTS = 160
NUM_DECADES = 6  # below the largest value by more than this, a value is numerically zero for the reader
SHORT_NAMES = {REPRESENTATION: "representation", EMBEDDING: "embedding", UNTRAINED: "untrained"}


def spectrum_section(runs: Sequence[RunRecord]) -> Markup:
    """Draw each run's spectra on common axes beside its measurements."""
    drawn = [run for run in runs if run.arrays.spectra]
    absent = absences([run for run in runs if not run.arrays.spectra], "spectra", "diagnose")
    x_axis, y_axis = _axes(drawn)
    figures = [_figure(run, x_axis, y_axis, len(runs)) for run in drawn]
    tables = _places_table(runs)
    if len(runs) == 1:
        return join(readings(runs, _rank_words), element("div", figures, tables, class_="main-and-side"), absent)
    return join(readings(runs, _rank_words), panels(figures), tables, absent)


def _rank_words(run: RunRecord) -> str:
    """Say how many dimensions the embedding and the representation use, and how many they used untrained."""
    parts = [_one_rank(run, place) for place in (REPRESENTATION, EMBEDDING)]
    words = "; ".join(part for part in parts if part)
    if not words:
        return ""
    untrained = run.place(UNTRAINED)
    before = untrained.effective_rank if untrained else None
    tail = f" Before training the representation used {number(before)}." if before is not None else ""
    return f"{words[0].upper()}{words[1:]}.{tail}{_dead_words(run)}"


def _one_rank(run: RunRecord, name: str) -> str:
    place = run.place(name)
    if place is None or place.effective_rank is None:
        return ""
    ceiling = f" of at most {number(place.rank_ceiling)}" if place.rank_ceiling is not None else ""
    return f"the {name} spreads over {number(place.effective_rank)}{ceiling} dimensions"


def _dead_words(run: RunRecord) -> str:
    place = run.place(EMBEDDING)
    if place is None or not place.dead_dims:
        return ""
    total = f" of {number(place.num_dims)}" if place.num_dims else ""
    return f" {number(place.dead_dims)}{total} embedding dimensions are never active."


def _axes(runs: Sequence[RunRecord]) -> tuple[Axis, Axis]:
    """Common axes: index from 1, and powers of ten down to what still matters."""
    spectra = [values for run in runs for values in run.arrays.spectra.values() if values.size]
    longest = max((len(values) for values in spectra), default=1)
    shown = [exponent for values in spectra for exponent in _log10(values) if exponent is not None]
    x_axis = linear_axis("index", [1.0, float(max(longest, 2))], num_ticks=6, is_whole=True)
    return x_axis, decade_axis("singular value of the covariance", shown)


def _log10(values: NDArray[np.float64]) -> list[float | None]:
    """Logarithms; values beyond the shown decades are None."""
    least = values[0] * 10.0**-NUM_DECADES if values.size else 0.0
    return [math.log10(value) if value > least else None for value in values]


def _figure(run: RunRecord, x_axis: Axis, y_axis: Axis, num_runs: int) -> Markup:
    spectra = {place: run.arrays.spectra[place] for place in PLACES if place in run.arrays.spectra}
    lines = [_line(run, place, values, num_runs) for place, values in spectra.items() if values.size]
    words = ChartText(f"Spectra of {run.name}", _rank_words(run) or "Singular values in descending order.")

    def draw(width: float) -> Markup:
        right = label_room([line.label for line in lines])
        return line_chart(Frame(width, min(330, 170 + width / 3), x_axis, y_axis, right=right), words, lines)

    title = run_tag(run.name, run.order) if num_runs > 1 else "Singular values, in descending order"
    note = "A flat line uses all its dimensions alike; a cliff means the rest are unused."
    return figure(title, note if run.order == 0 else "", draw, panel_width(num_runs), _table(run))


def _line(run: RunRecord, place: str, values: NDArray[np.float64], num_runs: int) -> Line:
    chosen = evenly_chosen(len(values), MAX_POINTS)
    exponents = _log10(values)
    style = place_style(place, run.order, num_runs)
    return Line(SHORT_NAMES[place], [at + 1.0 for at in chosen], [exponents[at] for at in chosen], style)


def _table(run: RunRecord) -> Markup:
    """List the values of all spectra at the same indices."""
    spectra = {place: run.arrays.spectra[place] for place in PLACES if place in run.arrays.spectra}
    chosen = evenly_chosen(max(map(len, spectra.values())), MAX_POINTS // 2)
    head = ["index", *(SHORT_NAMES[place] for place in spectra)]
    rows = [
        [f"index {at + 1}", *(number(float(values[at])) if at < len(values) else "–" for values in spectra.values())]
        for at in chosen
    ]
    return data_table(f"Spectra of {run.name}", head, rows, [at + 1.0 for at in chosen])


def _places_table(runs: Sequence[RunRecord]) -> Markup | None:
    """Set the measurements of every set of vectors in rows."""
    rows = [
        [_row_title(run, name, len(runs)), *_place_cells(run, name)]
        for run in runs
        for name in PLACES
        if run.place(name) is not None
    ]
    if not rows:
        return None
    head = ["vectors", "effective rank", "ceiling", "dead", "sparsity"]
    return element("div", data_table("Dimensions in use", head, rows), class_="places")


def _row_title(run: RunRecord, name: str, num_runs: int) -> Markup:
    return join(run_tag(run.name, run.order) if num_runs > 1 else None, " ", SHORT_NAMES[name])


def _place_cells(run: RunRecord, name: str) -> list[str]:
    place = run.place(name)
    assert place is not None  # the caller asks only for places that were measured
    dead = "–" if place.dead_dims is None else f"{number(place.dead_dims)} of {number(place.num_dims)}"
    sparsity = "–" if place.sparsity is None else percent(place.sparsity)
    rank, ceiling = ("–" if value is None else number(value) for value in (place.effective_rank, place.rank_ceiling))
    return [rank, ceiling, dead, sparsity]
