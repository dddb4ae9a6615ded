"""Clouds of many small points, with a legend below."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.core.markup import Markup, element
from counterpoint.report.charts.chart_frame import ChartText, Frame, style_legend, svg
from counterpoint.report.charts.series_style import Style, marker_path


@dataclass(frozen=True)
class Cloud:
    """Many points of one series."""

    x: Sequence[float]
    y: Sequence[float]
    style: Style


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
