"""How does the loss curve where training went? Directions up, flat and down, along training; from ``spectrum.json``."""

from collections.abc import Sequence

from counterpoint.core.terminal_text import printable
from counterpoint.diagnostics.curvature.spectrum_records import Mass
from counterpoint.report.charts.chart_frame import ChartText, evenly_chosen, linear_axis
from counterpoint.report.charts.drawings import Line, Reference, line_drawing
from counterpoint.report.charts.figures import Style, data_table, figure, panel_width, readings, run_title
from counterpoint.report.markup import Markup, join
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import count, number, percent
from counterpoint.runs.curvature_record import HessianSpectrum

ENDS = "Largest and least eigenvalue by step"
ENDS_NOTE = "Same batch, views and random vectors at each step."
UP, DOWN = Style("c1"), Style("c2", "7 3", "square")
MAX_STATES = 40  # most rows of the table


def _fill(runs: Sequence[RunRecord]) -> Markup:
    spectra = [(run, run.curvature) for run in runs if run.curvature is not None]
    figures = [join(run_title(run, len(runs)), _spectrum_figure(run, spectrum)) for run, spectrum in spectra]
    return join(readings(runs, curvature_words), figures)


def _spectrum_figure(run: RunRecord, spectrum: HessianSpectrum) -> Markup:
    """Draw both ends of the spectrum along training; with one checkpoint return the table alone."""
    states, table = spectrum.states, _state_table(run, spectrum)
    if len(states) < 2:
        return table
    ends = [("largest", UP, [s.found.largest[0].value for s in states])]
    ends.append(("least", DOWN, [s.found.smallest[0].value for s in states]))
    steps = [float(state.step) for state in states]
    y_axis = linear_axis("eigenvalue", [0.0, *(value for *_, values in ends for value in values)])
    x_axis = linear_axis("step", steps, num_ticks=4, is_whole=True)
    lines = [Line(name, steps, values, style) for name, style, values in ends]
    words = ChartText(f"Ends of the spectrum of {run.name}", "Largest and least eigenvalue at each checkpoint.")
    draw = line_drawing(words, (x_axis, y_axis), lines, [Reference("", 0.0)])
    return figure(ENDS, ENDS_NOTE, draw, panel_width(1), table)


def _answer(run: RunRecord) -> str:
    spectrum = run.curvature
    if spectrum is None:
        return ""
    low, high = spectrum.last.masses.within.count
    half = spectrum.num_parameters / 2
    flat = "most" if low > half else "fewer than half of the" if high < half else "about half of the"
    share = percent(min((low + high) / 4 / half, 1.0))
    down = "; it curves down in some" if spectrum.last.has_negative_curvature else ""
    return f"The loss is flat in {flat} directions ({share}){down}"


def curvature_words(run: RunRecord) -> str:
    """Say how many directions curve which way, and what was checked."""
    spectrum = run.curvature
    if spectrum is None:
        return ""
    last, tau = spectrum.last, spectrum.settings.get("threshold")
    down, flat, up = last.masses.below, last.masses.within, last.masses.above
    words = [
        f"Of {count(spectrum.num_parameters, 'direction')} in the space of weights, {_interval(down)} curve down by "
        f"more than {number(tau)}, {_interval(flat)} are flat within {number(tau)}, {_interval(up)} curve up by more "
        f"(95 % intervals; certain: {down.at_least:,} down, {up.at_least:,} up)."
    ]
    words.append(
        f"As the loss curves down along some direction (eigenvalue {number(last.smallest[0].value)} or less), this is "
        f"no local minimum; at a strict saddle the gradient, of length {number(last.gradient_norm)}, would be 0."
        if last.has_negative_curvature
        else "No direction was found along which the loss curves down, which does not prove that there is none."
    )
    failed = {check.name for state in spectrum.states for check in state.found.certificates if not check.holds}
    if failed:
        words.append(f"Certificates failed ({printable(', '.join(sorted(failed)))}): do not trust these figures.")
    else:
        checked = [check for check in last.certificates if check.defect is not None]
        worst = max((check.defect or 0.0 for check in checked), default=0.0)
        num_checked = count(len(checked), "certificate")
        words.append(f"The products were checked: {num_checked}, off by {number(worst, 2)} at most.")
    return " ".join(words)


def _interval(mass: Mass) -> str:
    low, high = mass.count
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _state_table(run: RunRecord, spectrum: HessianSpectrum) -> Markup:
    chosen = [spectrum.states[at] for at in evenly_chosen(len(spectrum.states), MAX_STATES)]
    tau = number(spectrum.settings.get("threshold"))
    head = ["step", "loss", "gradient", f"below −{tau}", "within", "above", "least", "largest", "trace"]
    rows = []
    for state in chosen:
        estimate, trace = state.found, state.found.trace.interval
        masses = (_interval(mass) for mass in (estimate.masses.below, estimate.masses.within, estimate.masses.above))
        ends = (f"{number(end.value)} ± {number(end.error, 1)}" for end in (estimate.smallest[0], estimate.largest[0]))
        sizes = (number(estimate.value), number(estimate.gradient_norm))
        rows.append([f"step {state.step:,}", *sizes, *masses, *ends, f"{number(trace.low)} to {number(trace.high)}"])
    return data_table(f"Spectrum of {run.name} by step", head, rows, [float(state.step) for state in chosen])


SECTION = Section(45, "curvature", "Curvature", "How does the loss curve around these weights?", _fill, _answer)
