"""Figures and tables, and how runs, series and levels look: colour never carries meaning alone.

A figure is a chart in a wide and a narrow drawing, its caption, and its numbers behind a disclosure.

On a page about one run, colour and dash mean the place (representation, embedding, untrained). On a page about several
runs, colour means the run, in every chart, and dash and marker mean the place. Colours are classes (``c1`` to
``c6``, ``muted``) that the style sheet sets from Okabe and Ito's palette. The level of a verdict or of a finding is a
word, a sign and a colour, always together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from counterpoint.diagnostics.finding import Level
from counterpoint.report.markup import Attribute, Child, Markup, coordinate, element, join, prose
from counterpoint.report.run_reading import PLACES, UNTRAINED, RunRecord

WIDE, HALF, THIRD, NARROW = 620.0, 470.0, 310.0, 330.0
Draw = Callable[[float], Markup]
MAX_RUNS = 6
PLACE_DASHES = ("", "7 3", "2 3")
RUN_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 4")
RUN_MARKERS = ("circle", "square", "triangle", "diamond", "cross", "star")
RUN_SIGNS = ("●", "■", "▲", "◆", "✚", "★")
GLYPHS = {"severe": "✕", "warning": "!", "note": "i", "good": "✓"}
# Corners of each marker as (angle in degrees, radius); a circle is drawn with arcs instead.
CORNERS: dict[str, Sequence[tuple[float, float]]] = {
    "square": [(45 + 90 * k, 1.25) for k in range(4)],
    "triangle": [(-90 + 120 * k, 1.35) for k in range(3)],
    "diamond": [(90 * k, 1.35) for k in range(4)],
    "star": [(-90 + 36 * k, 1.5 if k % 2 == 0 else 0.65) for k in range(10)],
    "cross": [(18 + 90 * k + offset, radius) for k in range(4) for offset, radius in ((0, 1.3), (27, 0.55), (54, 1.3))],
}


@dataclass(frozen=True)
class Style:
    """Look of one series: a colour class, a dash pattern, a marker, hollow or filled."""

    colour: str
    dash: str = ""
    marker: str = "circle"
    is_hollow: bool = False


def run_style(order: int) -> Style:
    """Look of a run in a chart with one series per run."""
    return Style(f"c{order + 1}", RUN_DASHES[order], RUN_MARKERS[order])


def place_style(place: str, order: int, num_runs: int) -> Style:
    """Look of a place of a run: representation, embedding or untrained representation."""
    number = PLACES.index(place)
    is_untrained = place == UNTRAINED
    own_colour = "muted" if is_untrained else f"c{number + 1}"
    # Among several runs colour is the run's; only the marker and the dash are left for the place.
    colour = own_colour if num_runs == 1 else f"c{order + 1}"
    return Style(colour, PLACE_DASHES[number], RUN_MARKERS[number], is_hollow=is_untrained)


def marker(style: Style, x: float, y: float, size: float = 4.0) -> Markup:
    """Draw a marker centred on a point."""
    hollow = " hollow" if style.is_hollow else ""
    if style.marker == "circle":
        arc = f"a{coordinate(size)} {coordinate(size)} 0 1 0"
        path = f"{coordinate(x - size)} {coordinate(y)}{arc} {coordinate(2 * size)} 0{arc} {coordinate(-2 * size)} 0"
    else:
        turns = [(math.radians(angle), size * radius) for angle, radius in CORNERS[style.marker]]
        points = [(x + reach * math.cos(turn), y + reach * math.sin(turn)) for turn, reach in turns]
        path = "L".join(f"{coordinate(at)} {coordinate(up)}" for at, up in points)
    return element("path", d=f"M{path}Z", class_=f"mark {style.colour}{hollow}")


def run_tag(run: RunRecord) -> Markup:
    """Name a run in text, with its sign in its colour."""
    # A screen reader says the name; the sign only repeats the colour for the eye.
    sign = element("span", RUN_SIGNS[run.order], class_=f"sign c{run.order + 1}", aria_hidden="true")
    # bdi: a name in a script from right to left does not reorder the words beside it.
    return element("span", sign, element("bdi", run.name), class_="run")


def run_title(run: RunRecord, num_runs: int) -> Markup:
    """Name a run on a page about several runs; return nothing on a page about one run."""
    return element("h3", run_tag(run), class_="run-title") if num_runs > 1 else join()


def badge(level: Level) -> Markup:
    """Show a level."""
    glyph = element("span", GLYPHS[level], class_="glyph", aria_hidden="true")
    return element("span", glyph, level.capitalize(), class_=f"badge level-{level}")


def max_rows(num_runs: int) -> int:
    """Largest number of rows in the table of each run, so that many runs do not make a page of tables."""
    return max(40, 120 // num_runs)


def panel_width(num_panels: int) -> float:
    """Width at which each of several panels is drawn on a wide screen."""
    return {1: WIDE, 2: HALF}.get(num_panels, THIRD)


def figure(title: Child, note: Child, draw: Draw, width: float, table: Markup | None) -> Markup:
    """Build a figure.

    Args:
        title: title of the chart, which says what it shows.
        note: sentence on how to read the chart.
        draw: function that makes the chart at a width; called for wide screen and phone, so text keeps its size.
        width: width on a wide screen.
        table: the numbers.

    Returns:
        The figure element.
    """
    # A drawing that is as narrow as on a phone serves both screens.
    looks = {"drawing": width} if width <= NARROW else {"drawing wide": width, "drawing narrow": NARROW}
    charts = [element("div", draw(pixels), class_=look) for look, pixels in looks.items()]
    note_markup = element("span", note, class_="note") if note else None
    caption = element("figcaption", element("strong", title), " ", note_markup)
    numbers = element("details", element("summary", "Numbers"), table, class_="numbers") if table else None
    return element("figure", caption, charts, numbers)


def panels(figures: Sequence[Markup], title: str = "", note: str = "") -> Markup:
    """Set figures side by side where there is room, under a common title and note."""
    heading = element("p", element("strong", title), " ", note, class_="panels-title") if title else None
    return join(heading, element("div", figures, class_=f"panels panels-{min(len(figures), 3)}"))


def data_table(
    label: str, head: Sequence[Child], rows: Sequence[Sequence[Child]], keys: Sequence[float] | None = None
) -> Markup:
    """Build a table in a scroll box.

    Args:
        label: name of the table.
        head: column titles.
        rows: cells; the first of each row is its header.
        keys: position of each row on the chart's horizontal axis, so that the page can show values under the pointer.

    Returns:
        The table in its box.
    """
    titles = element("tr", [element("th", title, scope="col") for title in head])
    # page.js finds a row by its position, in the units of the axis.
    positions = [None] * len(rows) if keys is None else [f"{key:g}" for key in keys]
    body = [
        element("tr", element("th", first, scope="row"), [element("td", cell) for cell in rest], data_at=position)
        for (first, *rest), position in zip(rows, positions, strict=True)
    ]
    table = element("table", element("thead", titles), element("tbody", body))
    # Focusable, so that the arrow keys scroll it.
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def choice(name: str, words: str, options: Sequence[tuple[str, str]], **attributes: Attribute) -> Markup:
    """Build a labelled list to choose from: values with their words."""
    items = [element("option", label, value=value) for value, label in options]
    return element("p", element("label", words, for_=name), element("select", items, id=name, **attributes))


def readings(runs: Sequence[RunRecord], words: Callable[[RunRecord], Child]) -> Markup | None:
    """Set the plain reading of a section: a paragraph about one run, or a column for each of several.

    Nothing is set if ``words`` has nothing to say about any run.
    """
    texts = [words(run) for run in runs]
    if not any(texts):
        return None
    if len(runs) == 1:
        return element("p", texts[0], class_="reading")
    paragraphs = [element("p", reading or "Nothing to read yet.", class_="reading") for reading in texts]
    return columns([join(run_tag(run), paragraph) for run, paragraph in zip(runs, paragraphs, strict=True)])


def missing(run: RunRecord, sentence: str, verb: str) -> Markup:
    """Say in a sentence what a run does not have yet, why if that is known, and which command or call makes it."""
    # The command line cannot name an array in memory, of which the folder holds no copy.
    needs_array = run.settings.get("data") == "array" and verb in ("evaluate", "diagnose")
    command = f"cp.{verb}(run, data=X)" if needs_array else f"counterpoint {verb} {run.path}"
    why = run.gaps.get(verb, "")
    why += "." if why and not why.endswith((".", "!", "?")) else ""
    opening = " ".join(filter(None, (sentence, why, "Once that is solved, run " if why else "Run ")))
    return element(
        "p", prose(opening, run.path), element("code", command), " and write the report again.", class_="missing"
    )


def absences(runs: Sequence[RunRecord], noun: str, verb: str) -> list[Markup]:
    """Say of each run what it lacks and which command makes it."""
    return [missing(run, f"{run.name} has no {noun} yet.", verb) for run in runs]


def columns(items: Sequence[Child]) -> Markup:
    """Set one column per run."""
    return element(
        "div", [element("div", item, class_="column") for item in items], class_=f"columns columns-{min(len(items), 3)}"
    )
