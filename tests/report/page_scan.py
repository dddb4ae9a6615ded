"""Reads a written page as a browser would, for tests that need no browser."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

VOID = {"br", "col", "hr", "img", "input", "link", "meta"}


class PageScan(HTMLParser):
    """Elements in order, visible text, and whether tags close in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.open, self.raw = "", [], {"script": "", "style": ""}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]] += data
        else:
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of all elements with a tag."""
        return [attributes for name, attributes in self.elements if name == tag]


def scan(path: Path) -> PageScan:
    """Scan a page and check what must hold for every page."""
    page = path.read_text(encoding="utf-8")
    found = PageScan(page)
    assert len(page.encode()) <= 8_000_000
    _check_sealed(found)
    _check_drawings(page)
    assert not re.search(r"\b(nan|NaN|inf|Infinity|None|undefined)\b", found.text)
    identifiers = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))  # no level is left out
    links = [attributes["href"] for attributes in found.named("a")]
    assert all(link and link.startswith("#") and link[1:] in identifiers for link in links)
    return found


def scan_without_script(page: str) -> PageScan:
    """Read a page, and check that it asks for nothing and runs nothing."""
    found = PageScan(page)
    _check_sealed(found)
    _check_drawings(page)
    assert "script-src 'none'" in _policy(found)
    assert found.named("script") == []
    assert all((image["src"] or "").startswith("data:image/svg+xml;base64,") for image in found.named("img"))
    assert not re.search(r"\b(nan|None|undefined)\b", found.text)
    return found


def _policy(found: PageScan) -> str:
    metas = found.named("meta")
    return next(each["content"] for each in metas if each.get("http-equiv") == "Content-Security-Policy") or ""


def _check_sealed(found: PageScan) -> None:
    """No request, no inline style or handler, and a policy whose hashes match the content."""
    policy = _policy(found)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    for directive, content in (("style-src", found.raw["style"]), ("script-src", found.raw["script"])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert not content or f"{directive} 'sha256-{digest}'" in policy
    for _, attributes in found.elements:
        assert not any(name == "style" or name.startswith("on") for name in attributes)
        assert all((attributes.get(name) or "data:").startswith("data:") for name in ("src", "srcset", "xlink:href"))
    assert all((attributes["href"] or "").startswith("data:") for attributes in found.named("link"))


def _check_drawings(page: str) -> None:
    """Every drawing has a role, a title and a description."""
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert 'role="img"' in drawing
        assert re.match(r"<svg[^>]*><title>[^<]+</title><desc>[^<]+</desc>", drawing)
