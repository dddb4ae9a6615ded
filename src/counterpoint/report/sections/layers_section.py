"""Where are directions lost? How many are alive in every layer."""

from collections.abc import Sequence

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.layer_record import LayersRecord
from counterpoint.report.charts.chart_frame import ChartText
from counterpoint.report.charts.figures import absences, data_table, figure, panel_width, readings
from counterpoint.report.charts.line_chart import Line, line_drawing
from counterpoint.report.charts.series_style import PLACE_DASHES, RUN_MARKERS, Style, run_title
from counterpoint.report.charts.ticks import linear_axis
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import number

TITLE = "Directions alive, layer by layer"
HEAD = ("layer", "dims", "resolved", "vanished", "effective rank", "isotropic", "largest", "least alive", "floor")
STYLES = tuple(Style(f"c{place + 1}", PLACE_DASHES[place], RUN_MARKERS[place]) for place in range(2))


def layers_section(runs: Sequence[RunRecord]) -> Markup:
    """Say for each run where directions are lost, and draw how many are alive."""
    known = {run: run.diagnosis.layers for run in runs if run.diagnosis and run.diagnosis.layers}
    lacking = absences([run for run in runs if run not in known], "spectra of layers", "diagnose", "--layers")
    words = readings(list(known), lambda run: _words(known[run])) if known else None
    shown = [
        join(
            run_title(run.name, run.order, len(runs)),
            _alive_figure(run, record),
            [element("p", remark, class_="note") for remark in record.remarks],
        )
        for run, record in known.items()
    ]
    return join(words, shown, lacking)


def _words(record: LayersRecord) -> str:
    """Where directions are lost."""
    pooled = any(layer.is_pooled for layer in record.layers)
    averaged = " Maps and tokens are averaged over their positions." if pooled else ""
    return record.words + averaged


def _alive_figure(run: RunRecord, record: LayersRecord) -> Markup:
    at = [place + 1.0 for place in range(len(record.layers))]
    lines = [
        Line("dimensions", at, [float(layer.num_dims) for layer in record.layers], Style("muted", "2 3", "square")),
        Line("alive", at, [float(layer.alive) for layer in record.layers], STYLES[0]),
        Line("effective rank", at, [layer.effective_rank for layer in record.layers], STYLES[1]),
    ]
    x_axis = linear_axis("layer, in the order of the table", [1.0, max(at[-1], 2.0)], is_whole=True)
    y_axis = linear_axis("directions", [0.0, *(value for line in lines for value in line.y)])
    words = ChartText(f"Directions by layer of {run.name}", record.words)
    draw = line_drawing(words, (x_axis, y_axis), lines)
    return figure(TITLE, "", draw, panel_width(1), _table(run, record))


def _table(run: RunRecord, record: LayersRecord) -> Markup:
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
    at = [place + 1.0 for place in range(len(rows))]
    return data_table(f"Layers of {run.name}", HEAD, rows, at)


def layers_answer(run: RunRecord) -> str:
    """How many directions are alive in the first and in the last layer."""
    layers = run.diagnosis.layers.layers if run.diagnosis and run.diagnosis.layers else ()
    if not layers:
        return ""
    return f"{number(layers[0].alive)} directions alive in the first layer, {number(layers[-1].alive)} in the last"


SECTION = Section(42, "layers", "Layers", "Where are directions lost?", layers_section, layers_answer)
