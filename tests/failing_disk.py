"""A disk that refuses: lets the k-th system call of a block fail, or all from the k-th on."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from system_calls import READ, intercept

FAULTS = {
    "disk full": errno.ENOSPC,
    "read-only": errno.EROFS,
    "quota": errno.EDQUOT,
    "broken": errno.EIO,
}


@dataclass
class FailingDisk:
    """What has happened so far.

    Attributes:
        error: number of the error to raise.
        first: number of the first call that fails, counted from 1.
        is_lasting: every later one fails as well.
        is_read: opening files to read them counts and fails, too.
        names: the calls so far.
        failed: those of them that failed.
    """

    error: int
    first: int
    is_lasting: bool
    is_read: bool = False
    names: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put the disk between Python and the system."""
        intercept(self.answer, patch.setattr)

    def answer(self, name: str, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Let a call through, or let it fail."""
        if name == READ and not self.is_read:
            return original(*args, **options)
        self.names.append(name)
        number = len(self.names)
        if not (number == self.first or (self.is_lasting and number > self.first)):
            return None if name == "fsync" else original(*args, **options)  # fsync is slow
        self.failed.append(name)
        if name == "close":
            original(*args, **options)  # the system closes the file even where it reports an error
        if name == "write" and number == self.first:
            original(args[0], bytes(args[1][: len(args[1]) // 2]))  # half of it gets through
        raise OSError(self.error, os.strerror(self.error))
