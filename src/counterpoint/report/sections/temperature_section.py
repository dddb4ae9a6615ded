"""Whom does the loss look at? Negatives that count at this and at other temperatures, and the closest samples."""

import math
from collections.abc import Sequence
from functools import partial

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.pair_record import NearPair, PairRecord, TemperatureRow
from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import absences, columns, data_table, figure, panel_width, panels, readings
from counterpoint.report.charts.line_chart import Line, label_room, line_chart
from counterpoint.report.charts.series_style import run_style, run_tag, run_title
from counterpoint.report.charts.ticks import Axis, decade_axis, percent_axis
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.concepts_section import PIXELATED_SIDE, data_address
from counterpoint.report.wording import cosine, number, percent

TITLE = "Negatives that count, by temperature"
HOW_TO_READ = (
    "The same embeddings at other temperatures; training at one of them would change the embeddings, too. At 100 % all "
    "negatives weigh alike; near 0 the gradient comes from a few."
)
PAIRS_TITLE = "Closest pairs of different samples"
MAX_SIDE = 48
NUM_PAIRS = 12


def temperature_section(runs: Sequence[RunRecord], num_pairs: int = NUM_PAIRS) -> Markup:
    """Say whom each run's loss looks at, draw what another temperature would do, and show the closest samples."""
    absent = absences([run for run in runs if run.diagnosis is None], "look at pairs", "diagnose")
    tabled = [(run, rows) for run in runs if (look := _look(run)) and (rows := _rows(look))]
    axis = decade_axis("temperature", [math.log10(row.temperature) for _, rows in tabled for row in rows])
    figures = [_figure(run, rows, axis, len(runs)) for run, rows in tabled]
    drawn = panels(figures, TITLE, HOW_TO_READ) if len(runs) > 1 and figures else join(figures)
    galleries = [_gallery(run, look, num_pairs, len(runs)) for run in runs if (look := _look(run)) and look.nearest]
    return join(readings(runs, _words), drawn, columns(galleries) if galleries and num_pairs else None, absent)


def _look(run: RunRecord) -> PairRecord | None:
    return run.diagnosis.pairs if run.diagnosis else None


def _rows(look: PairRecord) -> list[TemperatureRow]:
    """The table; a file may hold what is no temperature."""
    return [row for row in look.temperatures if row.temperature > 0]


def _words(run: RunRecord) -> str:
    """Whom the loss looks at, in words."""
    look = _look(run)
    if look is None:
        return "Its pairs were not looked at." if run.diagnosis else ""
    if look.why:
        return f"{look.why[0].upper()}{look.why[1:]}."
    return " ".join(filter(None, (_temperature_words(look), _class_words(look), _copy_words(look))))


def _temperature_words(look: PairRecord) -> str:
    """At this temperature, at half of it and at twice."""
    if look.effective_negatives is None:
        return ""
    count = f"an anchor looks at {number(look.effective_negatives)} of {number(look.num_negatives)} negatives"
    if not look.temperature or look.temperature < 0:
        return f"{count[0].upper()}{count[1:]}."
    beside = [
        f"at {number(row.temperature)} at {number(row.effective_negatives)}"
        for row in _rows(look)
        if row.effective_negatives is not None and abs(abs(math.log2(row.temperature / look.temperature)) - 1) < 1e-6
    ]
    return f"At temperature {number(look.temperature)} {count}{'; ' if beside else ''}{', '.join(beside)}."


def _class_words(look: PairRecord) -> str:
    """How much of the push goes against the anchor's own class."""
    if look.class_mass is None or look.class_chance is None:
        return ""
    return (
        f"{percent(look.class_mass, 0)} of the push goes against samples of the anchor’s own class, which are "
        f"{percent(look.class_chance, 0)} of the negatives."
    )


def _copy_words(look: PairRecord) -> str:
    """How many samples have near-copies."""
    if look.copy_share is None:
        return ""
    return f"{percent(look.copy_share)} of the samples have a near-copy."


def _figure(run: RunRecord, rows: Sequence[TemperatureRow], x_axis: Axis, num_runs: int) -> Markup:
    look = _look(run)
    assert look is not None
    shares = [_share(row, look) for row in rows]
    y_axis = percent_axis("negatives that count", [0.0, 1.0])
    places, own = [math.log10(row.temperature) for row in rows], _own_place(rows, look)
    style = run_style(run.order)
    lines = [Line("", places, shares, style)]
    if own is not None:
        lines.append(Line("this run", [places[own]], [shares[own]], style))
    words = ChartText(f"{TITLE}: {run.name}", _temperature_words(look) or TITLE)

    def draw(width: float) -> Markup:
        right = label_room([line.label for line in lines])
        return line_chart(Frame(width, min(300, 150 + width / 3), x_axis, y_axis, right=right), words, lines)

    title = run_tag(run.name, run.order) if num_runs > 1 else TITLE
    table = _table(run, rows, look)
    return figure(title, HOW_TO_READ if num_runs == 1 else "", draw, panel_width(num_runs), table)


def _share(row: TemperatureRow, look: PairRecord) -> float | None:
    """Of the negatives that count."""
    if row.effective_negatives is None or not look.num_negatives:
        return None
    return row.effective_negatives / look.num_negatives


def _own_place(rows: Sequence[TemperatureRow], look: PairRecord) -> int | None:
    """The row of the run's own temperature."""
    places = [place for place, row in enumerate(rows) if row.temperature == look.temperature]
    return places[0] if places and rows[places[0]].effective_negatives is not None else None


def _table(run: RunRecord, rows: Sequence[TemperatureRow], look: PairRecord) -> Markup:
    """All figures at each temperature."""
    head = ["temperature", "negatives that count", "loss", "chance", "floor", "way to the floor"]
    cells = [
        [
            f"{number(row.temperature)}{' (this run)' if row.temperature == look.temperature else ''}",
            *(_cell(value) for value in (row.effective_negatives, row.loss, row.chance, row.floor)),
            "–" if row.way is None else percent(max(row.way, 0.0), 0),
        ]
        for row in rows
    ]
    return data_table(f"Temperatures of {run.name}", head, cells, [math.log10(row.temperature) for row in rows])


def _cell(value: float | None) -> str:
    return "–" if value is None else number(value)


def _gallery(run: RunRecord, look: PairRecord, num_pairs: int, num_runs: int) -> Markup:
    """The closest pairs of one run, closest first."""
    cards = [_card(run, pair) for pair in look.nearest[:num_pairs]]
    title = element("p", element("strong", PAIRS_TITLE), class_="panels-title")
    return join(run_title(run.name, run.order, num_runs), title, element("div", cards, class_="concepts"))


def _card(run: RunRecord, pair: NearPair) -> Markup:
    """Two samples, how close they are, and what they are called."""
    head = element("header", element("h4", f"cosine {cosine(pair.cosine)}, own views {cosine(pair.own)}"))
    classes = f"{' and '.join(pair.classes)}" if len(set(pair.classes)) > 1 else "".join(pair.classes[:1])
    facts = ", ".join(filter(None, (" and ".join(pair.names), classes, "near-copies" if pair.is_copy else "")))
    return element("article", head, _pictures(run, pair), element("p", facts, class_="facts"), class_="concept")


def _pictures(run: RunRecord, pair: NearPair) -> Markup | None:
    """Both samples; nothing where they are no pictures."""
    images = run.arrays.thumbnails
    if images is None:
        return None
    places = [int(place) for place in pair.thumbnails if place is not None and 0 <= place < len(images)]
    is_small = max(images.shape[1:3]) <= PIXELATED_SIDE
    drawn = [
        element("img", src=data_address(images[place], MAX_SIDE), alt=name, class_="pixelated" if is_small else None)
        for place, name in zip(places, pair.names, strict=False)
    ]
    return element("div", drawn, class_="thumbs per-row-2")


SECTION = Section(
    55,
    "temperature",
    "Temperature",
    "Whom does the loss look at?",
    temperature_section,
    smaller=(partial(temperature_section, num_pairs=6), partial(temperature_section, num_pairs=0)),
)
