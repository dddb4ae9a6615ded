"""The documentation site builds without a warning, has every page, and its pages load nothing from elsewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parent.parent
pytest.importorskip("sphinx_gallery", reason="the site needs the extra docs")
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build_site.py"), str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


class Tags(HTMLParser):
    """Collects what a page loads, where it links to, and what in it can be linked to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag in LOADING and LOADING[tag] in given:
            self.loaded.append(given[LOADING[tag]])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(given["href"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


def pages_of(site: Path) -> Iterator[tuple[Path, Tags]]:
    """Each page with what is in it."""
    for page in sorted(site.rglob("*.html")):
        yield page, Tags(page)


@pytest.mark.thorough
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = dict(pages_of(site))
    assert len(pages) > 160
    for page, tags in pages.items():
        assert [source for source in tags.loaded if re.match(r"(\w+:)?//", source)] == [], page.name
        for link in tags.links:
            check_link(link, page, pages)
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"@import|url\(['\"]?(?:https?:)?//", text) == [], sheet.name
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert len(index) > 50_000
    assert "minority" in index


def check_link(link: str, page: Path, pages: dict[Path, Tags]) -> None:
    """A link within the site leads to a file, and its anchor to a place in it."""
    if re.match(r"\w+:", link):
        return
    target, anchor = urldefrag(link)
    there = (page.parent / unquote(target)).resolve() if target else page
    assert there.exists(), f"{page.name}: {link}"
    is_generated = "_modules" in there.parts or page.name in ("search.html", "genindex.html")
    if anchor and there in pages and not is_generated:
        assert unquote(anchor) in pages[there].anchors, f"{page.name}: {link}"


@pytest.mark.thorough
def test_every_public_name_and_every_example_has_its_place(site: Path) -> None:
    import counterpoint  # deferred: only here

    anchors = {anchor for _, tags in pages_of(site) for anchor in tags.anchors}
    for module in (counterpoint, counterpoint.losses, counterpoint.theory):
        prefix = module.__name__
        public = [name for name in module.__all__ if callable(getattr(module, name))]
        assert [name for name in public if f"{prefix}.{name}" not in anchors] == [], prefix
    for example in (ROOT / "examples").glob("*.py"):
        assert (site / "gallery" / f"{example.stem}.html").exists(), example.name
        assert (
            "sphx-glr-script-out" in (site / "gallery" / f"{example.stem}.html").read_text()
            or "<img" in (site / "gallery" / f"{example.stem}.html").read_text()
        ), example.name


@pytest.mark.thorough
def test_pages_made_from_records_are_there_and_pictures_of_the_gallery_differ(site: Path) -> None:
    for page in ("settings", "verbs/train", "losses/infonce", "metrics/knn", "metrics/uniformity"):
        assert (site / "reference" / f"{page}.html").exists(), page
    thumbnails = [path.read_bytes() for path in (site / "_images").glob("sphx_glr_*_thumb.*")]
    assert len(set(thumbnails)) == len(thumbnails) >= len(list((ROOT / "examples").glob("*.py")))


def test_a_foreign_script_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text('<script src="https://example.org/a.js"></script><a href="b.html#c">d</a>', encoding="utf-8")
    assert Tags(page).loaded == ["https://example.org/a.js"]
    with pytest.raises(AssertionError, match=r"b\.html"):
        check_link("b.html#c", page, {})
