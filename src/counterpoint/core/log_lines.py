"""Logs of JSON lines that grow: each checkpoint, and the record of a finished run, has the hash of their content.

A line that a kill tore off while it was written is the last and has no end.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError
from counterpoint.core.files import finite_or_null, flush_to_disk
from counterpoint.core.operating_system import open_unlinked
from counterpoint.core.user_files import MAX_TEXT_BYTES, read_regular


@dataclass(frozen=True)
class LogLine:
    """One line as it is in the file, and the values in it."""

    content: bytes
    values: dict[str, Any]

    @property
    def step(self) -> float:
        """Updates done; 0 where it does not say."""
        step = self.values.get("step")
        return step if isinstance(step, int | float) else 0


@dataclass(frozen=True)
class Lines:
    """What a file holds.

    Attributes:
        good: the lines from the first on that hold named values.
        problem: why the line after them does not; empty where all are good but perhaps a last one without an end.
    """

    good: tuple[LogLine, ...]
    problem: str

    def up_to(self, step: int) -> list[bytes]:
        """The lines up to a step, each with its end."""
        return [line.content + b"\n" for line in self.good if line.step <= step]


def append_line(path: Path, values: dict[str, Any]) -> None:
    """Append one line, flushed to disk.

    Raises:
        RunError: the disk refuses, or the path is a link.
    """
    try:
        with os.fdopen(open_unlinked(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "wb") as stream:
            stream.write(json.dumps(finite_or_null(values), allow_nan=False).encode() + b"\n")
        flush_to_disk(path)  # before the checkpoint that these lines belong to
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def log_hash(path: Path) -> str:
    """SHA-256 of a log; without a log that of an empty one; raises as ``read_lines``."""
    return hashlib.sha256(_content(path)).hexdigest()


def read_lines(path: Path) -> Lines:
    """Read a log.

    Raises:
        RunError: it cannot be read.
    """
    *lines, rest = _content(path).split(b"\n")
    good: list[LogLine] = []
    for number, line in enumerate([*lines, rest] if rest else lines, 1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            return Lines(tuple(good), f"line {number} holds no named values" if number <= len(lines) else "")
        for name in ("seal", "run"):  # of version 0.2.0
            values.pop(name, None)
        good.append(LogLine(line, values))
    return Lines(tuple(good), "")


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_TEXT_BYTES) if path.exists() else b""
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None
