"""Axes with ticks at numbers a person would choose, and the frame of a chart: grid, titles, labels kept apart."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from counterpoint.report.markup import Attribute, Child, Markup, coordinate, element, join
from counterpoint.report.wording import MINUS, NO_BREAK, number, power_of_ten

STEPS = (1.0, 2.0, 5.0, 10.0)
NUM_DECADES = 6  # about how many decades an axis of logarithms labels
CHARACTER_WIDTH = 6.4  # mean width of a character in the 12 px chart font
LINE_HEIGHT = 15.0


@dataclass(frozen=True)
class Axis:
    """One axis of a chart: its title, its range (low < high) and its ticks as (value, label)."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def fraction(self, value: float) -> float:
        """Place a value between 0 (low) and 1 (high)."""
        return (value - self.low) / (self.high - self.low)


def linear_axis(title: str, values: Iterable[float | None], *, num_ticks: int = 5, is_whole: bool = False) -> Axis:
    """Build an axis whose ends are ticks and which holds every value.

    Args:
        title: title of the axis, which says what it measures.
        values: the data; None and non-finite values are ignored, and without a finite value the axis goes from 0 to 1.
        num_ticks: approximate number of ticks.
        is_whole: whether ticks are whole numbers, and the axis ends at the data.

    Returns:
        The axis.

    >>> [label for _, label in linear_axis("loss", [1.2, 4.9]).ticks]
    ['1', '2', '3', '4', '5']
    >>> linear_axis("flat", [3.0, 3.0]).low < 3.0 < linear_axis("flat", [3.0, 3.0]).high
    True
    """
    low, high = value_range(values)
    step = nice_step((high - low) / max(num_ticks - 1, 1))
    if is_whole:
        step = max(1.0, math.ceil(step))
    # 1e-9: an end that is a tick up to rounding (0.3 / 0.1 = 2.9999999999999996) gets no further tick.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Multiples, not sums: sums of a step drift.
    ticks = tuple((index * step, tick_label(index * step, step)) for index in range(first, last + 1))
    if not is_whole:
        return Axis(title, first * step, last * step, ticks)
    return Axis(title, low, high, tuple(tick for tick in ticks if low <= tick[0] <= high))


def percent_axis(title: str, values: Iterable[float | None], *, num_ticks: int = 5) -> Axis:
    """Build an axis of shares, labelled in percent and never beyond 0 to 100."""
    axis = linear_axis(title, values, num_ticks=num_ticks)
    # The labels are in percent, so their decimals follow the step in percent.
    step = 100 * (axis.ticks[1][0] - axis.ticks[0][0])
    shares = [value for value, _ in axis.ticks if -1e-9 <= value <= 1 + 1e-9]
    ticks = tuple((share, f"{tick_label(100 * share, step)}{NO_BREAK}%") for share in shares)
    return Axis(title, max(axis.low, 0.0), min(axis.high, 1.0), ticks)


def decade_axis(title: str, exponents: Iterable[float | None]) -> Axis:
    """Build an axis of base-10 logarithms, labelled with the powers of ten.

    >>> [label for _, label in decade_axis("value", [-2.5, 0.4]).ticks]
    ['10⁻³', '10⁻²', '10⁻¹', '10⁰']
    """
    low, high = value_range(exponents)
    first = math.floor(low + 1e-9)
    step = max(1, math.ceil((high - first) / NUM_DECADES))
    # One step at least, so that two powers have labels.
    end = max(high, float(first + step))
    ticks = tuple((float(power), power_of_ten(power)) for power in range(first, math.floor(end + 1e-9) + 1, step))
    return Axis(title, float(first), end, ticks)


def value_range(values: Iterable[float | None]) -> tuple[float, float]:
    """Find the smallest and largest finite value, moved apart if they are equal.

    >>> value_range([2.0, None, 5.0]), value_range([]), value_range([0.0])
    ((2.0, 5.0), (0.0, 1.0), (-0.5, 0.5))
    """
    finite = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    # Relative, as a step far below the last digit of the ends would give no distinct ticks.
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    margin = 0.1 * abs(low) or 0.5  # 10 % around a constant; around 0, half a unit
    return low - margin, high + margin


def nice_step(rough: float) -> float:
    """Round a step up to 1, 2 or 5 times a power of ten.

    >>> nice_step(0.9), nice_step(130.0), nice_step(0.021)
    (1.0, 200.0, 0.05)
    """
    power = 10.0 ** math.floor(math.log10(rough))
    # 1e-9 for the rounding of the power: 0.05 stays 0.05.
    return next(step * power for step in STEPS if step * power >= rough * (1 - 1e-9))


def tick_label(value: float, step: float) -> str:
    """Write a tick with just the decimals its step needs.

    >>> tick_label(0.5, 0.1), tick_label(2000.0, 1000.0), tick_label(-0.0, 1.0)
    ('0.5', '2,000', '0')
    """
    # An index of 0 may give -0.0.
    if abs(value) < step / 2:
        return "0"
    if step < 1e-3 or step >= 1e6:
        return number(value)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))  # 1e-9: log10 may lie just below a whole number
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def evenly_chosen(length: int, at_most: int) -> Sequence[int]:
    """Choose a limited number of indices of a sequence, evenly, with both ends.

    >>> list(evenly_chosen(5, 10)), list(evenly_chosen(101, 5))
    ([0, 1, 2, 3, 4], [0, 25, 50, 75, 100])
    """
    if length <= at_most:
        return range(length)
    return sorted({round(place * (length - 1) / (at_most - 1)) for place in range(at_most)})


@dataclass(frozen=True)
class ChartText:
    """Title and description of a chart for readers who cannot see it."""

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
        """Left edge of the plot area, with room for the widest label of the vertical axis."""
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
        ticks: list[Markup] = []
        for value, label in self.y.ticks:
            y = self.py(value)
            line = f"M{coordinate(self.left)} {coordinate(y)}H{coordinate(self.x_end)}"
            ticks += [element("path", d=line, class_="grid"), text(self.left - 7, y + 4, label, class_="tick end")]
        for value, label in self.x.ticks:
            x = self.px(value)
            # A wide label in the corner would leave the picture.
            is_last = x + CHARACTER_WIDTH * len(label) / 2 > self.width
            look = "tick end" if is_last else "tick middle"
            stroke = element("path", d=f"M{coordinate(x)} {coordinate(self.y_end)}v5")
            ticks += [stroke, text(x, self.y_end + 18, label, class_=look)]
        baseline = element("path", d=f"M{coordinate(self.left)} {coordinate(self.y_end)}H{coordinate(self.x_end)}")
        # Ends at the right edge: a long title grows into the picture, not out of it.
        x_title = text(self.x_end, self.height - 6, self.x.title, class_="axis-title end")
        y_title = text(0, 13, self.y.title, class_="axis-title")
        return join(element("g", ticks, baseline, class_="axes"), x_title, y_title)


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


def spread_labels(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """Move label positions as little as needed to keep a line between neighbours, within [low, high].

    >>> spread_labels([10.0, 12.0, 60.0], 0.0, 100.0)
    [10.0, 25.0, 60.0]
    >>> spread_labels([95.0, 99.0], 0.0, 100.0)
    [85.0, 100.0]
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    positions = list(wanted)
    # Downwards: no label nearer than a line to the one above.
    lowest = low
    for place in order:
        positions[place] = max(positions[place], lowest)
        lowest = positions[place] + LINE_HEIGHT
    # Upwards from the lower end: without room for all, labels pass the upper end.
    highest = high
    for place in reversed(order):
        positions[place] = min(positions[place], highest)
        highest = positions[place] - LINE_HEIGHT
    return positions
