"""The result of one check, with its level, its figure beside a reference, and what to try."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from counterpoint.core.schemas import Figure, Listed, Record
from counterpoint.diagnostics.evidence import Evidence
from counterpoint.diagnostics.remedies import TRIED

Level = Literal["good", "note", "warning", "severe"]
LEVELS: tuple[Level, ...] = ("good", "note", "warning", "severe")


class JudgedFact(Record):
    """The result of one check of features or data.

    Attributes:
        level: severity of the result.
        title: sentence that says what was found.
        text: meaning or cause of the result, in two sentences.
        remedy: advice on what to do.
        measured: the figure that decides.
        low: lower end of its 95 % interval; None without an interval.
        high: upper end.
        reference: value to compare it with.
        reference_name: name of that value, in words.
    """

    level: Level = "note"
    title: str = ""
    text: str = ""
    remedy: str = ""
    measured: Figure = None
    low: Figure = None
    high: Figure = None
    reference: Figure = None
    reference_name: str = ""

    @property
    def figure_words(self) -> str:
        """The figure with its interval, beside its reference; empty without one."""
        if self.measured is None:
            return ""
        ends = f" (95 % interval {self.low:.3g} to {self.high:.3g})" if None not in (self.low, self.high) else ""
        beside = f"; {self.reference_name}: {self.reference:.3g}" if self.reference is not None else ""
        return f"{self.measured:.3g}{ends}{beside}"


class Finding(JudgedFact):
    """One finding about features.

    Attributes:
        name: code of the finding, as in ``findings.CATALOGUE``.
        reference: value to compare the figure with; by default 0, as most figures count what should not be there.
        better: direction in which the figure gets better; empty for neither.
        confirm: one cheap test that would confirm it, with its command.
        changes: the settings that the first remedy changes, for ``diagnose --fix``: path to value, as in a config.
        cannot_tell: question that this finding leaves open.
        samples: names of some samples that it is about.
    """

    name: str = ""
    reference: Figure = 0.0
    better: Literal["higher", "lower", ""] = "lower"
    confirm: str = ""
    changes: Mapping[str, Any] = Field(default_factory=dict)
    cannot_tell: str = ""
    samples: Annotated[tuple[str, ...], Listed] = ()

    @property
    def experience(self) -> str:
        """The sentence on what training again with ``changes`` gave after this finding, in runs with known faults."""
        if not self.changes or self.name not in TRIED:
            return ""
        tried, helped, points = TRIED[self.name]
        helped_in = f"kNN and probe rose in {helped} of {tried} trainings with known faults"
        return f"{helped_in}, by {points:+.1f} points on average"

    @property
    def details(self) -> list[str]:
        """The printed lines below the title."""
        parts = {
            "measured": self.figure_words,
            "why": self.text,
            "test": self.confirm,
            "try": self.remedy,
            "tried": self.experience,
            "open": self.cannot_tell,
            "samples": ", ".join(self.samples),
        }
        return [f"{name}: {words}" for name, words in parts.items() if words]


Check = Callable[[Evidence], Finding | None]


def plain(cosine: float) -> str:
    """Format a number with two decimals, without a minus before zero.

    >>> plain(-0.001)
    '0.00'
    """
    return f"{round(cosine, 2) + 0.0:.2f}"
