"""The frame of a page about theory: head with its content policy, title, sections; no script at all."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from counterpoint.core.errors import RunError
from counterpoint.report.document import ICON, content_hash
from counterpoint.report.markup import Child, Markup, element, join

THEORY_GENERATOR = Markup('<meta name="generator" content="counterpoint theory">')
STYLE_SHEETS = ("style.css", "theory_style.css")


@dataclass(frozen=True)
class TheorySection:
    """One section: its anchor, short title and question, and its content."""

    name: str
    title: str
    question: str
    content: Child


def theory_document(brand: str, title: str, facts: str, sections: Sequence[TheorySection]) -> Markup:
    """Assemble a page that reads without a script, without a network, in light and dark.

    Args:
        brand: the line above the title: what made the page.
        title: what it shows.
        facts: the line below the title.
        sections: in their order.

    Returns:
        The HTML document.
    """
    style = Markup("\n".join(_style_sheet(name) for name in STYLE_SHEETS))
    header = element(
        "header",
        element("p", brand, class_="brand"),
        element("h1", element("bdi", title)),
        element("p", facts, class_="facts"),
        class_="masthead",
    )
    main = element("main", [_section(place, item) for place, item in enumerate(sections, start=1)], id="content")
    page = element("html", _head(title, style), element("body", header, main), lang="en")
    return join(Markup("<!DOCTYPE html>\n"), page, "\n")


def check_theory_target(target: Path) -> None:
    """Refuse to replace anything but an earlier page about theory.

    Raises:
        RunError: a folder, or a file that is something else or cannot be read.
    """
    try:
        is_folder, is_other = target.is_dir(), target.exists() and not _is_ours(target)
    except OSError as error:
        raise RunError(f"cannot read {target}: {error.strerror or error}; choose another --out") from error
    if is_folder:
        raise RunError(f"{target} is a folder; give the page a file name, such as {target / 'geometry.html'}")
    if is_other:
        raise RunError(f"{target} exists and is not such a page, so it stays as it is; choose another --out")


def _is_ours(target: Path) -> bool:
    """Whether something is an earlier page about theory."""
    if not target.is_file():
        return False
    with target.open("rb") as stream:
        return THEORY_GENERATOR.encode() in stream.read(4096)


def _head(title: str, style: Markup) -> Markup:
    """Write the head: the policy that forbids every request and every script stands before anything it governs."""
    policy = (
        f"default-src 'none'; img-src data:; style-src '{content_hash(style)}'; script-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )
    icon = base64.b64encode(ICON.encode()).decode("ascii")
    return element(
        "head",
        element("meta", charset="utf-8"),
        THEORY_GENERATOR,
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"Counterpoint: {title}"),
        element("link", rel="icon", href=f"data:image/svg+xml;base64,{icon}"),
        element("style", style),
    )


def _section(place: int, item: TheorySection) -> Markup:
    """Write one section under its number and question."""
    kicker = element("span", f"{place} · {item.title}", class_="kicker")
    heading = element("h2", kicker, " ", item.question, id=f"{item.name}-title")
    return element("section", heading, item.content, id=item.name, aria_labelledby=f"{item.name}-title")


def _style_sheet(name: str) -> str:
    """Read a style sheet of this package."""
    content = resources.files("counterpoint.report").joinpath(name).read_text(encoding="utf-8")
    assert "</" not in content  # it would end the element that holds it
    return content
