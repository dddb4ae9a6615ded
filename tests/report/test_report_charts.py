"""Axes hold their data, ticks are finite, labels keep their distance, and every drawing can be heard."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.report.charts.chart_frame import (
    Axis,
    ChartText,
    Frame,
    decade_axis,
    evenly_chosen,
    linear_axis,
    percent_axis,
    spread_labels,
)
from counterpoint.report.charts.drawings import (
    IntervalGroup,
    IntervalRow,
    Line,
    Reference,
    interval_drawing,
    line_drawing,
    step_area,
)
from counterpoint.report.charts.figures import Style
from counterpoint.report.run_reading import Histogram
from counterpoint.report.sections.pairs_section import separation

WORDS = ChartText("a title", "a description")
finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)


def assert_sound(axis: Axis, values: list[float]) -> None:
    positions, labels = [value for value, _ in axis.ticks], [label for _, label in axis.ticks]
    assert axis.low < axis.high
    slack = 1e-8 * max(1.0, abs(axis.low), abs(axis.high))
    assert all(axis.low - slack <= value <= axis.high + slack for value in values)
    assert positions == sorted(set(positions))
    assert len(set(labels)) == len(labels)
    assert not re.search("nan|inf", " ".join(labels), re.IGNORECASE)


def assert_drawing(drawing: str) -> ET.Element:
    """Parse a drawing and check that it names itself and holds only finite numbers."""
    root = ET.fromstring(drawing)
    assert root.get("role") == "img"
    assert root.findtext("title")
    assert root.findtext("desc")
    coordinates = " ".join(value for node in root.iter() for value in node.attrib.values())
    assert not re.search(r"\b(nan|inf)\b", coordinates, re.IGNORECASE)
    assert not any("style" in node.attrib for node in root.iter())
    return root


@given(st.lists(st.integers(-(10**6), 10**6).map(lambda n: n / 1000), min_size=1, max_size=20))
def test_linear_axis_holds_its_data(values):
    axis = linear_axis("x", values)
    assert_sound(axis, values)
    assert 2 <= len(axis.ticks) <= 10


@pytest.mark.parametrize("values", [[], [None], [float("nan")], [0.0], [3.0, 3.0], [-2.0], [1e-30]])
def test_degenerate_data_still_has_an_axis(values):
    for build in (linear_axis, percent_axis, decade_axis):
        axis = build("x", values)
        assert axis.low < axis.high or build is percent_axis
        assert not re.search("nan|inf", " ".join(label for _, label in axis.ticks))


@given(st.integers(1, 10**5), st.integers(1, 10**5))
def test_whole_axis_has_whole_ticks(first, last):
    axis = linear_axis("epoch", [float(first), float(last)], is_whole=True)
    assert all(float(value).is_integer() for value, _ in axis.ticks)
    assert_sound(axis, [float(first), float(last)])


@given(st.lists(st.floats(0, 1), min_size=1))
def test_percent_axis_stays_within_0_and_100(shares):
    axis = percent_axis("share", shares)
    assert 0 <= axis.low < axis.high <= 1
    assert all(-1e-9 <= value <= 1 + 1e-9 for value, _ in axis.ticks)


@given(st.lists(st.floats(-8, 5), min_size=1))
def test_decade_axis_holds_its_data(exponents):
    assert_sound(decade_axis("value", exponents), exponents)


@given(st.integers(1, 1000), st.integers(2, 200))
def test_chosen_indices_keep_both_ends(length, at_most):
    chosen = list(evenly_chosen(length, at_most))
    assert chosen[0] == 0
    assert chosen[-1] == length - 1
    assert len(chosen) <= max(at_most, 1)
    assert chosen == sorted(set(chosen))


@given(st.lists(st.floats(0, 300), min_size=1, max_size=12))
def test_labels_keep_their_distance_when_there_is_room(wanted):
    spread = spread_labels(wanted, 0.0, 300.0)
    ordered = sorted(spread)
    assert all(later - earlier >= 15.0 - 1e-6 for earlier, later in pairwise(ordered))
    assert ordered[-1] <= 300.0 + 1e-6
    assert ordered[0] >= 0.0 - 1e-6


@pytest.mark.parametrize("loss", [[5.0], [3.0, 3.0, 3.0], [5.0, None, 4.0], [None, None], list(np.linspace(6, 2, 500))])
def test_line_chart_of_odd_curves(loss):
    epochs = [float(place + 1) for place in range(len(loss))]
    axes = linear_axis("epoch", epochs, is_whole=True), linear_axis("loss", [*loss, 6.0])
    lines, levels = [Line("curve", epochs, loss, Style("c1", "7 3"))], [Reference("chance 6", 6.0)]
    drawing = line_drawing(WORDS, axes, lines, levels)(400)
    texts = [node.text for node in assert_drawing(drawing).iter("text")]
    assert ("curve" in texts) == any(value is not None for value in loss)


def test_a_gap_breaks_the_line():
    axes = linear_axis("x", [1.0, 4.0]), linear_axis("y", [0.0, 3.0])
    drawing = line_drawing(WORDS, axes, [Line("", [1.0, 2.0, 3.0, 4.0], [0.0, 1.0, None, 3.0], Style("c1"))])(400)
    path = next(node for node in assert_drawing(drawing).iter("path") if "line" in node.get("class", ""))
    assert path.get("d", "").count("M") == 2


@pytest.mark.parametrize("width", [330.0, 620.0])
def test_interval_drawing_draws_every_interval(width):
    interval = (0.9, 0.95, 0.98, Style("c1"))
    groups = [
        IntervalGroup("kNN", [IntervalRow("representation", [interval, interval]), IntervalRow("pixels", [interval])])
    ]
    root = assert_drawing(interval_drawing(percent_axis("accuracy", [0.9, 0.98]), groups, WORDS)(width))
    assert len([node for node in root.iter("path") if "whisker" in node.get("class", "")]) == 3


def test_histogram_outline_covers_its_bins_and_no_empty_margin():
    frame = Frame(200, 100, Axis("x", 0, 4, ()), Axis("y", 0, 1, ()))
    path = step_area(frame, [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 0.5, 1.0, 0.0], "area")
    assert (path.count("V"), path.count("H")) == (3, 2)
    assert f"M{frame.px(1.0):g} " in path
    assert step_area(frame, [0.0, 1.0], [0.0], "area") == ""


@given(st.lists(st.integers(0, 5), min_size=4, max_size=4), st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_separation_equals_counting_pairs(positive, negative):
    histogram = Histogram(np.linspace(-1, 1, 5), np.array(positive, float), np.array(negative, float))
    found = separation(histogram)
    if not sum(positive) or not sum(negative):
        assert found is None
        return
    drawn_positive = [bin_ for bin_, times in enumerate(positive) for _ in range(times)]
    drawn_negative = [bin_ for bin_, times in enumerate(negative) for _ in range(times)]
    pairs = [(p > n) + 0.5 * (p == n) for p in drawn_positive for n in drawn_negative]
    assert found == pytest.approx(np.mean(pairs))
