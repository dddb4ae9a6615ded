"""Legends below a chart: groups of swatches with their words, each group on rows of its own."""

from collections.abc import Sequence

from counterpoint.report.charts.chart_frame import Frame, text, text_width
from counterpoint.report.charts.series_style import Style, marker
from counterpoint.report.markup import Markup, coordinate, element, join

ROW_HEIGHT = 18.0
MARGIN = 14.0
Swatch = tuple[Markup, str]  # drawn around (8, 0), and its words


def swatch_legend(frame: Frame, groups: Sequence[Sequence[Swatch]]) -> tuple[Markup, float]:
    """Set groups of swatches below a frame.

    Args:
        frame: the chart above.
        groups: each starts on a new row and breaks where the frame ends.

    Returns:
        The legend and the height it adds; 0 when there is nothing to tell apart.
    """
    placed, row = [], 0
    for group in groups:
        x = 0.0
        for swatch, words in group:
            length = 26 + text_width(words) + 16
            if x and x + length > frame.width:
                x, row = 0.0, row + 1
            y = frame.height + MARGIN + ROW_HEIGHT * row
            place = f"translate({coordinate(x)} {coordinate(y)})"
            placed.append(element("g", swatch, text(22, 4, words, class_="label"), transform=place))
            x += length
        row += 1 if group else 0
    height = MARGIN + ROW_HEIGHT * row - 4 if row else 0.0
    return (element("g", placed, class_="legend") if row else join()), height


def style_legend(frame: Frame, groups: Sequence[Sequence[tuple[Style, str]]]) -> tuple[Markup, float]:
    """Set groups of markers with their words below a frame."""
    return swatch_legend(frame, [[(marker(style, 8, 0), words) for style, words in group] for group in groups])


def area_swatch(colour: str) -> Markup:
    """Draw the swatch of a filled outline."""
    return element("rect", x=0, y=-6, width=16, height=11, class_=f"area {colour}")
