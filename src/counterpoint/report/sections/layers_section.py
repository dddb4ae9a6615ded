"""Where are directions lost? The spectrum of every layer, how adjacent layers meet, and both along training."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.layer_record import JointFigures, LayerFigures, LayersRecord, called
from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import (
    THIRD,
    absences,
    data_table,
    figure,
    panel_width,
    panels,
    readings,
)
from counterpoint.report.charts.line_chart import (
    MAX_POINTS,
    Line,
    floor_reference,
    label_room,
    line_chart,
    log_values,
    spectrum_band,
)
from counterpoint.report.charts.series_style import PLACE_DASHES, RUN_MARKERS, Style, run_title
from counterpoint.report.charts.ticks import Axis, decade_axis, evenly_chosen, linear_axis
from counterpoint.report.run_record import EMBEDDING, REPRESENTATION, RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.theory_pages.matrix_figure import MatrixPanel, matrix_figure
from counterpoint.report.wording import number

MOST_DRAWN = 9  # layers with a spectrum of their own; the table has all
MOST_JOINTS = 3  # alignment matrices that are drawn; all are put in words
SPECTRA = "Spectra of single layers"
SPECTRA_NOTE = (
    "Eigenvalues of the covariance, in descending order, as the layer gives them. The grey band is where isotropic "
    "features of the same shape lie; on the floor nothing but rounding is left."
)
ALIGNMENT = "Alignment of adjacent layers"
ALIGNMENT_NOTE = (
    "Cosines between the right singular vectors of the second layer (rows) and the left ones of the first (columns), "
    "by the size of their singular values; means over blocks of wide layers. Where singular values are alike, a dark "
    "block says as much as a dark diagonal."
)
HEAD = ("layer", "dims", "resolved", "vanished", "effective rank", "isotropic", "largest", "least alive", "floor")
STYLES = tuple(Style(f"c{place + 1}", PLACE_DASHES[place], RUN_MARKERS[place]) for place in range(3))


def layers_section(runs: Sequence[RunRecord], *, is_drawn: bool = True) -> Markup:
    """Say for each run where directions are lost, and draw its layers; without drawings a small section."""
    known = {run: run.diagnosis.layers for run in runs if run.diagnosis and run.diagnosis.layers}
    lacking = absences([run for run in runs if run not in known], "spectra of layers", "diagnose", "--layers")
    words = readings(list(known), lambda run: _words(known[run])) if known else None
    shown = [_of_run(run, record, len(runs)) for run, record in known.items()] if is_drawn else None
    return join(words, shown, [_table(run, record) for run, record in known.items()], lacking)


def _words(record: LayersRecord) -> str:
    """Where directions are lost, and what the checkpoints say."""
    pooled = any(layer.is_pooled for layer in record.layers)
    averaged = " Maps and tokens are averaged over their positions." if pooled else ""
    return " ".join(filter(None, [record.words, record.course_words])) + averaged


def _of_run(run: RunRecord, record: LayersRecord, num_runs: int) -> Markup:
    """The figures of one run, and its table."""
    width = panel_width(3 if len(record.course) > 1 else 2)
    overview = [_alive_figure(run, record, width), *_course_figures(run, record, width)]
    shown = [place for place in _chosen(record) if _is_drawable(run.arrays.layers.get(str(place)))]
    axis = _common_axis(run, record, shown)
    spectra = [_spectrum_figure(run, record.layers[place], place, axis) for place in shown]
    joints = [_joint_figure(run, joint, place) for place, joint in enumerate(record.joints[:MOST_JOINTS])]
    joints = [each for each in joints if each is not None]
    return join(
        run_title(run.name, run.order, num_runs),
        panels(overview),
        panels(spectra, SPECTRA, SPECTRA_NOTE) if spectra else None,
        [element("p", joint.words, class_="reading") for joint in record.joints],
        panels(joints, ALIGNMENT, ALIGNMENT_NOTE) if joints else None,
        [element("p", remark, class_="note") for remark in record.remarks],
    )


def _is_drawable(values: NDArray[np.float64] | None) -> bool:
    return values is not None and values.size > 0 and float(values[0]) > 0


def _chosen(record: LayersRecord) -> list[int]:
    """Places of the layers whose spectra are drawn: those that lose most, both ends, and others evenly."""
    layers = record.layers
    lost = sorted(record.losses, key=lambda loss: -loss.count)
    names = {loss.layer for loss in lost[:3]}
    wanted = [
        place for place, each in enumerate(layers) if each.words in names or each.name in (REPRESENTATION, EMBEDDING)
    ]
    rest = [place for place in range(len(layers)) if place not in wanted]
    return sorted([*wanted, *(rest[at] for at in evenly_chosen(len(rest), max(MOST_DRAWN - len(wanted), 2)))])


def _alive_figure(run: RunRecord, record: LayersRecord, width: float) -> Markup:
    """How many directions are alive, layer by layer."""
    at = [place + 1.0 for place in range(len(record.layers))]
    lines = [
        Line("dimensions", at, [float(layer.num_dims) for layer in record.layers], Style("muted", "2 3", "square")),
        Line("alive", at, [float(layer.alive) for layer in record.layers], STYLES[0]),
        Line("effective rank", at, [layer.effective_rank for layer in record.layers], STYLES[1]),
    ]
    x_axis = linear_axis("layer, in the order of the table", [1.0, max(at[-1], 2.0)], is_whole=True)
    y_axis = linear_axis("directions", [0.0, *(value for line in lines for value in line.y)])
    words = ChartText(f"Directions by layer of {run.name}", record.words)
    return _line_figure("Directions alive, layer by layer", words, lines, (x_axis, y_axis), width)


def _course_figures(run: RunRecord, record: LayersRecord, width: float) -> list[Markup]:
    """Vanished directions and effective rank at each checkpoint; none without two of them."""
    if len(record.course) < 2:
        return []
    steps = [float(state.step) for state in record.course]
    x_axis = linear_axis("step", steps, is_whole=True)
    figures = []
    for title, take in (
        ("Vanished directions along training", "vanished"),
        ("Effective rank along training", "effective_rank"),
    ):
        lines = []
        for place, name in enumerate((REPRESENTATION, EMBEDDING)):
            layers = [state.layer(name) for state in record.course]
            values = [None if layer is None else float(getattr(layer, take) or 0) for layer in layers]
            lines.append(Line(name, steps, values, STYLES[place]))
        y_axis = linear_axis("directions", [0.0, 1.0, *(value for line in lines for value in line.y)])
        words = ChartText(f"{title} of {run.name}", record.course_words)
        figures.append(_line_figure(title, words, lines, (x_axis, y_axis), width))
    return figures


def _line_figure(title: str, words: ChartText, lines: Sequence[Line], axes: tuple[Axis, Axis], width: float) -> Markup:
    """Lines named at their ends, with their numbers."""
    x_axis, y_axis = axes

    def draw(room: float) -> Markup:
        right = label_room([each.label for each in lines])
        frame = Frame(room, min(300, 150 + room / 3), x_axis, y_axis, right=right)
        return line_chart(frame, words, lines)

    rows = [[number(x), *(number(line.y[at]) for line in lines)] for at, x in enumerate(lines[0].x)]
    table = data_table(title, [x_axis.title, *(line.label for line in lines)], rows, lines[0].x)
    return figure(title, "", draw, width, table)


def _common_axis(run: RunRecord, record: LayersRecord, shown: Sequence[int]) -> Axis:
    """One axis for the spectra of all layers, which reaches down to the floors that they reach."""
    exponents = [
        value
        for place in shown
        for value in log_values(run.arrays.layers[str(place)], record.layers[place].floor or 0.0)
    ]
    return decade_axis("eigenvalue", exponents)


def _spectrum_figure(run: RunRecord, layer: LayerFigures, place: int, y_axis: Axis) -> Markup:
    """The spectrum of one layer, with its band and its floor."""
    values = run.arrays.layers[str(place)]
    exponents, chosen = log_values(values, layer.floor or 0.0), evenly_chosen(len(values), MAX_POINTS)
    line = Line("", [at + 1.0 for at in chosen], [exponents[at] for at in chosen], STYLES[0])
    floor = floor_reference(values, layer.floor or 0.0)
    band = run.arrays.bands.get(str(place))
    x_axis = linear_axis("index", [1.0, float(max(len(values), 2))], num_ticks=4, is_whole=True)
    said = f"{layer.alive} of {layer.resolved} alive, effective rank {number(layer.effective_rank)}"
    words = ChartText(f"Spectrum of {layer.words} of {run.name}", said)
    bands = [] if band is None else [spectrum_band(band, y_axis)]

    def draw(width: float) -> Markup:
        return line_chart(Frame(width, 210, x_axis, y_axis), words, [line], [floor] if floor else [], bands=bands)

    return figure(layer.words, f"{said}.", draw, THIRD, None)


def _joint_figure(run: RunRecord, joint: JointFigures, place: int) -> Markup | None:
    """The alignment matrix of two layers; None where its array is missing."""
    matrix = run.arrays.joints.get(str(place))
    if matrix is None or not matrix.size:
        return None
    names = [_index_names(size, joint.width) for size in matrix.shape]
    panel = MatrixPanel(f"{called(joint.below)} to {called(joint.above)}", matrix.tolist(), *names)
    return matrix_figure(panel, width=THIRD)


def _index_names(size: int, width: int) -> list[str]:
    """Names of rows or columns: the number of the singular vector, the first of a block where these are averaged."""
    return [str(at * width // size + 1) for at in range(size)]


def _table(run: RunRecord, record: LayersRecord) -> Markup:
    """All layers with their figures."""
    rows = [
        [
            layer.words,
            number(layer.num_dims),
            number(layer.resolved),
            number(layer.vanished),
            *map(number, (layer.effective_rank, layer.null_rank, layer.largest, layer.least, layer.floor)),
        ]
        for layer in record.layers
    ]
    return data_table(f"Layers of {run.name}", HEAD, rows)


SECTION = Section(
    42, "layers", "Layers", "Where are directions lost?", layers_section, (partial(layers_section, is_drawn=False),)
)
