"""The frame of a page about theory: title and sections; no script at all."""

from collections.abc import Sequence
from pathlib import Path

from counterpoint.core.markup import Markup
from counterpoint.report.document import PageKind, Part, check_target, document, plain_header

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
    return document(THEORY_PAGE, f"Counterpoint: {title}", plain_header(brand, title, facts), sections)


def check_theory_target(target: Path) -> None:
    """Refuse to replace anything but an earlier page about theory."""
    check_target(THEORY_PAGE, target)
