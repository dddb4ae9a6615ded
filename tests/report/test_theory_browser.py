"""A page about theory in a real browser: offline, quiet, and as wide as the window."""

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


def test_hostile_text_runs_no_script(visit, tmp_path):  # noqa: F811
    tab = visit(write_reproduction(hostile(), tmp_path / "a.html"))
    dialogs = []
    tab.on("dialog", lambda dialog: dialogs.append(dialog.message))
    assert dialogs == []
    assert tab.complaints == []
    assert tab.evaluate("document.querySelectorAll('script, img').length") == 0
