"""Text and tables for a terminal, a page and Markdown: names of files and classes come from outside, and hold anything.

In a table no cell ends its column; as text in Markdown a name begins no link and no markup.
"""

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

# Control characters drive the terminal (colours, titles, the clipboard), direction overrides turn a name around, others
# are unseen or end a line; surrogates are bytes that are not UTF-8. Joiners stay: scripts and emoji use them.
_UNSHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)

MAX_CHARACTERS = 300
WIDTH = 100  # columns of what verbs print
# Beginning of an absolute path: / or ~/, but not // as in https://; C:\ or C:/; \\server; each also after file:.
ROOT = r"(?:file:/*(?=/)|)(?:~?/(?!/)|[A-Za-z]:[\\/]|\\\\)"
# A whole text and a quoted part may hold spaces; a bare path ends at the first, and at what encloses it.
WHOLE_PATH = re.compile(rf"^(?P<before>)(?P<path>{ROOT}[^\"'<>|]*)$")
QUOTED_PATH = re.compile(rf"(?P<before>[\"'])(?P<path>{ROOT}[^\"'<>|]+)(?=[\"'])")
BARE_PATH = re.compile(rf"(?P<before>^|[\s\"'=(\[{{,;:|])(?P<path>{ROOT}[^\s\"'=)\]}},;|<>]+)")


def shown(text: object) -> str:
    r"""Text as one line, in which characters that a terminal would obey or hide are written as in a Python text.

    >>> print(shown("a\nb"), shown("\x1b[31mred"), shown("caf\udce9.png"), shown("Grüße 👩‍🔬"))
    a\nb \x1b[31mred caf\xe9.png Grüße 👩‍🔬
    """
    return _UNSHOWN.sub(_escaped, str(text))


def shown_lines(text: object) -> str:
    r"""Apply ``shown`` to each line of a text whose line ends are ours.

    >>> print(shown_lines("a\tb\nc"))
    a\tb
    c
    """
    return "\n".join(map(shown, str(text).split("\n")))


def printable(text: str) -> str:
    """Hide the folders of absolute paths and bound the length.

    >>> printable("counterpoint train /vol/ada/photos --out=/vol/x")
    'counterpoint train …/photos --out=…/x'
    >>> printable("loss 1/2, see https://example.org/a")
    'loss 1/2, see https://example.org/a'
    """
    shortened = hide_folders(text)
    return shortened if len(shortened) <= MAX_CHARACTERS else shortened[: MAX_CHARACTERS - 1] + "…"


def hide_folders(text: str) -> str:
    """Replace every absolute path by ``…/`` and its last part; relative paths stay.

    >>> hide_folders("/vol/ada/My Photos/cat 1.jpg")
    '…/cat 1.jpg'
    """
    if (whole := WHOLE_PATH.match(text)) and len(text) > 1:  # a lone slash is punctuation
        return _keep_last_part(whole)
    # Quoted first: a bare match would end at the first space of a quoted path.
    text = QUOTED_PATH.sub(_keep_last_part, text)
    return BARE_PATH.sub(_keep_last_part, text)


def _escaped(match: re.Match[str]) -> str:
    letter = match[0]
    is_byte = "\udc80" <= letter <= "\udcff"  # of a name that is no UTF-8, as `os.fsdecode` keeps it
    return f"\\x{ord(letter) - 0xDC00:02x}" if is_byte else letter.encode("unicode_escape").decode()


def _keep_last_part(match: re.Match[str]) -> str:
    return match["before"] + "…/" + re.split(r"[\\/]", match["path"].rstrip("\\/"))[-1]


# A bar means something in tables alone, and `TextTable` escapes it; :// makes a link of the text around it.
_ACTIVE = re.compile(r"([\\`*_\[\]<>#&~$]|:(?=//))")


@dataclass(frozen=True)
class TextTable:
    r"""A table for people: one record, printed and written in every form that is asked for.

    Attributes:
        head: titles of the columns.
        rows: cells, which may come from outside.
        sides: ``l`` or ``r`` for each column, the side on which its cells are aligned.

    >>> table = TextTable(["name", "share"], [["<b>a|b", "50%"]], "lr")
    >>> print(table)
    name    share
    <b>a|b    50%
    >>> print(table.to_markdown())
    | name | share |
    |---|---:|
    | \<b\>a\|b | 50% |
    >>> table.to_csv()
    'name,share\n<b>a|b,50%\n'
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    sides: str

    @property
    def lines(self) -> list[str]:
        """Lines for a terminal, the titles first: each column is as wide as its longest cell."""
        cells = [list(map(shown, row)) for row in (self.head, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        fill = {"l": str.ljust, "r": str.rjust}
        return [
            "  ".join(
                fill[side](cell, width) for cell, width, side in zip(row, widths, self.sides, strict=True)
            ).rstrip()
            for row in cells
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def to_markdown(self, *, is_markdown: bool = False) -> str:
        """Markdown without a line end behind it.

        Args:
            is_markdown: titles and cells are Markdown already; else they are text, of which no markup is made.
        """
        rule = "".join("---:|" if side == "r" else "---|" for side in self.sides)
        first, *others = [row if is_markdown else list(map(in_markdown, row)) for row in (self.head, *self.rows)]
        return "\n".join([_markdown_line(first), f"|{rule}", *map(_markdown_line, others)])

    def to_csv(self) -> str:
        """Comma-separated values, the titles first."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue()

    def _repr_html_(self) -> str:
        head, *rows = (
            "".join(f"<{tag}>{html.escape(shown(cell))}</{tag}>" for cell in row)
            for tag, row in [("th", self.head), *(("td", row) for row in self.rows)]
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody><tr>{'</tr><tr>'.join(rows)}</tr></tbody></table>"


class Printed:
    """A record that a notebook shows as it is printed: as text, in columns."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(shown_lines(self))}</pre>"


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
