"""Text as a terminal or a page may show it: names of files and classes come from outside, and may hold anything."""

import html
import re

# Control characters drive the terminal (colours, titles, the clipboard), direction overrides turn a name around, others
# are unseen or end a line; surrogates are bytes that are not UTF-8. Joiners stay: scripts and emoji use them.
_UNSHOWN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)

MAX_CHARACTERS = 300
# Where an absolute path begins: / or ~/, but not // as in https://; C:\ or C:/; \\server; each also after file:.
ROOT = r"(?:file:/*(?=/)|)(?:~?/(?!/)|[A-Za-z]:[\\/]|\\\\)"
# A whole text and a quoted part may hold spaces; a bare path ends at the first, and at what encloses it.
WHOLE_PATH = re.compile(rf"^{ROOT}[^\"'<>|]*$")
QUOTED_PATH = re.compile(rf"(?P<before>[\"'])(?P<path>{ROOT}[^\"'<>|]+)(?=[\"'])")
BARE_PATH = re.compile(rf"(?P<before>^|[\s\"'=(\[{{,;:|])(?P<path>{ROOT}[^\s\"'=)\]}},;|<>]+)")


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


def preformatted(text: object) -> str:
    """A record as a notebook shows it: its text, in columns.

    >>> preformatted("a  <b>")
    '<pre>a  &lt;b&gt;</pre>'
    """
    return f"<pre>{html.escape(shown_lines(text))}</pre>"


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
    if WHOLE_PATH.match(text) and len(text) > 1:  # a lone slash is punctuation
        return _last_part(text)
    # Quoted first: a bare match would end at the first space of a quoted path.
    text = QUOTED_PATH.sub(_keep_last_part, text)
    return BARE_PATH.sub(_keep_last_part, text)


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    is_byte = "\udc80" <= letter <= "\udcff"  # of a name that is no UTF-8, as `os.fsdecode` keeps it
    return f"\\x{ord(letter) - 0xDC00:02x}" if is_byte else letter.encode("unicode_escape").decode()


def _keep_last_part(match: re.Match[str]) -> str:
    return match["before"] + _last_part(match["path"])


def _last_part(path: str) -> str:
    return "…/" + re.split(r"[\\/]", path.rstrip("\\/"))[-1]
