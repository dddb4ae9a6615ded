"""Tables for a terminal and as Markdown, whose cells end no column.

Names of data and classes may hold anything: as text in Markdown they begin no link and no markup.
"""

import re
from collections.abc import Iterable, Sequence

from counterpoint.core.terminal_text import printable, shown

# A bar means something in tables alone, and `markdown_table` escapes it; :// makes a link of the text around it.
_ACTIVE = re.compile(r"([\\`*_\[\]<>#&~$]|:(?=//))")


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Lines for a terminal: each column is as wide as its longest cell.

    Args:
        rows: cells, the titles first.
        sides: as those of ``markdown_table``.

    >>> aligned([["name", "share"], ["cat", "50%"]], "lr")
    ['name  share', 'cat     50%']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    fill = {"l": str.ljust, "r": str.rjust}
    return [
        "  ".join(fill[side](cell, width) for cell, width, side in zip(row, widths, sides, strict=True)).rstrip()
        for row in rows
    ]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], sides: str, *, is_markdown: bool = False) -> str:
    r"""A table without a line end behind it.

    Args:
        head: titles.
        rows: cells.
        sides: ``l`` or ``r`` for each column, the side on which its cells are aligned.
        is_markdown: titles and cells are Markdown already; else they are text that may come from outside.

    >>> print(markdown_table(["name", "share"], [["<b>a|b", "50%"]], "lr"))
    | name | share |
    |---|---:|
    | \<b\>a\|b | 50% |
    """
    rule = "".join("---:|" if side == "r" else "---|" for side in sides)
    first, *others = [cells if is_markdown else list(map(in_markdown, cells)) for cells in (head, *rows)]
    return "\n".join([_markdown_line(first), f"|{rule}", *map(_markdown_line, others)])


def in_markdown(text: str) -> str:
    r"""Text from outside in Markdown: a reader sees it as it is, and it begins no link, no markup and no HTML.

    >>> print(in_markdown("a_b <img> [x](y)"))
    a\_b \<img\> \[x\](y)
    """
    return _ACTIVE.sub(r"\\\1", shown(text))


def as_text(text: str) -> str:
    r"""Text from outside in Markdown that is given away: it has a bounded length, and paths lose their folders.

    >>> print(as_text("/vol/ada/a_b"))
    …/a\_b
    """
    return in_markdown(printable(text))


def as_code(text: str) -> str:
    """Text from outside as code in Markdown, between more backticks than it has in a row.

    >>> as_code("a`b"), as_code("`")
    ('``a`b``', '`` ` ``')
    """
    code = shown(printable(text))
    fence = "`" * (1 + max(map(len, re.findall("`+", code)), default=0))
    pad = " " if code.startswith("`") or code.endswith("`") else ""
    return f"{fence}{pad}{code}{pad}{fence}"


def _markdown_line(cells: Sequence[str]) -> str:
    """One line, in which no cell ends its column."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
