"""The frame of a page about theory: title and sections; no script at all."""

from collections.abc import Sequence
from pathlib import Path

from counterpoint.report.document import PageKind, Part, check_target, document
from counterpoint.report.markup import Markup, element

THEORY_PAGE = PageKind(
    "page about theory",
    "geometry.html",
    Markup('<meta name="generator" content="counterpoint theory">'),
    styles=("style.css", "theory_style.css"),
)
TheorySection = Part


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
    header = element(
        "header",
        element("p", brand, class_="brand"),
        element("h1", element("bdi", title)),
        element("p", facts, class_="facts"),
        class_="masthead",
    )
    return document(THEORY_PAGE, f"Counterpoint: {title}", header, sections)


def check_theory_target(target: Path) -> None:
    """Refuse to replace anything but an earlier page about theory."""
    check_target(THEORY_PAGE, target)
