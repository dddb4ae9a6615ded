"""One thing that a check found, with its level, its figure beside a reference, and what to try."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from counterpoint.core.run_records import Figure, Record
from counterpoint.diagnostics.evidence import Evidence

Level = Literal["good", "note", "warning", "severe"]
LEVELS: tuple[Level, ...] = ("good", "note", "warning", "severe")


def known_level(level: Any) -> Any:
    """Read an unknown level as a note.

    >>> known_level("severe"), known_level("odd")
    ('severe', 'note')
    """
    return level if level in LEVELS else "note"


class Finding(Record):
    """One thing that was found.

    Attributes:
        name: its code, as in ``findings.CATALOGUE``.
        level: how bad it is.
        title: what was found, in one sentence.
        measured: the figure that decides.
        low: lower end of its 95 % interval; None where it has none.
        high: upper end.
        better: which way the figure gets better.
        reference: what it is compared with.
        reference_name: what that is, in words.
        text: the mechanism, in two sentences.
        confirm: one cheap test that would confirm it, with its command.
        remedy: what to change.
        changes: the settings that the first remedy changes, for ``diagnose --fix``: path to value, as in a config.
        expect: which figure this improves, and how.
        cannot_tell: what this finding leaves open.
    """

    name: str = ""
    level: Annotated[Level, BeforeValidator(known_level)] = "note"
    title: str = ""
    measured: Figure = None
    low: Figure = None
    high: Figure = None
    better: Literal["higher", "lower", ""] = ""
    reference: Figure = None
    reference_name: str = ""
    text: str = ""
    confirm: str = ""
    remedy: str = ""
    changes: Mapping[str, Any] = Field(default_factory=dict)
    expect: str = ""
    cannot_tell: str = ""

    @property
    def details(self) -> list[str]:
        """What follows the title where it is printed, line by line."""
        ends = f" (95 % interval {self.low:.3g} to {self.high:.3g})" if None not in (self.low, self.high) else ""
        beside = f"; {self.reference_name}: {self.reference:.3g}" if self.reference is not None else ""
        parts = {
            "measured": "" if self.measured is None else f"{self.measured:.3g}{ends}{beside}",
            "why": self.text,
            "test": self.confirm,
            "try": self.remedy,
            "expect": self.expect,
            "open": self.cannot_tell,
        }
        return [f"{name}: {words}" for name, words in parts.items() if words]


Check = Callable[[Evidence], Finding | None]


def plain(cosine: float) -> str:
    """Two decimals, without a minus before zero.

    >>> plain(-0.001)
    '0.00'
    """
    return f"{round(cosine, 2) + 0.0:.2f}"
