"""The live page in a real browser: it keeps itself up to date, keeps what was unfolded, and reads without a script."""

import math
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from epochs_written import add_epoch

from counterpoint.core.run_lock import lock_run
from counterpoint.core.rundir import RunFolder
from counterpoint.report.live import live_page
from counterpoint.report.live.live_page import Watched
from counterpoint.report.live.live_server import LiveServer

pytestmark = pytest.mark.thorough
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser driver: install playwright")
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no browser: neither chromium nor google-chrome is installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def run(begin: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch) -> Iterator[RunFolder]:
    monkeypatch.setattr(live_page, "SHARE", math.inf)
    folder = begin(epochs=3)
    with lock_run(folder.path):
        yield folder


@pytest.fixture
def address(run: RunFolder) -> Iterator[str]:
    with LiveServer(Watched(run.path, None)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.address
        server.shutdown()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    contexts = []

    def open_page(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        tab = context.new_page()
        tab.complaints, tab.loads = [], []
        tab.on("console", lambda message: tab.complaints.append(message.text))
        tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.on("load", lambda: tab.loads.append(1))
        tab.goto(address)
        return tab

    yield open_page
    for context in contexts:
        context.close()


def test_it_follows_the_run_without_loading_again(visit: Callable[..., Any], run: RunFolder) -> None:
    tab = visit()
    tab.locator("#training summary").first.click()
    tab.locator("#training .reading", has_text="After 3 epochs").wait_for()
    add_epoch(run, 4)
    tab.locator("#training .reading", has_text="After 4 epochs").wait_for()
    assert tab.locator("#live-lines").inner_text().startswith("Running: epoch 4 of 10 done")
    assert tab.locator("#training details").first.get_attribute("open") is not None
    assert len(tab.loads) == 1
    assert tab.complaints == []


def test_it_reads_and_renews_itself_without_javascript(visit: Callable[..., Any]) -> None:
    tab = visit(java_script_enabled=False)
    assert tab.locator("#training .reading", has_text="After 3 epochs").is_visible()
    assert tab.locator("svg.chart").first.is_visible()
    assert 'http-equiv="refresh"' in tab.content()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_runs_out_of_the_page(visit: Callable[..., Any], width: int, theme: str) -> None:
    tab = visit(viewport={"width": width, "height": 800}, color_scheme=theme)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.complaints == []


def test_it_says_when_nobody_serves_it_any_more(visit: Callable[..., Any], browser: Any) -> None:
    tab = visit()
    tab.route("**/state.json", lambda route: route.abort())
    tab.get_by_text("counterpoint watch does not answer any more").wait_for()
    assert tab.locator("#live").get_attribute("class") == "live state-lost"
