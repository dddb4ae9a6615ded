"""Unit vectors in a plane: a circle, a spoke and a marker per vector, and names that do not run into each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from counterpoint.report.charts.chart_frame import ChartText, spread_labels, svg, text, text_width
from counterpoint.report.charts.series_style import marker
from counterpoint.report.markup import Markup, coordinate, element
from counterpoint.report.theory_pages.theory_panels import series_style

MAX_NAMED = 24  # spokes with a name
CLOSE = 0.1  # ends of spokes nearer than this share a line of names
SHORTEST = 1 / 3  # length of a spoke with a name: those of shorter ones would crowd the centre
SIDE = 60.0  # room for names beside the circle
LARGEST_RADIUS = 165.0
GAP = 14.0  # from a marker to its name


@dataclass(frozen=True)
class Spoke:
    """A vector of length at most 1; its name may stand for several that coincide."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class _Dial:
    """Centre and radius of the circle, in pixels."""

    x: float
    y: float
    radius: float

    def px(self, spoke: Spoke) -> float:
        return self.x + self.radius * spoke.x

    def py(self, spoke: Spoke) -> float:
        return self.y - self.radius * spoke.y


def unit_plane(spokes: Sequence[Spoke], words: ChartText, width: float) -> Markup:
    """Draw vectors from the origin inside the unit circle.

    Args:
        spokes: the vectors; those beyond the first 24, and those shorter than a third, get no name.
        words: what the chart says to those who cannot see it.
        width: in pixels.

    Returns:
        The drawing.
    """
    named = _joined([spoke for spoke in spokes if math.hypot(spoke.x, spoke.y) >= SHORTEST][:MAX_NAMED])
    side = max([SIDE, *(text_width(spoke.name) + GAP + 4 for spoke in named)])
    radius = min(LARGEST_RADIUS, width / 2 - side)
    dial = _Dial(width / 2, radius + 26, radius)
    content = [
        element("circle", cx=dial.x, cy=dial.y, r=radius, class_="circle"),
        [_spoke(dial, spoke, place) for place, spoke in enumerate(spokes)],
        _names(dial, named),
    ]
    return svg((width, 2 * radius + 52), words, content, class_="chart plane")


def _joined(spokes: Sequence[Spoke]) -> list[Spoke]:
    """Put the names of spokes that end close to each other on one line, at the first of them."""
    joined: list[Spoke] = []
    for spoke in spokes:
        near = [
            place for place, other in enumerate(joined) if math.dist((spoke.x, spoke.y), (other.x, other.y)) < CLOSE
        ]
        if near:
            joined[near[0]] = replace(joined[near[0]], name=f"{joined[near[0]].name}, {spoke.name}")
        else:
            joined.append(spoke)
    return joined


def _spoke(dial: _Dial, spoke: Spoke, place: int) -> Markup:
    """A line from the centre and a marker at its end."""
    style, x, y = series_style(place), dial.px(spoke), dial.py(spoke)
    path = f"M{coordinate(dial.x)} {coordinate(dial.y)}L{coordinate(x)} {coordinate(y)}"
    return element("g", element("path", d=path, class_=f"spoke {style.colour}"), marker(style, x, y, 5.5))


def _names(dial: _Dial, spokes: Sequence[Spoke]) -> list[Markup]:
    """Name each vector on its side of the circle, moved up or down where two would overlap."""
    sides = {is_left: [spoke for spoke in spokes if (spoke.x < -1e-9) == is_left] for is_left in (False, True)}
    return [label for is_left, group in sides.items() for label in _side(dial, group, is_left)]


def _side(dial: _Dial, spokes: Sequence[Spoke], is_left: bool) -> list[Markup]:
    wanted = [dial.py(spoke) + 4 + _lift(spoke) for spoke in spokes]
    heights = spread_labels(wanted, 12.0, dial.y + dial.radius + 22)
    shift = -GAP if is_left else GAP
    return [
        text(
            dial.px(spoke) + shift * _reach(spoke),
            height,
            spoke.name,
            class_="label halo end" if is_left else "label halo",
        )
        for spoke, height in zip(spokes, heights, strict=True)
    ]


def _lift(spoke: Spoke) -> float:
    """Names near the top or the bottom stand above or below their marker."""
    return -GAP * spoke.y / max(math.hypot(spoke.x, spoke.y), 1e-9)


def _reach(spoke: Spoke) -> float:
    """How far a name stands to the side: fully at the sides of the circle, hardly at its top."""
    return max(0.3, abs(spoke.x) / max(math.hypot(spoke.x, spoke.y), 1e-9))
