"""One process at a time works in a run folder: a lock that the system gives back when its holder dies.

The library ``filelock`` takes the lock; who holds it stands in the file, so that others can be told. Where a file
system has no locks, the library's own file stands for one.
"""

import contextlib
import datetime
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from counterpoint.core.errors import RunError

LOCK = ".lock"
GLANCE_SECONDS = 0.1  # for which a lock is tried: `is_locked` of another process holds it for a moment


@dataclass(frozen=True)
class Holder:
    """Who took a lock: process number, machine, and when."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


def host_name() -> str:
    """This machine, and in a container of its own process numbers also these."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[str | None]:
    """Hold a run folder for this process while the block runs.

    Args:
        folder: the run; must exist. Its lock is the file ``.lock``, which is removed at the end.

    Yields:
        A note for the user where a lock was left behind by a process that died; None otherwise.

    Raises:
        RunError: another process holds the run, or the lock cannot be written.
    """
    path, pid = folder / LOCK, os.getpid()
    lock = FileLock(path, thread_local=False)
    try:
        os.stat(folder)  # filelock would make it, and a folder that is being deleted must not come back
        lock.acquire(timeout=GLANCE_SECONDS, poll_interval=GLANCE_SECONDS / 10)
        left = None if isinstance(lock, SoftFileLock) else _sign(path)
    except Timeout:
        by = holder_of(folder) or "another process"
        raise RunError(f"{folder} is in use by {by}; wait until it ends or stop it, or choose another --out") from None
    except OSError as error:
        raise RunError(f"cannot lock {folder}: {error.strerror or error}") from error
    try:
        yield None if left is None else f"took over the lock of {left}, which no longer runs"
    finally:
        if os.getpid() == pid:  # a fork of this process does not hold it
            path.unlink(missing_ok=True)  # while it is held nobody can have taken it in between
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a process, this one or another, holds a run folder. Nothing is written."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held, or the file stands for a lock
        return True
    finally:
        os.close(handle)
    return False


def holder_of(folder: Path) -> Holder | None:
    """Who wrote down that it holds a run folder, whether it still does or not; None if that cannot be read."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as stream, contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        values = json.loads(stream.read(4096))
        return Holder(int(values["pid"]), str(values["host"]), str(values["since"]))
    return None


def is_running(pid: int) -> bool:
    """Whether a process of this machine may still run.

    >>> is_running(os.getpid()), is_running(2**22 + 1)
    (True, False)
    """
    try:
        os.kill(pid, 0)  # signal 0 is not sent: it only asks whether the process is there
        # One that was killed stays in the table of processes until its parent asks for it, which may be never.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process, no /proc, or a number that tells nothing
        return True


def _sign(path: Path) -> Holder | None:
    """Write down who holds the lock now; returns who stood there."""
    left = holder_of(path.parent)
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with open(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "w", encoding="utf-8") as stream:
        json.dump(asdict(Holder(os.getpid(), socket.gethostname(), since)), stream)
    return left
