"""The page in a real browser: offline, quiet, readable without JavaScript, on a phone, by keyboard, in both themes."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from run_folders import attack_everything, dense_embedding, edit_json, sparse_embedding, toy_samples
from test_map_section import with_samples

from counterpoint.report.reporting import report

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
    """Open a page from disk with the network off, its folds open, and record what it asks for and complains about."""
    contexts = []

    def open_page(path: Path, *, is_folded: bool = False, **options):
        context = browser.new_context(offline=True, **{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        tab = context.new_page()
        tab.requests, tab.complaints = [], []
        tab.on("request", lambda request: tab.requests.append(request.url))
        tab.on("console", lambda message: tab.complaints.append(message.text))
        tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.goto(path.as_uri())
        if not is_folded:
            tab.evaluate("document.querySelectorAll('.fold').forEach((node) => { node.open = true; })")
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


SCREEN = 800
WITHIN = """(names) => names.map((name) => {
    const shown = [...document.querySelectorAll(name)].filter((node) => node.getClientRects().length);
    return [name, shown.length, Math.max(0, ...shown.map((node) => node.getBoundingClientRect().bottom))];
})"""


@pytest.fixture(scope="module")
def demo_pages(tmp_path_factory) -> dict[str, Path]:
    """Pages of runs with pictures, dense and sparse, with many faults, and of both beside each other."""
    toy, place = toy_samples(80, kind="colour"), tmp_path_factory.mktemp("folded")
    simclr = with_samples(place / "simclr", toy, dense_embedding(toy), method="simclr")
    ncl = with_samples(place / "ncl", toy, sparse_embedding(toy))
    faulty = with_samples(place / "faulty", toy, dense_embedding(toy), method="simclr")
    fault = {"level": "warning", "title": "One direction carries `90%` of the variance", "remedy": "--epochs, `seed`"}
    grown = {
        "level": "severe",
        "title": "The weights grew far beyond their start: they changed by 24.3 times their norm",
    }
    grown |= {
        "name": "rate-too-high",
        "remedy": "a lower learning rate (--optim.learning-rate) or more epochs (--epochs)",
    }
    faults = [grown, *({**fault, "name": f"f{k}"} for k in range(9))]
    edit_json(faulty / "findings.json", lambda c: c.update(findings=faults))
    halves = {f"class {half}": {"correct": 150, "total": 180} for half in range(2)}
    for run in (simclr, ncl, faulty):
        edit_json(run / "evaluation.json", lambda c: [row.update(classes=halves) for row in c["rows"]] and None)
    runs = {"simclr": [simclr], "ncl": [ncl], "faulty": [faulty], "two": [simclr, ncl]}
    return {name: report(some, out=place / f"{name}.html", quiet=True) for name, some in runs.items()}


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["simclr", "ncl", "faulty"])
def test_the_first_screen_answers_compared_with_what(visit, demo_pages, name, width):
    tab = visit(demo_pages[name], is_folded=True, viewport={"width": width, "height": SCREEN})
    found = tab.evaluate(WITHIN, [".lede", ".standing tr", ".worst"])
    assert [number for _, number, _ in found] == [1, 5, 1]  # head, learned, untrained, raw input, chance
    assert max(bottom for *_, bottom in found) <= SCREEN
    ((_, number, bottom),) = tab.evaluate(WITHIN, [".nearest li"])
    assert number == 6
    assert bottom <= SCREEN


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["simclr", "ncl", "faulty", "two"])
def test_a_page_is_short_until_it_is_opened(visit, demo_pages, name, width):
    tab = visit(demo_pages[name], is_folded=True, viewport={"width": width, "height": SCREEN})
    assert tab.evaluate("document.documentElement.scrollHeight") <= 6 * SCREEN
    assert tab.locator("nav").bounding_box()["height"] < 60  # one line
    # The light table is open only where dimensions are to be read, and of several runs nothing is.
    assert tab.locator(".light-table").first.is_visible() == (name == "ncl")


@pytest.mark.parametrize("name", ["simclr", "two"])
def test_a_phone_needs_no_sideways_scrolling_and_no_backtick_is_read(visit, demo_pages, name):
    tab = visit(demo_pages[name], viewport={"width": 390, "height": SCREEN})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.locator("nav").evaluate("node => node.scrollWidth <= node.clientWidth")
    assert tab.locator("nav").bounding_box()["height"] < 60  # one line
    tab.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    assert "`" not in tab.locator("body").inner_text()


def test_folds_open_on_paper(visit, demo_pages):
    tab = visit(demo_pages["simclr"], is_folded=True)
    assert not tab.locator("svg.still").first.is_visible()
    tab.emulate_media(media="print")
    for shown in ("svg.still", ".light-table li", "#training svg.chart"):
        assert (tab.locator(shown).first.bounding_box() or {"height": 0})["height"] > 0


def test_folds_open_by_keyboard_and_by_a_link(visit, demo_pages):
    tab = visit(demo_pages["simclr"], is_folded=True)
    fold = tab.locator("#training > details")
    fold.locator("summary").first.focus()
    tab.keyboard.press("Enter")
    assert fold.get_attribute("open") is not None
    tab.get_by_role("link", name="Map", exact=True).click()
    tab.wait_for_function("() => document.querySelector('#map > details').open")


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
    folder = make_run("img src=x onerror=alert(1)")
    attack_everything(folder)
    tab = visit(report(folder))
    dialogs = []
    tab.on("dialog", lambda dialog: dialogs.append(dialog.message))
    assert dialogs == []
    assert tab.complaints == []
    assert tab.evaluate("document.querySelectorAll('img[onerror]').length") == 0
