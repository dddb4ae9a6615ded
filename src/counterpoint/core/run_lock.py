"""One process at a time works in a run folder: a lock that the system gives back when its holder dies.

The library ``filelock`` takes the lock; the file names the holder, so that others can report it. Where a file
system has no locks, the library's own file replaces the lock.
"""

import contextlib
import datetime
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout, UnixFileLock

from counterpoint.core.errors import RunError
from counterpoint.core.operating_system import open_unlinked

LOCK = ".lock"
GLANCE_SECONDS = 0.1  # for which a lock is tried: `is_locked` of another process holds it for a moment


@dataclass(frozen=True)
class Holder:
    """The holder of a lock: process number, machine, and time."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[str | None]:
    """Hold a run folder for this process while the block runs.

    Args:
        folder: the run; must exist. Its lock is the file ``.lock``, which is removed at the end.

    Yields:
        A note for the user if a lock was left behind by a process that died; None otherwise.

    Raises:
        RunError: another process holds the run, or the lock cannot be written.
    """
    path, pid, left = folder / LOCK, os.getpid(), None
    lock = FileLock(path, thread_local=False)
    try:
        os.stat(folder)  # filelock would make it, and a folder that is being deleted must not come back
        lock.acquire(timeout=GLANCE_SECONDS, poll_interval=GLANCE_SECONDS / 10)
        if isinstance(lock, UnixFileLock):  # Windows lets no other process write to it
            left, since = holder_of(folder), datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            with open(open_unlinked(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as stream:
                json.dump(asdict(Holder(pid, socket.gethostname(), since)), stream)
    except Timeout:
        by = holder_of(folder) or "another process"
        raise RunError(f"{folder} is in use by {by}; wait until it ends or stop it, or choose another --out") from None
    except OSError as error:
        raise RunError(f"cannot lock {folder}: {error.strerror or error}") from error
    try:
        yield None if left is None else f"took over the lock of {left}, which no longer runs"
    finally:
        if isinstance(lock, UnixFileLock) and os.getpid() == pid:  # a fork of this process does not hold it
            path.unlink(missing_ok=True)  # while it is held no other process can have taken it
        lock.release()


def is_locked(folder: Path) -> bool:
    """Tell whether a process, this one or another, holds a run folder; nothing is written."""
    try:
        import fcntl  # deferred: Windows has no fcntl
    except ImportError:
        return _refuses_a_lock(folder / LOCK)
    try:
        handle = open_unlinked(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or the file is used as a lock
        return True
    finally:
        os.close(handle)
    return False


def holder_of(folder: Path) -> Holder | None:
    """The last process that wrote down that it holds a run folder; None if that cannot be read."""
    try:
        handle = open_unlinked(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    with open(handle, "rb") as stream, contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        values = json.loads(stream.read(4096))
        return Holder(int(values["pid"]), str(values["host"]), str(values["since"]))
    return None


def _refuses_a_lock(path: Path) -> bool:
    """Tell whether an existing lock cannot be taken, by taking it: for systems without shared locks."""
    lock = FileLock(path, thread_local=False)
    if not path.is_file():
        return False
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False
