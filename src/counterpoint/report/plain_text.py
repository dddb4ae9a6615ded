"""Text from outside made fit to print: paths lose their folders, length is bounded."""

import re

MAX_CHARACTERS = 300
ROOT = r"(?:file:/*(?=/)|)(?:~?/(?!/)|[A-Za-z]:[\\/]|\\\\)"
WHOLE_PATH = re.compile(rf"^{ROOT}[^\"'<>|]*$")
QUOTED_PATH = re.compile(rf"(?P<before>[\"'])(?P<path>{ROOT}[^\"'<>|]+)(?=[\"'])")
BARE_PATH = re.compile(rf"(?P<before>^|[\s\"'=(\[{{,;:|])(?P<path>{ROOT}[^\s\"'=)\]}},;|<>]+)")


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
    if WHOLE_PATH.match(text) and len(text) > 1:
        return _last_part(text)
    text = QUOTED_PATH.sub(_keep_last_part, text)
    return BARE_PATH.sub(_keep_last_part, text)


def _keep_last_part(match: re.Match[str]) -> str:
    return match["before"] + _last_part(match["path"])


def _last_part(path: str) -> str:
    """Name the file or folder a path ends in."""
    return "…/" + re.split(r"[\\/]", path.rstrip("\\/"))[-1]
