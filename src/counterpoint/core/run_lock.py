"""One process at a time works in a run folder: a lock that the system gives back when its holder dies.

The library ``filelock`` takes the lock; who holds it stands in the file, so that others can be told.
"""

import contextlib
import datetime
import errno
import fcntl
import itertools
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from counterpoint.core.errors import RunError

LOCK = ".lock"
# What file systems say that have no locks (some network and cluster file systems).
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
ATTEMPTS = 100  # to take a lock that others let go and take again
_UNGUARDED: set[Path] = set()  # files of this process's locks on such file systems


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


def is_gone(holder: Holder) -> bool:
    """Whether the process of a holder, who wrote down ``host_name``, is known to run no more; False of other machines.

    >>> is_gone(Holder(2**22 + 1, host_name(), "")), is_gone(Holder(2**22 + 1, "elsewhere", ""))
    (True, False)
    """
    # A number used again, as in containers, tells nothing.
    return holder.host == host_name() and holder.pid != os.getpid() and not _runs(holder.pid)


@contextlib.contextmanager
def lock_run(folder: Path, wait: Callable[[Holder | None], object] | None = None) -> Iterator[str | None]:
    """Hold a run folder for this process while the block runs.

    Args:
        folder: the run; must exist. Its lock is the file ``.lock``, which is removed at the end.
        wait: called again and again while another process holds the run; None refuses a run that is held.

    Yields:
        A note for the user where something was out of the ordinary: a lock was left behind by a process that died, or
        the file system has no locks. None otherwise.

    Raises:
        RunError: another process holds the run, or the lock cannot be written.
    """
    path, pid, taken = folder / LOCK, os.getpid(), list[tuple[os.stat_result, Holder | None]]()

    def sign(handle: int) -> None:
        taken.append((os.fstat(handle), _read(handle)))
        _write(handle)

    lock = FileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=sign)
    try:
        os.stat(folder)  # filelock would make it, and a folder that is being deleted must not come back
        has_locks = _acquire(lock, path, wait)
        if not has_locks:
            taken.append(_sign_without_locks(path, wait))
    except OSError as error:
        raise RunError(f"cannot lock {folder}: {error.strerror or error}") from error
    state, left = taken[-1]
    try:
        yield _note(left, has_locks=has_locks)
    finally:
        _UNGUARDED.discard(path)
        with contextlib.suppress(OSError):
            # While it is held nobody can have taken it in between; a fork of this process does not hold it.
            if os.getpid() == pid and os.path.samestat(path.stat(), state):
                path.unlink()
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether a process, this one or another, holds a run folder. Nothing is written.

    Where the file system has no locks, whether the process that wrote itself down may live.
    """
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        holder = _read(handle)
        return holder is not None and _may_live(holder, folder / LOCK)
    finally:
        os.close(handle)
    return False


def holder_of(folder: Path) -> Holder | None:
    """Who wrote down that it holds a run folder, whether it still does or not; None if that cannot be read."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _read(handle)
    except OSError:
        return None
    finally:
        os.close(handle)


def _acquire(lock: BaseFileLock, path: Path, wait: Callable[[Holder | None], object] | None) -> bool:
    """Take a lock; False where the file system has none.

    Raises:
        RunError: another process holds it, and nobody waits.
        OSError: the file cannot be written.
    """
    for attempt in itertools.count(1):
        try:
            lock.acquire(blocking=False)
            break
        except Timeout:
            # Its last holder may have let it go meanwhile.
            if is_locked(path.parent) or attempt > ATTEMPTS:
                _refuse_or_wait(path, holder_of(path.parent), wait)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return False
    return True


def _sign_without_locks(
    path: Path, wait: Callable[[Holder | None], object] | None
) -> tuple[os.stat_result, Holder | None]:
    """Write who holds the run, once nobody who may live stands there; the file's state, and who stood there."""
    while (left := holder_of(path.parent)) is not None and _may_live(left, path):
        _refuse_or_wait(path, left, wait)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        _write(handle)
        _UNGUARDED.add(path)
        return os.fstat(handle), left
    finally:
        os.close(handle)


def _refuse_or_wait(path: Path, holder: Holder | None, wait: Callable[[Holder | None], object] | None) -> None:
    """Say why a second run cannot begin, or let who may wait do so."""
    if wait is not None:
        wait(holder)
        return
    by = str(holder) if holder is not None else "another process"
    away = "" if holder is None or holder.host == socket.gethostname() else f"; if it is gone, remove {path}"
    raise RunError(f"{path.parent} is in use by {by}; wait until it ends or stop it, or choose another --out{away}")


def _note(left: Holder | None, *, has_locks: bool) -> str | None:
    """What the user should know about a lock that was there, and about a file system without locks."""
    notes = [] if has_locks else ["this file system has no locks: the run is guarded by process number only"]
    if left is not None:
        notes.append(f"took over the lock of {left}, which no longer runs")
    return "; ".join(notes) or None


def _may_live(holder: Holder, path: Path) -> bool:
    """Whether the holder may still run; of other machines nothing is known."""
    if holder.host != socket.gethostname():
        return True
    if holder.pid == os.getpid():  # a number used again, as in containers, unless it is really this process
        return path in _UNGUARDED
    return _runs(holder.pid)


def _runs(pid: int) -> bool:
    """Whether a process of this machine may still run."""
    try:
        os.kill(pid, 0)  # signal 0 is not sent: it only asks whether the process is there
        # One that was killed stays in the table of processes until its parent asks for it, which may be never.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process, no /proc, or a number that tells nothing
        return True


def _read(handle: int) -> Holder | None:
    """Who wrote into the lock last; None if nobody did, or it cannot be read."""
    try:
        values = json.loads(os.pread(handle, 4096, 0))
        return Holder(int(values["pid"]), str(values["host"]), str(values["since"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _write(handle: int) -> None:
    """Write who holds the lock now."""
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    content = json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), since))).encode()
    os.ftruncate(handle, 0)
    os.pwrite(handle, content, 0)
    os.fsync(handle)
