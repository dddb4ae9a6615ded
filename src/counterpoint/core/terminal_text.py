"""Text as a terminal may show it: names of files and classes come from outside, and may hold anything."""

import re

# Control characters drive the terminal (colours, titles, the clipboard), direction overrides turn a name around, others
# are unseen or end a line; surrogates are bytes that are not UTF-8. Joiners stay: scripts and emoji use them.
_UNSHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def shown(text: object) -> str:
    r"""One line, in which what a terminal would obey or hide is written as in a Python text.

    >>> print(shown("a\nb"), shown("\x1b[31mred"), shown("caf\udce9.png"), shown("Grüße 👩‍🔬"))
    a\nb \x1b[31mred caf\xe9.png Grüße 👩‍🔬
    """
    return _UNSHOWN.sub(_escaped, str(text))


def shown_lines(text: object) -> str:
    r"""The same for a text of several lines, each of which is ours.

    >>> print(shown_lines("a\tb\nc"))
    a\tb
    c
    """
    return "\n".join(map(shown, str(text).split("\n")))


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    is_byte = "\udc80" <= letter <= "\udcff"  # of a name that is no UTF-8, as `os.fsdecode` keeps it
    return f"\\x{ord(letter) - 0xDC00:02x}" if is_byte else letter.encode("unicode_escape").decode()
