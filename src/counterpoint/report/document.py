"""One HTML document that needs nothing else, no network and no server: head with its content policy, sections."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from counterpoint.core.errors import RunError
from counterpoint.core.files import write_text
from counterpoint.report.markup import Child, Markup, element, join

# Two crossing lines, in the blue and the vermilion of Okabe and Ito's palette.
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<g fill="none" stroke-width="2.4" stroke-linecap="round">
<path stroke="#0072B2" d="M2 10c4-9 8 3 12-6"/><path stroke="#D55E00" d="M2 6c4 9 8-3 12 6"/>
</g></svg>"""


@dataclass(frozen=True)
class PageSection:
    """One section of a document.

    Attributes:
        name: anchor of the section on the page.
        title: title of the section in the navigation.
        question: the question that it answers; its heading.
        content: content of the section.
        answer: the answer in a few words, beside the question of a section that folds.
        is_open: whether a section that folds is open at first; None for one that does not fold.
    """

    name: str
    title: str
    question: str
    content: Child
    answer: Child = ""
    is_open: bool | None = None


@dataclass(frozen=True)
class PageKind:
    """The properties that all pages of one kind share.

    Attributes:
        name: the name of such a page.
        example: a file name for such a page.
        generator: the tag by which an earlier page is recognised.
        styles: style sheets: names of this package, or absolute paths of others.
        scripts: scripts of this package, run in their order; without one, the page's policy forbids any.
    """

    name: str
    example: str
    generator: Markup
    styles: Sequence[str | Path] = ("style.css",)
    scripts: Sequence[str] = ()


def document(kind: PageKind, title: str, top: Child, parts: Sequence[PageSection]) -> Markup:
    """Assemble a document that reads without a script, without a network, in light and dark.

    Args:
        kind: the kind of page, with its styles and scripts.
        title: the title of the browser's window.
        top: the content above the sections.
        parts: the sections, in their order.

    Returns:
        The HTML document.
    """
    script = Markup("\n".join(map(_asset, kind.scripts))) if kind.scripts else None
    main = element("main", [_section(part) for part in parts], id="content")
    body = element("body", top, main, None if script is None else element("script", script))
    return join(Markup("<!DOCTYPE html>\n"), element("html", _head(kind, title, script), body, lang="en"), "\n")


def plain_header(brand: str, title: str, facts: str) -> Markup:
    """Build the part above the sections of a page without a script.

    Args:
        brand: the line above the title: what made the page.
        title: the title of the page.
        facts: the line below the title.
    """
    return element(
        "header",
        element("p", brand, class_="brand"),
        element("h1", element("bdi", title)),
        element("p", facts, class_="facts"),
        class_="masthead",
    )


def write_page(target: Path, page: Markup) -> Path:
    """Write a page to a place that was checked, and return the place."""
    write_text(target, page)
    return target


def check_target(kind: PageKind, target: Path) -> None:
    """Refuse to replace anything but an earlier page of the same kind.

    Raises:
        RunError: a folder, or a file that is something else or cannot be read.
    """
    try:
        is_folder, is_other = target.is_dir(), target.exists()
        if target.is_file():  # a device or a pipe is not ours, and reading it might not end
            with target.open("rb") as stream:
                # The tag is within the first lines of the head; a large foreign file need not be read.
                is_other = kind.generator.encode() not in stream.read(4096)
    except OSError as error:
        raise RunError(f"cannot read {target}: {error.strerror or error}; choose another --out") from error
    if is_folder:
        raise RunError(f"{target} is a folder; give the {kind.name} a file name, such as {target / kind.example}")
    if is_other:
        raise RunError(f"{target} exists and is not a {kind.name}, so it stays as it is; choose another --out")


def _content_hash(content: str) -> str:
    """Hash inline content as a content security policy wants it."""
    return f"sha256-{_base64(hashlib.sha256(content.encode()).digest())}"


def _head(kind: PageKind, title: str, script: Markup | None) -> Markup:
    """Write the head: the policy that forbids every request comes before anything that it governs."""
    # Hashes hold for exactly these characters: the hashed text must equal the text between the tags.
    style = Markup("\n".join(_asset(name) for name in kind.styles))
    scripts = "none" if script is None else _content_hash(script)
    # Hashes instead of 'unsafe-inline': text that became markup by mistake could still run and style nothing.
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_content_hash(style)}'; script-src '{scripts}'; "
        # Neither falls back to default-src.
        "base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        # The charset first: a browser looks for it in the first 1024 bytes only.
        element("meta", charset="utf-8"),
        kind.generator,
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("link", rel="icon", href=f"data:image/svg+xml;base64,{_base64(ICON.encode())}"),
        element("style", style),
    )


def _section(part: PageSection) -> Markup:
    content: Child = [element("h2", part.question, id=f"{part.name}-title"), part.content]
    if part.is_open is not None:
        summary = element("summary", content[0], " ", element("span", part.answer, class_="answer"))
        content = element("details", summary, element("div", part.content), class_="fold", open=part.is_open)
    return element("section", content, id=part.name, aria_labelledby=f"{part.name}-title")


def _asset(name: str | Path) -> Markup:
    content = resources.files("counterpoint.report").joinpath(name).read_text(encoding="utf-8")
    assert "</" not in content  # it would end the element that holds it
    return Markup(content)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
