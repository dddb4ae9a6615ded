"""The four levels of a verdict or finding: a word, a sign and a colour, always together."""

from typing import cast

from counterpoint.diagnostics.findings import Level
from counterpoint.report.markup import Markup, element

LEVELS = ("severe", "warning", "note", "good")  # worst first
GLYPHS = {"severe": "✕", "warning": "!", "note": "i", "good": "✓"}


def known_level(level: str) -> Level:
    """Read an unknown level as a note.

    >>> known_level("severe"), known_level("odd")
    ('severe', 'note')
    """
    return cast(Level, level) if level in LEVELS else "note"


def badge(level: str) -> Markup:
    """Show a level."""
    known = known_level(level)
    glyph = element("span", GLYPHS[known], class_="glyph", aria_hidden="true")
    return element("span", glyph, known.capitalize(), class_=f"badge level-{known}")


def severity(level: str) -> int:
    """Order levels, worst first."""
    return LEVELS.index(known_level(level))
