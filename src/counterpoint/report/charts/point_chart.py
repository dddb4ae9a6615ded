"""Charts of points: a plane with named points and arrows, and clouds of many small marks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from counterpoint.core.markup import Markup, coordinate, element, join
from counterpoint.report.charts.chart_frame import ChartText, Frame, style_legend, svg, text, text_width
from counterpoint.report.charts.series_style import Style, marker, marker_path

GAP = 9.0  # from the centre of a mark to its name
ARROW_STEPS = 40
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class NamedPoint:
    """One point with its name; an empty name leaves it to the legend."""

    label: str
    x: float
    y: float
    style: Style


Arrow = tuple[NamedPoint, NamedPoint]


@dataclass(frozen=True)
class Cloud:
    """Many points of one series."""

    x: Sequence[float]
    y: Sequence[float]
    style: Style


def point_plane(
    frame: Frame,
    words: ChartText,
    points: Sequence[NamedPoint],
    arrows: Sequence[Arrow],
    groups: Sequence[Sequence[tuple[Style, str]]],
) -> Markup:
    """Draw named points, arrows between some of them, and a legend below."""
    key, key_height = style_legend(frame, groups)
    content = [
        frame.axes(),
        [_arrow(frame, start, end) for start, end in arrows],
        [marker(point.style, frame.px(point.x), frame.py(point.y), 5) for point in points],
        _names(frame, points, arrows),
        key,
    ]
    return svg((frame.width, frame.height + key_height), words, content, class_="chart")


def point_clouds(
    frame: Frame, words: ChartText, clouds: Sequence[Cloud], groups: Sequence[Sequence[tuple[Style, str]]]
) -> Markup:
    """Draw each cloud as one path of small marks, with a legend below."""
    key, key_height = style_legend(frame, groups)
    content = [frame.axes(), [_cloud(frame, cloud) for cloud in clouds], key]
    return svg((frame.width, frame.height + key_height), words, content, class_="chart")


def _cloud(frame: Frame, cloud: Cloud) -> Markup:
    # One path for all: an element per point would make the page many times as large.
    shape = cloud.style.marker
    outlines = (marker_path(shape, frame.px(x), frame.py(y), 3.2) for x, y in zip(cloud.x, cloud.y, strict=True))
    return element("path", d="".join(outlines), class_=f"mark faint {cloud.style.colour}")


def _arrow(frame: Frame, start: NamedPoint, end: NamedPoint) -> Markup:
    """Draw a thin arrow that stops short of both marks; too short a way gets none."""
    x0, y0, x1, y1 = frame.px(start.x), frame.py(start.y), frame.px(end.x), frame.py(end.y)
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    # Less has no room for both marks' distance and the head.
    if length < 34:
        return join()
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    tip_x, tip_y = x1 - 9 * ux, y1 - 9 * uy
    shaft = f"M{coordinate(x0 + 9 * ux)} {coordinate(y0 + 9 * uy)}L{coordinate(tip_x)} {coordinate(tip_y)}"
    # Back from the tip by 7 along the arrow, 3.5 to either side.
    barbs = [(tip_x - 7 * ux + 3.5 * side * uy, tip_y - 7 * uy - 3.5 * side * ux) for side in (1, -1)]
    (ax, ay), (bx, by) = barbs
    head = (
        f"M{coordinate(ax)} {coordinate(ay)}L{coordinate(tip_x)} {coordinate(tip_y)}L{coordinate(bx)} {coordinate(by)}"
    )
    return element("path", d=shaft + head, class_=f"arrow {end.style.colour}")


def _names(frame: Frame, points: Sequence[NamedPoint], arrows: Sequence[Arrow]) -> Markup:
    """Name the points on the first side that is free; a name without room is left to the legend and the table."""
    # All marks count before any name: a name must not lie on a later point.
    taken: list[Box] = [_box(frame, point.x, point.y) for point in points]
    taken += [box for start, end in arrows for box in _arrow_boxes(frame, start, end)]
    names = []
    for point in points:
        free = next((box for box in _name_boxes(frame, point) if _is_free(frame, box, taken)), None)
        if free is None or not point.label:
            continue
        taken.append(free)
        # text stands on its baseline, above the lower edge
        names.append(text(free[0], free[3] - 3.5, point.label, class_="label halo"))
    return join(names)


def _name_boxes(frame: Frame, point: NamedPoint) -> Iterable[Box]:
    """Offer places for a name: right, left, above, below."""
    x, y, width = frame.px(point.x), frame.py(point.y), text_width(point.label)
    yield x + GAP, y - 7, x + GAP + width, y + 8
    yield x - GAP - width, y - 7, x - GAP, y + 8
    yield x - width / 2, y - GAP - 14, x + width / 2, y - GAP + 1
    yield x - width / 2, y + GAP - 2, x + width / 2, y + GAP + 13


def _box(frame: Frame, x: float, y: float, reach: float = 6.0) -> Box:
    """The square around a point in data units."""
    return frame.px(x) - reach, frame.py(y) - reach, frame.px(x) + reach, frame.py(y) + reach


def _arrow_boxes(frame: Frame, start: NamedPoint, end: NamedPoint) -> Iterable[Box]:
    """Cover an arrow with small squares, so that no name lies on it."""
    for step in range(1, ARROW_STEPS):
        share = step / ARROW_STEPS
        yield _box(frame, start.x + share * (end.x - start.x), start.y + share * (end.y - start.y), 2.0)


def _is_free(frame: Frame, box: Box, taken: Sequence[Box]) -> bool:
    """Whether a box lies inside the plot and touches no taken one."""
    is_inside = box[0] >= frame.left and box[2] <= frame.width and box[1] >= frame.top - 8 and box[3] <= frame.y_end
    return is_inside and not any(_overlap(box, other) for other in taken)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
