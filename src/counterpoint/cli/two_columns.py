"""Names and a sentence for each, in two columns that fit the terminal."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence

HELP_WIDTH = 78  # where a text is read on any terminal
UNLIMITED = 10_000  # columns of what is read by other programs: one line for each name
NARROWEST = 30  # columns that a sentence always has


def terminal_width() -> int:
    """Columns of the terminal, or of ``COLUMNS``; without either, lines are not broken."""
    return shutil.get_terminal_size((UNLIMITED, 0)).columns


def two_columns(rows: Mapping[str, str], width: int) -> Sequence[str]:
    r"""Lines with the names on the left and their sentences beside them.

    >>> print(*two_columns({"one": "first", "three": "the third of all of them here"}, 38), sep="\n")
      one    first
      three  the third of all of them
             here
    """
    first = max(map(len, rows)) + 4
    lines = []
    for name, sentence in rows.items():
        broken = textwrap.wrap(sentence, max(NARROWEST, width - first), break_long_words=False, break_on_hyphens=False)
        lines.append(f"  {name:<{first - 2}}{broken[0]}")
        lines += [" " * first + line for line in broken[1:]]
    return lines
