"""The frame of a chart: plot area, grid, ticks and titles, labels that do not run into each other, and a legend."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.report.charts.ticks import Axis
from counterpoint.report.markup import Attribute, Child, Markup, coordinate, element, join

CHARACTER_WIDTH = 6.4  # mean width of a character in the 12 px chart font
LINE_HEIGHT = 15.0


@dataclass(frozen=True)
class ChartText:
    """What a chart says to those who cannot see it."""

    title: str
    description: str


@dataclass(frozen=True)
class Frame:
    """A plot area of ``width`` by ``height`` pixels with margins, and the axes that map data into it."""

    width: float
    height: float
    x: Axis
    y: Axis
    right: float = 16.0
    top: float = 34.0
    bottom: float = 44.0

    @property
    def left(self) -> float:
        """Room for the widest label of the vertical axis."""
        return 12.0 + CHARACTER_WIDTH * max((len(label) for _, label in self.y.ticks), default=1)

    @property
    def x_end(self) -> float:
        """Right edge of the plot area."""
        return self.width - self.right

    @property
    def y_end(self) -> float:
        """Lower edge of the plot area."""
        return self.height - self.bottom

    def px(self, value: float) -> float:
        """Horizontal position of a value."""
        return self.left + self.x.fraction(value) * (self.x_end - self.left)

    def py(self, value: float) -> float:
        """Vertical position of a value."""
        return self.y_end - self.y.fraction(value) * (self.y_end - self.top)

    def axes(self) -> Markup:
        """Draw grid, ticks and titles; the vertical axis' title is written horizontally above its ticks."""
        horizontal = [self._y_tick(value, label) for value, label in self.y.ticks]
        vertical = [self._x_tick(value, label) for value, label in self.x.ticks]
        baseline = element("path", d=f"M{coordinate(self.left)} {coordinate(self.y_end)}H{coordinate(self.x_end)}")
        # Ends at the right edge: a long title grows into the picture, not out of it.
        x_title = text(self.x_end, self.height - 6, self.x.title, class_="axis-title end")
        y_title = text(0, 13, self.y.title, class_="axis-title")
        return join(element("g", horizontal, vertical, baseline, class_="axes"), x_title, y_title)

    def _y_tick(self, value: float, label: str) -> Markup:
        y = self.py(value)
        line = element("path", d=f"M{coordinate(self.left)} {coordinate(y)}H{coordinate(self.x_end)}", class_="grid")
        return join(line, text(self.left - 7, y + 4, label, class_="tick end"))

    def _x_tick(self, value: float, label: str) -> Markup:
        x = self.px(value)
        line = element("path", d=f"M{coordinate(x)} {coordinate(self.y_end)}v5")
        # A wide label in the corner would leave the picture.
        is_last = x + CHARACTER_WIDTH * len(label) / 2 > self.width
        return join(line, text(x, self.y_end + 18, label, class_="tick end" if is_last else "tick middle"))


def svg(size: tuple[float, float], words: ChartText, *content: Child, **attributes: Attribute) -> Markup:
    """Wrap content as a picture with a title and a description."""
    width, height = (coordinate(length) for length in size)
    title, description = element("title", words.title), element("desc", words.description or words.title)
    box = f"0 0 {width} {height}"
    return element(
        "svg", title, description, *content, viewBox=box, width=width, height=height, role="img", **attributes
    )


def text(x: float, y: float, words: str, **attributes: Attribute) -> Markup:
    """Place text with its baseline at a point."""
    return element("text", words, x=x, y=y, **attributes)


def text_width(words: str) -> float:
    """Estimate the width of a chart label in pixels."""
    return CHARACTER_WIDTH * len(words)


def spread_labels(wanted: Sequence[float], low: float, high: float, gap: float = LINE_HEIGHT) -> list[float]:
    """Move label positions as little as needed to keep ``gap`` between neighbours, within [low, high].

    >>> spread_labels([10.0, 12.0, 60.0], 0.0, 100.0)
    [10.0, 25.0, 60.0]
    >>> spread_labels([95.0, 99.0], 0.0, 100.0)
    [85.0, 100.0]
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    positions = list(wanted)
    # Downwards: no label nearer than ``gap`` to the one above.
    lowest = low
    for place in order:
        positions[place] = max(positions[place], lowest)
        lowest = positions[place] + gap
    # Upwards from the lower end: where there is no room for all, the upper end gives way.
    highest = high
    for place in reversed(order):
        positions[place] = min(positions[place], highest)
        highest = positions[place] - gap
    return positions
