"""The concepts at a glance: how often every dimension is active against how pure it is, and which classes have one."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.findings import DescribedConcept
from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import WIDE, data_table, figure
from counterpoint.report.charts.point_chart import Cloud, point_clouds
from counterpoint.report.charts.series_style import Style, run_style, run_tag
from counterpoint.report.charts.ticks import decade_axis, evenly_chosen, percent_axis
from counterpoint.report.run_record import EMBEDDING, RunRecord
from counterpoint.report.wording import NO_BREAK, count, number, percent

MAX_POINTS = 600
MAX_ROWS = 120
MAX_CLASSES = 12
PURE = 0.8
ALMOST_ALWAYS = 0.9


def concept_overview(runs: Sequence[RunRecord], num_runs: int) -> Markup | None:
    """Set the map of all dimensions beside the table of classes.

    Args:
        runs: those that have concepts.
        num_runs: how many runs the page is about.

    Returns:
        Both, or None where no purity is known.
    """
    chosen = {run.order: _points(run) for run in runs}
    drawn = [run for run in runs if chosen[run.order]]
    if not drawn:
        return None
    layout = "main-and-side" if num_runs <= 2 else "stacked"
    content = [_map(drawn, chosen, num_runs), _classes(drawn, num_runs)]
    return element("div", content, class_=f"{layout} concept-map")


def _map(runs: Sequence[RunRecord], points: dict[int, list[tuple[float, float]]], num_runs: int) -> Markup:
    """Draw all dimensions of all runs."""
    clouds = [_cloud(points[run.order], run_style(run.order)) for run in runs]
    fires = [x for cloud in clouds for x in cloud.x]
    # -1 and 0: at least from 10 to 100 %, so that the axis does not magnify small differences.
    x_axis = decade_axis("share of samples it is active on (log scale)", [-1.0, 0.0, *fires], as_percent=True)
    y_axis = percent_axis("purity: share of the commonest class", [0.0, 1.0])
    entries = [(run_style(run.order), run.name) for run in runs] if num_runs > 1 else []
    extents = "; ".join(f"{run.name}: {extent(run)}" for run in runs)
    words = ChartText("How often each dimension is active and how pure it is", extents)

    def draw(width: float) -> Markup:
        return point_clouds(Frame(width, 290, x_axis, y_axis), words, clouds, [entries])

    note = "Upper left: selective and pure, a concept. Right: active on nearly everything."
    return figure("Dimensions of the embedding", note, draw, WIDE, _table(runs, num_runs))


def _points(run: RunRecord) -> list[tuple[float, float]]:
    """Points (log10 of fires, purity) of the dimensions that are active at all and have labels."""
    # 0 has no logarithm.
    points = [
        (math.log10(concept.fires), concept.purity) for concept in _rated(run) if concept.fires and concept.purity
    ]
    return [points[place] for place in evenly_chosen(len(points), MAX_POINTS)]


def _rated(run: RunRecord) -> list[DescribedConcept]:
    return [concept for concept in concepts_of(run) if concept.purity is not None]


def _cloud(points: Sequence[tuple[float, float]], style: Style) -> Cloud:
    return Cloud([x for x, _ in points], [y for _, y in points], style)


def _classes(runs: Sequence[RunRecord], num_runs: int) -> Markup | None:
    """Count each class's own dimensions, run by run; None when no dimension is pure."""
    counts = {run.order: Counter(concept.top_class or "" for concept in pure_concepts(run)) for run in runs}
    if not any(counts.values()):
        return None
    # Zeros first: classes without a dimension of their own belong into the table.
    total = Counter({name: 0 for run in runs for name in _class_names(run)})
    for counter in counts.values():
        total.update(counter)
    ordered = sorted(total, key=lambda name: (-total[name], name))
    rows = [[element("bdi", name), *(str(counts[run.order][name]) for run in runs)] for name in ordered[:MAX_CLASSES]]
    heads = [run_tag(run.name, run.order) for run in runs] if num_runs > 1 else ["dimensions"]
    title = element("strong", "Classes with dimensions of their own")
    note = element("span", f"Of the dimensions described, those at least 80{NO_BREAK}% one class.", class_="note")
    table = data_table("Dimensions per class", ["class", *heads], rows)
    return element("div", element("p", title, note, class_="side-title"), table, _further(len(ordered) - MAX_CLASSES))


def _further(quantity: int) -> Markup | None:
    words = f"and {count(quantity, 'further class', 'further classes')}"
    return element("p", words, class_="note") if quantity > 0 else None


def _table(runs: Sequence[RunRecord], num_runs: int) -> Markup:
    """List the dimensions, as many as leave the page readable."""
    rows = [
        [_row_title(run, concept, num_runs), percent(concept.fires), percent(concept.purity), concept.top_class or "–"]
        for run in runs
        # The rows are shared among the runs: the table's length does not grow with their number.
        for concept in _rated(run)[: MAX_ROWS // len(runs)]
    ]
    return data_table("Dimensions", ["dimension", "active on", "purity", "class"], rows)


def _row_title(run: RunRecord, concept: DescribedConcept, num_runs: int) -> Markup:
    return join(run_tag(run.name, run.order) if num_runs > 1 else None, " ", number(concept.dim))


def _class_names(run: RunRecord) -> tuple[str, ...]:
    return run.evaluation.split.class_names if run.evaluation else ()


def concepts_of(run: RunRecord) -> tuple[DescribedConcept, ...]:
    """The dimensions that the diagnosis describes, the most useful first."""
    return run.diagnosis.concepts if run.diagnosis else ()


def pure_concepts(run: RunRecord) -> list[DescribedConcept]:
    """The described dimensions that stand for one class: pure, and purer than all samples are."""
    rated = [concept for concept in concepts_of(run) if concept.purity is not None and concept.top_class]
    return [concept for concept in rated if (concept.purity or 0.0) >= PURE]


def extent(run: RunRecord) -> str:
    """Say which dimensions the diagnosis describes: all, or the most useful ones.

    Returns:
        Words such as ``the 24 most useful of 128 dimensions`` or ``all 16 dimensions``.
    """
    described, place = len(concepts_of(run)), run.place(EMBEDDING)
    total = place.num_dims if place else None
    if total is None:
        return f"the {count(described, 'dimension')} described"
    if described < total:
        return f"the {described} most useful of {number(total)} dimensions"
    return f"all {count(described, 'dimension')}" if described > 1 else "the one dimension"


def concept_words(run: RunRecord) -> str:
    """Say how many dimensions stand for one class, how many classes they cover, and how often they are active."""
    fires = [concept.fires for concept in concepts_of(run) if concept.fires is not None]
    if not concepts_of(run):
        return ""
    often = f"The median one is active on {percent(median(fires))} of samples." if fires else ""
    if fires and median(fires) > ALMOST_ALWAYS:
        often += " A dimension that is almost always active is not a concept: its top samples are only its extremes."
    return f"{_purity_words(run)} {often}".strip()


def _purity_words(run: RunRecord) -> str:
    """Count the dimensions that stand for one class, and the classes they cover."""
    if all(concept.purity is None for concept in concepts_of(run)):
        return f"Shown are {extent(run)}, without labels to name them: judge by eye."
    pure = pure_concepts(run)
    classes = len({concept.top_class for concept in pure})
    known = run.evaluation.split.num_classes if run.evaluation else None
    covered = f"{classes} of {count(known, 'class', 'classes')}" if known else count(classes, "class", "classes")
    tail = f", and together they stand for {covered}" if pure else ""
    pure_ones = {0: "none is", 1: "1 is"}.get(len(pure), f"{len(pure)} are")
    nameless = sum(concept.purity is not None and not concept.top_class for concept in concepts_of(run))
    rest = f" In {count(nameless, 'dimension')} no class is more common than chance allows." if nameless else ""
    return f"Of {extent(run)}, {pure_ones} at least 80{NO_BREAK}% one class{tail}.{rest}"
