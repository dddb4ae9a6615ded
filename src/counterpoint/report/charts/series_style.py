"""How a line, a point or a level looks: colour never carries meaning alone.

On a page about one run, colour and dash mean the place (representation, embedding, untrained). On a page about several
runs, colour means the run, in every chart, and dash and marker mean the place. Colours are classes (``c1`` to
``c6``, ``muted``) that the style sheet sets from Okabe and Ito's palette. The level of a verdict or of a finding is a
word, a sign and a colour, always together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.diagnostics.finding import Level
from counterpoint.report.markup import Markup, coordinate, element, join
from counterpoint.report.run_record import PLACES, UNTRAINED

MAX_RUNS = 6
PLACE_DASHES = ("", "7 3", "2 3")
RUN_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 4")
RUN_MARKERS = ("circle", "square", "triangle", "diamond", "cross", "star")
RUN_SIGNS = ("●", "■", "▲", "◆", "✚", "★")
LEVELS = ("severe", "warning", "note", "good")  # worst first
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
    """Look of a run where a chart holds one series per run."""
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
    return element("path", d=marker_path(style.marker, x, y, size), class_=f"mark {style.colour}{hollow}")


def marker_path(shape: str, x: float, y: float, size: float) -> str:
    """Write the outline of a marker as SVG path data."""
    if shape == "circle":
        arc = f"a{coordinate(size)} {coordinate(size)} 0 1 0"
        return f"M{coordinate(x - size)} {coordinate(y)}{arc} {coordinate(2 * size)} 0{arc} {coordinate(-2 * size)} 0Z"
    turns = [(math.radians(angle), size * radius) for angle, radius in CORNERS[shape]]
    points = [(x + reach * math.cos(turn), y + reach * math.sin(turn)) for turn, reach in turns]
    return "M" + "L".join(f"{coordinate(at)} {coordinate(up)}" for at, up in points) + "Z"


def run_tag(name: str, order: int) -> Markup:
    """Name a run in text, with its sign in its colour."""
    # A screen reader says the name; the sign only repeats the colour for the eye.
    sign = element("span", RUN_SIGNS[order], class_=f"sign c{order + 1}", aria_hidden="true")
    # bdi: a name in a script from right to left does not reorder the words beside it.
    return element("span", sign, element("bdi", name), class_="run")


def run_title(name: str, order: int, num_runs: int) -> Markup:
    """Name a run where a page about several runs needs it; nothing on a page about one."""
    return element("h3", run_tag(name, order), class_="run-title") if num_runs > 1 else join()


def badge(level: Level) -> Markup:
    """Show a level."""
    glyph = element("span", GLYPHS[level], class_="glyph", aria_hidden="true")
    return element("span", glyph, level.capitalize(), class_=f"badge level-{level}")


def severity(level: Level) -> int:
    """Order levels, worst first."""
    return LEVELS.index(level)
