"""The page of a comparison: which differences are real, how large they are, and how that was found; no script."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from counterpoint.core.markup import Child, Markup, element, hide_folders, join
from counterpoint.report.charts.chart_frame import ChartText
from counterpoint.report.charts.figures import data_table, figure
from counterpoint.report.charts.interval_chart import IntervalGroup, IntervalRow, interval_chart
from counterpoint.report.charts.series_style import Style
from counterpoint.report.charts.ticks import linear_axis
from counterpoint.report.document import PageKind, PageSection, document, plain_header
from counterpoint.report.sections.headline import difference_words, metric_of
from counterpoint.report.wording import count, figure_of, listing, sized, sized_interval
from counterpoint.runs.comparison_record import Compared, Comparison, Side

COMPARISON_PAGE = PageKind(
    "page of a comparison", "comparison.html", Markup('<meta name="generator" content="counterpoint compare">')
)
SAMPLES_STYLE, SEEDS_STYLE = Style("c1"), Style("c2", marker="square")
WIDTH = 820.0
MAX_DRAWN = 60
REAL = {"yes": "yes", "no": "no", "samples": "over samples only", "seeds": "over seeds only", "-": "not tested"}


def render_comparison(comparison: Comparison) -> Markup:
    """Render the page."""
    names = [hide_folders(side.name) for side in comparison.sides]
    pairs = list(comparison.pairs())
    sides = [element("li", element("strong", side.name), f": {_runs_words(side)}") for side in comparison.sides]
    said = [element("p", hide_folders(words), class_="protocol") for words in comparison.remarks()]
    parts = [
        PageSection("answer", "Answer", "Which differences are real?", join(_answer(comparison), map(_drawn, pairs))),
        PageSection(
            "differences", "Differences", "How large are they?", join(_table(comparison, *pair) for pair in pairs)
        ),
        PageSection("method", "Method", "How was it found?", join(element("ul", sides), said)),
    ]
    title = f"{', '.join(names[:-1])} against {names[-1]}" if len(names) == 2 else listing(names)
    header = plain_header("Counterpoint compares runs", title, hide_folders(comparison.queries))
    return document(COMPARISON_PAGE, f"Counterpoint: {title}", header, parts)


def _answer(comparison: Comparison) -> Markup:
    real = [row for row in comparison.rows if row.verdict == "yes"]
    verb = "is" if len(comparison.rows) == 1 else "are"
    counted = f"{len(real)} of {count(len(comparison.rows), 'difference')} {verb} beyond chance."
    items = [element("li", _sentence(row)) for row in real]
    return join(element("p", counted, class_="lede"), element("ul", items, class_="top-findings") if items else None)


def _sentence(row: Compared) -> str:
    better, worse = (row.first, row.second) if row.difference > 0 else (row.second, row.first)
    what = f"{metric_of(row.metric).short} of {row.features}"
    tests = {"queries": row.over_samples, "seeds": row.over_seeds}
    # Each difference as what the larger figure has more.
    upright = {name: found if found.value >= 0 else found.reversed for name, found in tests.items() if found}
    told = [f"over {name} {difference_words(found, row.unit)}" for name, found in upright.items()]
    size = sized(row.unit, abs(row.difference))
    return hide_folders(f"{what}: {better} has {size} more than {worse}; {'; '.join(told)}.")


def _drawn(pair: tuple[Side, Side, Sequence[Compared]]) -> Markup | None:
    """Draw the differences of shares of one pair around zero."""
    first, second, rows = pair
    shares = [row for row in rows if row.unit == "share" and (row.over_samples or row.over_seeds)][:MAX_DRAWN]
    if not shares:
        return None
    groups = [
        IntervalGroup(metric_of(metric).short, [IntervalRow(row.features, _intervals(row)) for row in own])
        for metric, own in groupby(shares, key=lambda row: row.metric)
    ]
    ends = [end for group in groups for row in group.rows for low, _, high, _ in row.intervals for end in (low, high)]
    axis = linear_axis(f"{first.name} minus {second.name}, points", [0.0, *ends])
    title = f"{first.name} minus {second.name}"
    words = ChartText(title, " ".join(map(_sentence, shares)))
    has_seeds = any(row.over_seeds for row in rows)
    note = "95 % intervals of each difference alone; right of zero the first is larger. Filled marks are told apart."
    legend = " Circles: over samples. Squares: over seeds." if has_seeds else ""

    def draw(width: float) -> Markup:
        return interval_chart(width, axis, groups, words, zero=0.0)

    return figure(title, note + legend, draw, WIDTH, None)


def _intervals(row: Compared) -> list[tuple[float, float, float, Style]]:
    """The intervals of one row in points; filled where it is told apart."""
    found = [(row.over_samples, SAMPLES_STYLE), (row.over_seeds, SEEDS_STYLE)]
    return [
        (
            100 * each.low,
            100 * each.value,
            100 * each.high,
            Style(style.colour, "", style.marker, is_hollow=not each.is_told_apart),
        )
        for each, style in found
        if each
    ]


def _table(comparison: Comparison, first: Side, second: Side, rows: Sequence[Compared]) -> Markup:
    tests = ["over samples", "p", *(["over seeds", "p", "seeds needed"] if comparison.has_seeds else [])]
    head = ["metric", "features", first.name, second.name, "difference", *tests, "real"]
    cells = [
        [
            metric_of(row.metric).short,
            row.features,
            figure_of(row.unit, row.first_figure),
            figure_of(row.unit, row.second_figure),
            sized(row.unit, row.difference),
            *_test_cells(row, has_seeds=comparison.has_seeds),
            element("strong", REAL[row.verdict]) if row.verdict == "yes" else REAL[row.verdict],
        ]
        for row in rows
    ]
    title = f"{first.name} against {second.name}"
    return join(element("h3", title), data_table(title, head, cells))


def _test_cells(row: Compared, *, has_seeds: bool) -> list[Child]:
    cells: list[Child] = []
    for found in (row.over_samples, *([row.over_seeds] if has_seeds else [])):
        ends = sized_interval(row.unit, found.low, found.high) if found else "–"
        cells += [ends, ("< 0.001" if found.p < 0.001 else f"{found.p:.3f}") if found else "–"]
    return [*cells, "–" if row.seeds_needed is None else row.seeds_needed] if has_seeds else cells


def _runs_words(side: Side) -> str:
    names = [hide_folders(Path(folder).name) for folder in side.folders]
    seeds = ["" if seed is None else f" (seed {seed})" for seed in side.seeds]
    return listing([f"{name}{seed}" for name, seed in zip(names, seeds, strict=True)])
