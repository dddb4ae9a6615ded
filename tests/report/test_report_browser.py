"""The page in a real browser: offline, quiet, readable without JavaScript, on a phone, by keyboard, in both themes."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from counterpoint.report.page import report

pytestmark = pytest.mark.thorough

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-smooth-scrolling",
)  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")


def missing(reason: str) -> NoReturn:
    """Skip with a reason, or fail where a browser is promised."""
    if os.environ.get("CI") and os.environ.get("COUNTERPOINT_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    executable = next((found for name in NAMES if (found := shutil.which(name))), None)
    if executable is None:
        missing(f"no browser: none of {', '.join(NAMES)} is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no browser driver: install playwright")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Open a page from disk with the network off, and record what it asks for and complains about."""
    contexts = []

    def open_page(path: Path, **options):
        context = browser.new_context(offline=True, **{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        tab = context.new_page()
        tab.requests, tab.complaints = [], []
        tab.on("request", lambda request: tab.requests.append(request.url))
        tab.on("console", lambda message: tab.complaints.append(message.text))
        tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.goto(path.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()


# Scrolling is an animation, by the wheel and by the style of the page; a busy machine may drop some of its frames.
REST = """new Promise((done) => {
    let place = [scrollX, scrollY].join(), unmoved = 0;
    const look = () => {
        const now = [scrollX, scrollY].join();
        unmoved = now === place ? unmoved + 1 : 0;
        place = now;
        if (unmoved === 20) done(); else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
})"""


def box_at_rest(tab, part) -> dict[str, float]:
    """Scroll a part of the page into view; where it is once nothing moves any more."""
    part.scroll_into_view_if_needed()
    tab.evaluate(REST)
    return part.bounding_box()


@pytest.fixture
def one(make_run) -> Path:
    return report(make_run())


def test_chart_text_keeps_a_readable_size_on_a_phone(visit, one):
    tab = visit(one, viewport={"width": 360, "height": 800})
    sizes = tab.evaluate(
        """[...document.querySelectorAll('svg.chart text')].filter(node => node.getClientRects().length)
        .map(node => parseFloat(getComputedStyle(node).fontSize) * node.getScreenCTM().a)"""
    )
    assert len(sizes) > 20
    assert min(sizes) >= 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.thorough
def test_theme_follows_the_system_and_the_button(visit, one, scheme):
    tab = visit(one, color_scheme=scheme)
    background = "getComputedStyle(document.body).backgroundColor"
    at_first = tab.evaluate(background)
    is_dark = sum(map(int, re.findall(r"\d+", at_first))) < 3 * 128
    assert is_dark == (scheme == "dark")
    tab.locator("#theme").click()
    toggled = tab.evaluate(background)
    assert toggled != at_first
    tab.reload()
    assert tab.evaluate(background) == toggled
    tab.locator("#theme").click()
    assert tab.evaluate(background) == at_first


def test_values_show_under_the_pointer(visit, one):
    tab = visit(one)
    chart = tab.locator("#training svg.hover").first
    box, readout = box_at_rest(tab, chart), tab.locator("#training .readout").first
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    readout.wait_for(state="visible")
    words = readout.inner_text()
    assert re.match(r"epoch \d+\nloss +\d", words)
    row = words.split("\n")[0]
    assert tab.locator("#training th", has_text=re.compile(f"^{row}$")).count() >= 1
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] - 80)
    readout.wait_for(state="hidden")


def test_a_link_to_a_folded_finding_opens_it(visit, one):
    tab = visit(one)
    folded = tab.locator("details.card").first
    tab.evaluate("name => { location.hash = name }", folded.get_attribute("id"))
    tab.wait_for_function("name => document.getElementById(name).open", arg=folded.get_attribute("id"))
    assert folded.get_attribute("open") is not None


def test_keyboard_reaches_everything_with_a_visible_focus(visit, one):
    tab = visit(one)
    seen = set()
    for _ in range(40):
        tab.keyboard.press("Tab")
        focus = tab.evaluate(
            """(() => {
                const node = document.activeElement, style = getComputedStyle(node);
                return [node.tagName, node.outerHTML.slice(0, 80), style.outlineStyle, style.outlineWidth];
            })()"""
        )
        if focus[0] == "BODY":  # past the end of the page
            break
        seen.add(focus[0])
        assert focus[2] != "none", focus
        assert focus[3] != "0px", focus
    assert {"A", "BUTTON", "SUMMARY"} <= seen


def test_hostile_text_runs_no_script(visit, make_run):
    from test_report_page import attack_everything

    folder = make_run("img src=x onerror=alert(1)")
    attack_everything(folder)
    tab = visit(report(folder))
    dialogs = []
    tab.on("dialog", lambda dialog: dialogs.append(dialog.message))
    assert dialogs == []
    assert tab.complaints == []
    assert tab.evaluate("document.querySelectorAll('img[onerror]').length") == 0
