"""Files of JSON lines that grow, each line sealed with a hash over itself and the line before it.

A byte that changes anywhere, and a line that is lost before the last one, no longer match; a line that a kill tore off
while it was written is the last and has no end.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError
from counterpoint.core.files import finite_or_null, flush_to_disk, write_atomically, write_file
from counterpoint.core.operating_system import open_unlinked
from counterpoint.core.user_files import MAX_TEXT_BYTES, read_regular

KEY = "seal"
SEALED = re.compile(rb'^(\{.*), "seal": "([0-9a-f]{16})"\}$', re.DOTALL)


@dataclass(frozen=True)
class LogLine:
    """One line as it stands in the file, and the values in it without its seal."""

    content: bytes
    values: dict[str, Any]


@dataclass(frozen=True)
class Lines:
    """What a file holds.

    Attributes:
        good: the lines from the first on that match their seals.
        problem: why the line after them does not; empty where all are good but perhaps a last one without an end.
    """

    good: tuple[LogLine, ...]
    problem: str


def append_line(path: Path, values: dict[str, Any]) -> None:
    """Append one sealed line, flushed to disk.

    Raises:
        RunError: the disk refuses, or a link stands there.
    """
    try:
        content = read_regular(path, MAX_TEXT_BYTES) if path.exists() else b""
        before = content.rstrip(b"\n").rpartition(b"\n")[2]
        end = b"" if content.endswith(b"\n") or not content else b"\n"  # of a line that a kill tore off
        body = json.dumps(finite_or_null(values), allow_nan=False).encode()
        line = end + body[:-1] + f', "{KEY}": "'.encode() + _seal(body, before) + b'"}'
        with os.fdopen(open_unlinked(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "wb") as stream:
            stream.write(line + b"\n")
        flush_to_disk(path)  # before the checkpoint that these lines belong to
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def read_lines(path: Path) -> Lines:
    """Read a file of sealed lines; lines without seals, as version 0.1.0 wrote them, may stand before sealed ones.

    Raises:
        RunError: it cannot be read.
    """
    try:
        content = read_regular(path, MAX_TEXT_BYTES) if path.exists() else b""
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None
    *lines, rest = content.split(b"\n")
    good: list[LogLine] = []
    before, must_be_sealed = b"", False
    for number, line in enumerate([*lines, rest] if rest else lines, 1):
        values, problem = _opened(line, before, must_be_sealed=must_be_sealed)
        if values is None:
            return Lines(tuple(good), f"line {number} {problem}" if number <= len(lines) else "")
        must_be_sealed = must_be_sealed or SEALED.match(line) is not None
        good.append(LogLine(line, values))
        before = line
    return Lines(tuple(good), "")


def keep_lines(path: Path, lines: Iterable[LogLine]) -> None:
    """Let a file hold these lines alone, which are its first ones."""
    text = b"".join(line.content + b"\n" for line in lines)
    write_atomically(path, lambda temporary: write_file(temporary, [text]))


def _opened(line: bytes, before: bytes, *, must_be_sealed: bool) -> tuple[dict[str, Any] | None, str]:
    """The values of a line, or None and why it is not taken."""
    sealed = SEALED.match(line)
    if sealed is None and must_be_sealed:
        return None, "has no seal"
    body = line if sealed is None else sealed[1] + b"}"
    if sealed is not None and _seal(body, before) != sealed[2]:
        return None, "was changed, or one before it is missing (it does not match its seal)"
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return None, "is not JSON"
    return (values, "") if isinstance(values, dict) else (None, "holds no named values")


def _seal(body: bytes, before: bytes) -> bytes:
    """Hash over a line and the one before it, which holds the hash over all that came earlier."""
    return hashlib.sha256(before + b"\n" + body).hexdigest()[:16].encode()
