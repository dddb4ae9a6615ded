"""Sections of a run's page: a module ``<name>_section`` that ends with ``SECTION`` is one; nothing else names it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from counterpoint.core.catalogues import loaded
from counterpoint.report.markup import Markup
from counterpoint.report.run_reading import RunRecord

Fill = Callable[[Sequence[RunRecord]], Markup]


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes:
        place: number that orders the sections; they are shown in ascending order.
        name: anchor of the section on the page.
        title: title of the section in the navigation.
        question: the question that it answers; its heading.
        fill: function that makes the content of the section.
        answer: the answer of a run in a few words, empty without an answer; None for a section that does not fold.
        opens: function that tells whether it says something of a run to be seen at once; None if it never does.
        smaller: contents of fewer bytes, tried one after the other while the page is too large.
    """

    place: int
    name: str
    title: str
    question: str
    fill: Fill
    answer: Callable[[RunRecord], str] | None = None
    opens: Callable[[RunRecord], bool] | None = None
    smaller: Sequence[Fill] = ()


@cache
def all_sections() -> tuple[Section, ...]:
    """The sections of this folder in their order."""
    return tuple(sorted(loaded("report/sections", "SECTION"), key=lambda section: section.place))
