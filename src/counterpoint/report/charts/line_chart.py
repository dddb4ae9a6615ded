"""Line charts and histograms, labelled at the lines themselves; spectra down to the floor of the arithmetic."""

# D eigenvalues, K of the band

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterpoint.report.charts.chart_frame import (
    Axis,
    ChartText,
    Frame,
    evenly_chosen,
    spread_labels,
    svg,
    text,
    text_width,
)
from counterpoint.report.charts.figures import Draw
from counterpoint.report.charts.series_style import Style, marker
from counterpoint.report.markup import Markup, coordinate, element, join

MAX_VERTICES = 400


@dataclass(frozen=True)
class Line:
    """One line: values by position; a None breaks it."""

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    style: Style


@dataclass(frozen=True)
class Reference:
    """A level to read the lines against, labelled inside the plot: above its line, or below it."""

    label: str
    value: float
    is_below: bool = False


@dataclass(frozen=True)
class Band:
    """A range to read the lines against: lower and upper ends by position."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def line_chart(
    frame: Frame,
    words: ChartText,
    lines: Sequence[Line],
    references: Sequence[Reference] = (),
    band: Band | None = None,
) -> Markup:
    """Draw lines with a marker and their label at the end, levels and a band."""
    drawn = [line for line in lines if any(value is not None for value in line.y)]
    # The order is that of painting: labels of levels lie over the lines, lines over the levels.
    content = [
        frame.axes(),
        _band(frame, band) if band and len(band.x) else None,
        [_reference(frame, reference) for reference in references],
        [_stroke(frame, line) for line in drawn],
        _end_labels(frame, drawn),
        [_reference_label(frame, reference) for reference in references],
    ]
    # page.js reads these to place the cursor and to find the value under the pointer.
    hover = {"data_left": frame.left, "data_right": frame.x_end, "data_low": frame.x.low, "data_high": frame.x.high}
    plot = {"data_top": frame.top, "data_bottom": frame.y_end}
    return svg((frame.width, frame.height), words, content, class_="chart hover", **hover, **plot)


def line_drawing(
    words: ChartText,
    axes: tuple[Axis, Axis],
    lines: Sequence[Line],
    references: Sequence[Reference] = (),
    band: Band | None = None,
) -> Draw:
    """Lines named at their ends, to be drawn at any width."""

    def draw(width: float) -> Markup:
        room = 16.0 + max((text_width(line.label) for line in lines), default=0.0)  # of labels at the ends
        frame = Frame(width, min(320, 160 + width / 3), *axes, right=room)
        return line_chart(frame, words, lines, references, band=band)

    return draw


def step_area(frame: Frame, edges: Sequence[float], heights: Sequence[float], class_: str) -> Markup:
    """Draw a histogram as one outline, from its first bin that is not empty to its last."""
    filled = [place for place, height in enumerate(heights) if height > 0]
    if not filled:
        return join()
    first, last = filled[0], filled[-1]
    base = coordinate(frame.y_end)
    # Upright to the height of each bin, flat across it.
    steps = [
        f"V{coordinate(frame.py(heights[place]))}H{coordinate(frame.px(edges[place + 1]))}"
        for place in range(first, last + 1)
    ]
    return element("path", d=f"M{coordinate(frame.px(edges[first]))} {base}{''.join(steps)}V{base}Z", class_=class_)


def _stroke(frame: Frame, line: Line) -> Markup:
    pieces, pen = [], "M"
    for x, y in zip(line.x, line.y, strict=True):
        if y is None:
            # A gap: the next value begins a new stroke.
            pen = "M"
            continue
        pieces.append(f"{pen}{coordinate(frame.px(x))} {coordinate(frame.py(y))}")
        pen = "L"
    dash = line.style.dash or None
    return element("path", d="".join(pieces), class_=f"line {line.style.colour}", stroke_dasharray=dash)


def _band(frame: Frame, band: Band) -> Markup:
    """Fill what lies between both ends, as far as the axis reaches."""
    upper = [(frame.px(x), frame.py(min(y, frame.y.high))) for x, y in zip(band.x, band.high, strict=True)]
    lower = [(frame.px(x), frame.py(max(y, frame.y.low))) for x, y in zip(band.x, band.low, strict=True)]
    outline = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in [*upper, *reversed(lower)])
    return element("path", d=f"M{outline}Z", class_="band")


def _end_labels(frame: Frame, lines: Sequence[Line]) -> Markup:
    # The last point of a line that is not a gap.
    points = [[(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None] for line in lines]
    ends = [known[-1] for known in points]
    wanted = [frame.py(y) for _, y in ends]
    heights = spread_labels(wanted, frame.top, frame.y_end - 8)
    marks = [marker(line.style, frame.px(x), frame.py(y)) for line, (x, y) in zip(lines, ends, strict=True)]
    labels = [
        text(frame.px(x) + 9, height + 4, line.label, class_="label halo")
        for line, (x, _), height in zip(lines, ends, heights, strict=True)
    ]
    return join(marks, labels)


def _reference(frame: Frame, reference: Reference) -> Markup:
    path = f"M{coordinate(frame.left)} {coordinate(frame.py(reference.value))}H{coordinate(frame.x_end)}"
    return element("path", d=path, class_="reference")


def _reference_label(frame: Frame, reference: Reference) -> Markup:
    y = frame.py(reference.value)
    # Below the line only if the label does not run into the axis.
    is_below = reference.is_below and y + 22 < frame.y_end
    return text(frame.x_end, y + 15 if is_below else y - 6, reference.label, class_="label halo end")


MAX_POINTS = 160  # of a line
FLOOR_WORDS = "floor: rounding"


def rounding(values_D: NDArray[np.float64]) -> float:
    """The level that a covariance in float64 resolves: D eps of its largest eigenvalue, 12 decades below and more.

    >>> round(math.log10(rounding(np.array([1.0] * 128))), 1)
    -13.5
    """
    return len(values_D) * sys.float_info.epsilon * float(values_D[0]) if values_D.size else 0.0


def log_values(values_D: NDArray[np.float64], floor: float) -> list[float | None]:
    """Logarithms of a descending spectrum, on the floor where they lie below it; None where all are 0."""
    least = max(floor, 0.0)
    if not values_D.size or values_D[0] <= 0 or least <= 0:
        return [math.log10(value) if value > 0 else None for value in values_D]
    return [math.log10(max(float(value), least)) for value in values_D]


def floor_reference(values_D: NDArray[np.float64], floor: float) -> Reference | None:
    """The floor, where a spectrum reaches it; None for one that stays above."""
    is_reached = values_D.size and values_D[0] > floor > 0 and values_D[-1] <= floor
    return Reference(FLOOR_WORDS, math.log10(floor)) if is_reached else None


def spectrum_band(band_2K: NDArray[np.float64], axis: Axis) -> Band:
    """The band of isotropic features at the places of the eigenvalues, from 1, within an axis of logarithms."""

    def within(value: float) -> float:
        """A logarithm, moved to the end of the axis where it lies beyond."""
        return min(max(math.log10(value), axis.low), axis.high) if value > 0 else axis.low

    low, high = ([within(float(value)) for value in ends] for ends in band_2K)
    chosen = evenly_chosen(band_2K.shape[1], MAX_POINTS)
    return Band([at + 1.0 for at in chosen], [low[at] for at in chosen], [high[at] for at in chosen])
