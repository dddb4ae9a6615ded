"""Does it tell same from different? Alignment against uniformity, and the cosines of pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.evidence import HELD_OUT, TRAINING, HeldOutRecord
from counterpoint.report.charts.chart_frame import ChartText, Frame, Swatch, area_swatch, svg, swatch_legend
from counterpoint.report.charts.figures import (
    HALF,
    WIDE,
    absences,
    columns,
    data_table,
    figure,
    panel_width,
    panels,
    readings,
)
from counterpoint.report.charts.line_chart import step_area
from counterpoint.report.charts.point_chart import NamedPoint, point_plane
from counterpoint.report.charts.series_style import Style, place_style, run_style, run_tag, run_title
from counterpoint.report.charts.ticks import Axis, linear_axis, percent_axis
from counterpoint.report.run_record import EMBEDDING, PLACES, REPRESENTATION, UNTRAINED, Histogram, RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.headline import DIAGNOSTICS
from counterpoint.report.wording import NO_BREAK, cosine, count, figure_of, number, percent

LESS_OVERLAP = "The less the two overlap, the better pairs are told apart."


@dataclass(frozen=True)
class Separation:
    """How well cosines tell positive pairs from negative ones, read from their histogram."""

    auc: float
    overlap: float


def plane_section(runs: Sequence[RunRecord]) -> Markup:
    """Draw the plane of alignment and uniformity, and each run's histogram of cosines."""
    absent = absences([run for run in runs if not run.diagnosis], "diagnosis", "diagnose")
    plane = _plane_figure(runs)
    histograms = [_cosine_figure(run, run.arrays.cosines, len(runs)) for run in runs if run.arrays.cosines is not None]
    if len(runs) == 1:
        drawn = panels([*([plane] if plane else []), *histograms])
        return join(readings(runs, _pair_words), drawn, held_out_tables(runs), absent)
    cosines = panels(histograms, "Cosines of pairs in the embedding", LESS_OVERLAP) if histograms else None
    return join(readings(runs, _pair_words), plane, cosines, held_out_tables(runs), absent)


def separation(histogram: Histogram) -> Separation | None:
    """Measure how far apart two histograms lie.

    Returns:
        ``auc``: chance that a positive pair has a higher cosine than a negative one, a tie within a bin counting
        half; ``overlap``: shared area of the two normalised histograms. None when either is empty.
    """
    total_positive, total_negative = histogram.positive.sum(), histogram.negative.sum()
    if total_positive <= 0 or total_negative <= 0:
        return None
    positive, negative = histogram.positive / total_positive, histogram.negative / total_negative
    below = np.cumsum(negative) - negative  # negatives in lower bins
    # Mann and Whitney's statistic as a share of all pairs; a tie within a bin is half a win.
    auc = float(np.sum(positive * (below + 0.5 * negative)))
    return Separation(auc, float(np.minimum(positive, negative).sum()))


def _pair_words(run: RunRecord) -> str:
    """Say how close pairs are, how well they are told apart, and what training changed."""
    return " ".join(part for part in (_cosine_words(run), _separation_words(run), _change_words(run)) if part)


def _cosine_words(run: RunRecord) -> str:
    positive, negative = run.measured(EMBEDDING, "positive_cosine"), run.measured(EMBEDDING, "negative_cosine")
    if positive is None or negative is None:
        return ""
    return (
        f"In the embedding, two views of one sample have a mean cosine of {cosine(positive)}, "
        f"different samples {cosine(negative)}."
    )


def _separation_words(run: RunRecord) -> str:
    measured = separation(run.arrays.cosines) if run.arrays.cosines else None
    if measured is None:
        return ""
    share = percent(measured.auc)
    return f"A pair of views is closer than a pair of different samples in {share} of draws (chance: 50{NO_BREAK}%)."


def _change_words(run: RunRecord) -> str:
    """Compare the representation with the untrained one."""
    names = ("alignment", "uniformity")
    pairs = [(name, run.measured(UNTRAINED, name), run.measured(REPRESENTATION, name)) for name in names]
    parts = [
        f"{'improved' if new < old else 'worsened'} {name} from {number(old)} to {number(new)}"
        for name, old, new in pairs
        # Compared as written: a change beyond the digits shown would read "from 1.2 to 1.2".
        if old is not None and new is not None and number(old) != number(new)
    ]
    return f"Training {' and '.join(parts)} in the representation (lower is better in both)." if parts else ""


def _plane_figure(runs: Sequence[RunRecord]) -> Markup | None:
    """Draw every place of every run, with an arrow from the untrained representation to the trained one."""
    points = {(run.order, place): _point(run, place, len(runs)) for run in runs for place in PLACES}
    known = {key: point for key, point in points.items() if point is not None}
    if not known:
        return None
    drawn = list(known.values())
    arrows = [
        (known[run.order, UNTRAINED], known[run.order, REPRESENTATION])
        for run in runs
        if (run.order, UNTRAINED) in known and (run.order, REPRESENTATION) in known
    ]
    words = ChartText(
        "Alignment and uniformity", " ".join(_change_words(run) for run in runs) or "One point per set of vectors."
    )
    # 0 is the best alignment, and the axis begins there.
    x_axis = linear_axis("alignment: distance between views (0 is best)", [0.0, *(point.x for point in drawn)])
    y_axis = linear_axis("uniformity (lower is better)", [point.y for point in drawn])

    def draw(width: float) -> Markup:
        return point_plane(
            Frame(width, 340, x_axis, y_axis), words, drawn, arrows, _entries(runs, {place for _, place in known})
        )

    note = "Lower left is best: views of one sample together, all samples spread out."
    note += " Arrows show what training did." if arrows else ""
    return figure("Alignment and uniformity", note, draw, HALF if len(runs) == 1 else WIDE, _plane_table(runs))


def _point(run: RunRecord, name: str, num_runs: int) -> NamedPoint | None:
    x, y = run.measured(name, "alignment"), run.measured(name, "uniformity")
    if x is None or y is None:
        return None
    return NamedPoint(_point_name(run, name, num_runs), x, y, place_style(name, run.order, num_runs))


def _point_name(run: RunRecord, name: str, num_runs: int) -> str:
    """Name a point by its place; among several runs by its run, and leave the untrained ones to the legend."""
    if num_runs == 1:
        return "untrained" if name == UNTRAINED else name
    return "" if name == UNTRAINED else run.name


def _entries(runs: Sequence[RunRecord], drawn: set[str]) -> list[list[tuple[Style, str]]]:
    """Legend of a plane with several runs: colour is the run, shape the place."""
    if len(runs) == 1:
        return []
    shown = [place for place in PLACES if place in drawn]
    places = [(Style("muted", "", place_style(place, 0, 2).marker, place == UNTRAINED), place) for place in shown]
    return [places, [(Style(run_style(run.order).colour), run.name) for run in runs]]


def _plane_table(runs: Sequence[RunRecord]) -> Markup:
    rows = []
    for run in runs:
        for name in PLACES:
            if run.place(name) is not None:
                title = join(run_tag(run.name, run.order) if len(runs) > 1 else None, " ", name)
                rows.append([title, number(run.measured(name, "alignment")), number(run.measured(name, "uniformity"))])
    return data_table("Alignment and uniformity", ["vectors", "alignment", "uniformity"], rows)


def _cosine_figure(run: RunRecord, histogram: Histogram, num_runs: int) -> Markup:
    """Draw the cosines of positive and of negative pairs as two outlines."""
    # An empty histogram stays at 0.
    shares = [counts / max(counts.sum(), 1.0) for counts in (histogram.positive, histogram.negative)]
    positive, negative = (share.tolist() for share in shares)
    colour = run_style(run.order).colour if num_runs > 1 else "c2"
    edges = histogram.edges.tolist()
    x_axis = Axis("cosine between two embeddings", edges[0], edges[-1], _cosine_ticks(edges))
    y_axis = percent_axis("share of pairs", [0.0, *positive, *negative], num_ticks=4)
    words = ChartText(f"Cosines of pairs in {run.name}", _pair_words(run) or "Histogram of cosines.")

    def draw(width: float) -> Markup:
        frame = Frame(width, 306, x_axis, y_axis)
        areas = [step_area(frame, edges, negative, "area muted"), step_area(frame, edges, positive, f"area {colour}")]
        key, height = swatch_legend(frame, [_swatches(colour)])
        return svg((width, frame.height + height), words, frame.axes(), areas, key, class_="chart")

    title = run_tag(run.name, run.order) if num_runs > 1 else "Cosines of pairs in the embedding"
    table = _cosine_table(edges, positive, negative)
    return figure(
        title, LESS_OVERLAP if num_runs == 1 else "", draw, HALF if num_runs == 1 else panel_width(num_runs), table
    )


def _cosine_ticks(edges: Sequence[float]) -> tuple[tuple[float, str], ...]:
    axis = linear_axis("", [edges[0], edges[-1]])
    return tuple(tick for tick in axis.ticks if edges[0] - 1e-9 <= tick[0] <= edges[-1] + 1e-9)


def _swatches(colour: str) -> list[Swatch]:
    return [(area_swatch(colour), "two views of one sample"), (area_swatch("muted"), "different samples")]


def _cosine_table(edges: Sequence[float], positive: Sequence[float], negative: Sequence[float]) -> Markup:
    rows = [
        [
            f"{number(edges[place], 2)} to {number(edges[place + 1], 2)}",
            percent(positive[place]),
            percent(negative[place]),
        ]
        for place in range(len(positive))
        if positive[place] or negative[place]
    ]
    return data_table("Cosines of pairs", ["cosine", "two views of one sample", "different samples"], rows)


def held_out_tables(runs: Sequence[RunRecord]) -> Markup | None:
    """A table for each run whose parts were measured; None where none were."""
    known = [(run, run.diagnosis.held_out) for run in runs if run.diagnosis and run.diagnosis.held_out]
    if not known:
        return None
    tables = [join(run_title(run.name, run.order, len(runs)), _held_out_table(record)) for run, record in known]
    return join(element("h3", "Training samples beside held-out ones"), columns(tables))


def held_out_words(record: HeldOutRecord) -> str:
    """How much better views of training samples agree, and how many held-out samples were trained on.

    >>> held_out_words(HeldOutRecord(gap=0.125, low=0.1, high=0.15, num_held_out=80, num_either=2))[:59]
    'Views of training samples agree by 0.125 more in cosine (95'
    """
    words = []
    if record.gap is not None:
        more = "more" if record.gap >= 0 else "less"
        words.append(
            f"Views of training samples agree by {number(abs(record.gap))} {more} in cosine (95 % interval of the "
            f"difference {number(record.low)} to {number(record.high)})."
        )
    if record.num_held_out:
        found = record.num_either or 0
        whole = count(record.num_held_out, "held-out sample")
        words.append(
            f"Of {whole} {number(found) if found else 'no one'} equal{'s' if found < 2 else ''} a training sample."
        )
    return " ".join(words)


def _held_out_table(record: HeldOutRecord) -> Markup:
    """Metrics in rows, both parts in columns; of as many samples of either."""
    parts = [record.parts[name] for name in (TRAINING, HELD_OUT) if name in record.parts]
    rows = [
        [metric.short, *(figure_of(metric.unit, part.figures.get(metric.name)) for part in parts)]
        for metric in DIAGNOSTICS.values()
        if parts and all(part.figures.get(metric.name) is not None for part in parts)
    ]
    sizes = f"Of {count(parts[0].num_samples, 'sample')} of either part, evenly spaced." if parts else ""
    return join(
        element("p", held_out_words(record), class_="reading"),
        data_table("Training samples beside held-out ones", ["embedding", "training", "held out"], rows)
        if rows
        else None,
        element("p", sizes, class_="note") if rows else None,
    )


SECTION = Section(50, "pairs", "Pairs", "Does it tell same from different?", plane_section)
