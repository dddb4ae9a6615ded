"""Map, search, light table and comparison in a real browser: by pointer, by keyboard, on paper, without a script."""

import numpy as np
import pytest
from run_folders import dense_embedding, sparse_embedding, toy_samples
from test_map_section import with_samples
from test_report_browser import REST, box_at_rest, browser, visit  # noqa: F401  (fixtures)

from counterpoint.report.reporting import report

pytestmark = pytest.mark.thorough

DRAWN = "document.querySelector('canvas').toDataURL()"
CONTRAST = """() => {
    const parse = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
        .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const node of document.querySelectorAll('body *')) {
        const hasText = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        if (!hasText || !node.getClientRects().length || node.closest('title, desc, option')) continue;
        const style = getComputedStyle(node);
        const text = parse(node.closest('svg') ? style.fill : style.color);
        const [a, b] = [light(text), light(ground(node))].sort((one, other) => other - one);
        const least = node.matches('.sign, .sign *') ? 3 : 4.5;  // signs are marks, with their word beside them
        found.push([(a + 0.05) / (b + 0.05) / least, node.outerHTML.slice(0, 90)]);
    }
    return found;
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page about one run and one about two of the same samples."""
    toy, place = toy_samples(80, kind="colour"), tmp_path_factory.mktemp("pages")
    toy.names[5] = '<b>odd</b> "name" & 写真.png'
    runs = [
        with_samples(place / "one", toy, sparse_embedding(toy)),
        with_samples(place / "two", toy, dense_embedding(toy), method="simclr"),
    ]
    return report(runs[0], quiet=True), report(runs, quiet=True)


def settle(tab) -> None:
    """Wait until what was asked for is drawn."""
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def drawn(tab) -> str:
    settle(tab)
    return tab.evaluate(DRAWN)


def show_all(tab) -> None:
    """Unfold everything, choose a sample and search."""
    for details in tab.locator("details").all():
        details.evaluate("node => { node.open = true }")
    tab.locator("canvas").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.locator("#search").fill("class")
    tab.wait_for_function("() => document.getElementById('found').textContent !== ''")


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_is_asked_for_and_nothing_complains(visit, pages, which):  # noqa: F811
    tab = visit(pages[which])
    tab.locator("canvas").first.hover()
    show_all(tab)
    assert [url for url in tab.requests if not url.startswith("data:")] == [pages[which].as_uri()]
    assert tab.complaints == []


def test_the_sample_under_the_pointer_is_shown(visit, pages):  # noqa: F811
    tab = visit(pages[0])
    canvas = tab.locator("canvas")
    box = box_at_rest(tab, canvas)
    seen = set()
    for x in np.linspace(0.1, 0.9, 15):
        for y in np.linspace(0.1, 0.9, 8):
            tab.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            seen |= set(tab.locator(".map-card .name").all_inner_texts())
    assert len(seen) > 5
    assert seen <= set(toy_samples(80).names) | {'<b>odd</b> "name" & 写真.png'}


def test_the_map_is_used_by_keyboard_and_left_again(visit, pages):  # noqa: F811
    tab = visit(pages[0])
    canvas, card = tab.locator("canvas"), tab.locator(".map-card")
    canvas.focus()
    at_first = drawn(tab)
    tab.keyboard.press("ArrowRight")
    first = card.locator(".name").inner_text()
    assert card.locator("svg.shot").count() == 7  # itself and six neighbours
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft"):
        tab.keyboard.press(key)
    assert card.locator(".name").inner_text() != first
    tab.keyboard.press("Escape")
    assert card.inner_text() == ""
    assert drawn(tab) == at_first
    tab.keyboard.press("+")
    assert drawn(tab) != at_first
    zoomed = drawn(tab)
    tab.keyboard.press("Shift+ArrowLeft")
    assert drawn(tab) != zoomed
    tab.keyboard.press("0")
    assert drawn(tab) == at_first
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.tagName") == "BUTTON"
    tab.keyboard.press("Shift+Tab")
    assert tab.evaluate("document.activeElement.tagName") == "CANVAS"
    outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_buttons_and_wheel_zoom_and_the_page_scrolls_past(visit, pages):  # noqa: F811
    tab = visit(pages[0])
    canvas = tab.locator("canvas")
    at_first = drawn(tab)
    tab.get_by_role("button", name="Zoom in").click()
    assert drawn(tab) != at_first
    tab.get_by_role("button", name="Show all").click()
    assert drawn(tab) == at_first
    box = box_at_rest(tab, canvas)
    tab.mouse.move(box["x"] + 5, box["y"] + 5)
    tab.evaluate("document.activeElement.blur()")
    before = tab.evaluate("scrollY")
    tab.mouse.wheel(0, 120)
    tab.wait_for_function("before => scrollY > before", arg=before)  # the map had no focus
    canvas.focus()
    box = box_at_rest(tab, canvas)  # only now: the wheel's scrolling goes on, and focus scrolls as well
    assert drawn(tab) == at_first
    tab.mouse.move(box["x"] + 5, box["y"] + box["height"] / 2)
    before = tab.evaluate("scrollY")
    tab.mouse.wheel(0, -300)
    tab.wait_for_function(f"at_first => {DRAWN} !== at_first", arg=at_first)
    tab.evaluate(REST)
    assert tab.evaluate("scrollY") == before


def test_search_narrows_maps_and_dimensions(visit, pages):  # noqa: F811
    tab = visit(pages[0])

    def ask(words: str) -> str:
        tab.locator("#found").evaluate("node => { node.textContent = 'waiting' }")
        tab.locator("#search").fill(words)
        tab.wait_for_function("() => document.getElementById('found').textContent !== 'waiting'")
        return tab.locator("#found").inner_text()

    at_first = drawn(tab)
    assert ask("class 2").startswith("20 samples, 4 dimensions")
    assert drawn(tab) != at_first
    assert tab.locator(".light-table li:visible").count() == 4
    assert tab.locator(".hits button").count() == 20
    assert ask("0007").startswith("1 sample,")
    tab.locator(".hits button").click()
    assert tab.locator(".map-card .name").inner_text() == "0007.png"
    assert ask("写真").startswith("1 sample,")
    assert tab.locator(".hits b").count() == 0  # text, not markup
    assert ask("dimension 3").endswith(", 1 dimension")
    assert ask("no such thing") == "0 samples, 0 dimensions"
    assert ask("") == ""
    assert tab.locator(".light-table li:visible").count() == 16


def test_dimensions_are_sorted_and_filtered(visit, pages):  # noqa: F811
    tab = visit(pages[1])
    tables, shown = tab.locator(".light-table"), tab.locator(".light-table li:visible")
    assert tables.count() > 0
    values = "(list, key) => [...list.children].map((item) => Number(item.dataset[key]))"
    for key, sign in (("expected", -1), ("fires", -1), ("purity", -1), ("dim", 1)):
        tab.locator("#dims-sort").select_option(key)
        for table in tables.all():
            found = table.evaluate(values, key)
            assert found == sorted(found, key=lambda value: sign * value)
    for kind in ("named", "silent", "always", "all"):
        tab.locator("#dims-kind").select_option(kind)
        assert (shown.count() > 0) == (kind != "silent"), kind
        assert all(kind in (item.get_attribute("data-kind") or "") or kind == "all" for item in shown.all())
        assert tab.locator("#dims-count").inner_text().startswith(f"{shown.count()} dimension")


def test_colours_and_legend_answer(visit, pages):  # noqa: F811
    tab = visit(pages[0])
    at_first = drawn(tab)
    button = tab.locator("[data-legend=class] button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert drawn(tab) != at_first
    button.click()
    assert drawn(tab) == at_first
    tab.locator("[data-key=colour]").select_option("dimension")
    assert drawn(tab) != at_first
    assert tab.locator("[data-legend=dimension]").is_visible()
    assert not tab.locator("[data-legend=class]").is_visible()


def test_everything_is_there_without_a_script(visit, pages):  # noqa: F811
    tab = visit(pages[1], java_script_enabled=False)
    assert tab.locator("svg.still").count() == 4
    assert tab.locator("svg.still").first.is_visible()
    assert tab.locator(".light-table li").count() == 32
    assert tab.get_by_text("Is it good?").is_visible()
    assert tab.locator("#training svg.chart").first.is_visible()
    for hidden in ("#search", "[data-key=layout]", "#dims-sort", "#theme"):
        assert not tab.locator(hidden).first.is_visible()


def test_on_paper_maps_stand_still_and_controls_are_gone(visit, pages):  # noqa: F811
    tab = visit(pages[0], color_scheme="dark")
    tab.emulate_media(media="print")
    assert tab.locator("svg.still").first.is_visible()
    for hidden in ("canvas", "#search", "#dims-sort", ".hits", "nav"):
        assert not tab.locator(hidden).first.is_visible()
    cut = tab.locator(".light-table").evaluate("node => node.scrollHeight > node.clientHeight + 1")
    assert not cut


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", [0, 1])
def test_all_text_keeps_its_contrast(visit, pages, which, scheme):  # noqa: F811
    """WCAG 2 AA: 4.5 to 1 for text, 3 to 1 for marks, of all that is on the page, opened and with a sample chosen."""
    tab = visit(pages[which], color_scheme=scheme)
    show_all(tab)
    found = tab.evaluate(CONTRAST)
    assert len(found) > 300
    assert [each for each in found if each[0] < 1] == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_runs_out_of_the_page(visit, pages, width):  # noqa: F811
    tab = visit(pages[1], viewport={"width": width, "height": 800})
    show_all(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """width => [...document.querySelectorAll('main *, header *')]
        .filter(node => !node.closest('.scroll') && !node.closest('svg') && node.getClientRects().length)
        .filter(node => node.getBoundingClientRect().right > width + 1).map(node => node.outerHTML.slice(0, 80))"""
    assert tab.evaluate(beyond, width) == []
