"""A page about theory in a real browser: offline, quiet, without a script, on a phone, in both themes."""

import re

import pytest
from test_report_browser import browser, visit  # noqa: F401  (fixtures)
from theory_records import hostile, lines, matrix, points, reproduction

from reproductions.reproduction_page import write_reproduction

pytestmark = pytest.mark.thorough


@pytest.fixture
def drawn(tmp_path):
    """Panels of every kind, few lines and many, small matrices and a large one."""
    panels = (lines(), lines(16, log_y=True), points(), matrix(), matrix(20))
    return write_reproduction(reproduction(*panels), tmp_path / "toy.html")


@pytest.mark.thorough
def test_page_asks_for_nothing_and_complains_about_nothing(visit, drawn):  # noqa: F811
    tab = visit(drawn)
    for summary in tab.locator("summary").all():
        summary.click()
    assert tab.requests == [drawn.as_uri()]
    assert tab.complaints == []


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.thorough
def test_nothing_runs_out_of_the_page(visit, drawn, width):  # noqa: F811
    tab = visit(drawn, viewport={"width": width, "height": 800})
    for details in tab.locator("details").all():
        details.evaluate("node => { node.open = true }")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """width => [...document.querySelectorAll('main *, header *')]
        .filter(node => !node.closest('.scroll') && node.getClientRects().length)
        .filter(node => node.getBoundingClientRect().right > width + 1).map(node => node.outerHTML.slice(0, 80))"""
    assert tab.evaluate(beyond, width) == []


def test_on_a_phone_the_verdict_is_seen_without_scrolling(visit, drawn):  # noqa: F811
    tab = visit(drawn, viewport={"width": 360, "height": 800})
    for verdict in tab.locator(".verdict").all():
        box = verdict.bounding_box()
        assert box["x"] + box["width"] <= 360


def test_chart_text_keeps_a_readable_size_on_a_phone(visit, drawn):  # noqa: F811
    tab = visit(drawn, viewport={"width": 360, "height": 800})
    sizes = tab.evaluate(
        """[...document.querySelectorAll('svg.chart text')].filter(node => node.getClientRects().length)
        .map(node => [node, node.getScreenCTM()])
        .map(([node, place]) => parseFloat(getComputedStyle(node).fontSize) * Math.hypot(place.a, place.b))"""
    )
    assert len(sizes) > 20
    assert min(sizes) >= 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_follows_the_system_and_numbers_keep_their_contrast(visit, drawn, scheme):  # noqa: F811
    tab = visit(drawn, color_scheme=scheme)
    ground = rgb(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (sum(ground) < 3 * 128) == (scheme == "dark")
    found = tab.evaluate(
        """[...document.querySelectorAll('.matrix g')].map(cell => [...cell.children]
        .map(node => getComputedStyle(node)).map(style => [style.fill, style.fillOpacity]))
        .filter(pair => pair.length === 2)"""
    )
    assert len(found) >= 9
    for (fill, opacity), (ink, _) in found:
        mixed = [float(opacity) * a + (1 - float(opacity)) * b for a, b in zip(rgb(fill), ground, strict=True)]
        assert contrast(mixed, rgb(ink)) >= 4.5


def rgb(text):
    return [float(value) for value in re.findall(r"[\d.]+", text)[:3]]


def contrast(one, other):
    """Contrast ratio of WCAG 2."""
    linear = [[c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
              for colour in (one, other)]  # fmt: skip
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear)
    return (high + 0.05) / (low + 0.05)


def test_hostile_text_runs_no_script(visit, tmp_path):  # noqa: F811
    tab = visit(write_reproduction(hostile(), tmp_path / "a.html"))
    dialogs = []
    tab.on("dialog", lambda dialog: dialogs.append(dialog.message))
    assert dialogs == []
    assert tab.complaints == []
    assert tab.evaluate("document.querySelectorAll('script, img').length") == 0
