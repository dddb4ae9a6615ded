"""Every dimension as a point: how often it fires against how pure it is."""

import math
from collections.abc import Sequence

from counterpoint.report.chart_frame import ChartText, Frame
from counterpoint.report.figures import WIDE, figure
from counterpoint.report.markup import Markup, element
from counterpoint.report.point_chart import Cloud, point_clouds
from counterpoint.report.run_record import Concept, RunRecord
from counterpoint.report.series_style import Style, run_style
from counterpoint.report.ticks import decade_axis, evenly_chosen, percent_axis
from counterpoint.report.wording import count

MAX_POINTS = 600


def concept_map(runs: Sequence[RunRecord]) -> Markup | None:
    """Draw all dimensions of all runs; None where no purity is known."""
    chosen = {run.order: _points(run) for run in runs}
    drawn = [run for run in runs if chosen[run.order]]
    if not drawn:
        return None
    clouds = [_cloud(chosen[run.order], run_style(run.order)) for run in drawn]
    x_axis = decade_axis(
        "share of samples it fires on (log scale)",
        [-1.0, 0.0, *(x for cloud in clouds for x in cloud.x)],
        as_percent=True,
    )
    y_axis = percent_axis("purity: share of the commonest class", [0.0, 1.0])
    entries = [(run_style(run.order), run.name) for run in drawn] if len(runs) > 1 else []
    words = ChartText("Every dimension: how often it fires and how pure it is", _description(drawn, chosen))

    def draw(width: float) -> Markup:
        return point_clouds(Frame(width, 280, x_axis, y_axis), words, clouds, entries)

    note = "Upper left: selective and pure, a concept. Right: fires on nearly everything."
    drawing = figure("Every dimension of the embedding", note, draw, WIDE, None)
    return element("div", drawing, class_="concept-map")


def _points(run: RunRecord) -> list[tuple[float, float]]:
    """Points (log10 of fires, purity) of the dimensions that fire at all and have labels."""
    concepts: Sequence[Concept] = run.diagnosis.concepts if run.diagnosis else ()
    points = [
        (math.log10(concept.fires), concept.purity)
        for concept in concepts
        if concept.fires and concept.purity is not None
    ]
    return [points[place] for place in evenly_chosen(len(points), MAX_POINTS)]


def _cloud(points: Sequence[tuple[float, float]], style: Style) -> Cloud:
    return Cloud([x for x, _ in points], [y for _, y in points], style)


def _description(runs: Sequence[RunRecord], points: dict[int, list[tuple[float, float]]]) -> str:
    return (
        "; ".join(f"{run.name}: {count(len(points[run.order]), 'dimension')}" for run in runs)
        + ". Numbers are on the cards below."
    )
