"""Cells of a CSV table that a spreadsheet takes for text, whatever they begin with."""

import re

# What makes a spreadsheet run a cell: a sign, also in full width, at its start or behind what may end a cell elsewhere
# (a line end, a tab, a semicolon), blanks and quotes of our own before it or not. A quote in front makes it text.
_START, _SIGN = r"(?:^|(?<=[\r\n\t;,|]))", r"(?='*[^\S\r\n\t]*[=+\-@＝＋－＠\t\r])"
_RUNNABLE, _QUOTED = re.compile(_START + _SIGN), re.compile(_START + "'" + _SIGN)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")


def as_cell(text: str) -> str:
    """Text with a quote in front of what a spreadsheet would take for a formula; numbers stay.

    >>> as_cell("=1+1"), as_cell("-2.5"), as_cell("cat")
    ("'=1+1", '-2.5', 'cat')
    """
    return text if _NUMBER.fullmatch(text) else _RUNNABLE.sub("'", text)


def from_cell(cell: str) -> str:
    """What ``as_cell`` was given; only quotes that it could have set are taken away: 'tis stays."""
    return _QUOTED.sub("", cell)
