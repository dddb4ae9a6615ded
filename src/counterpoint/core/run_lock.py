"""One process at a time works in a run folder: a lock that the system gives back when its holder dies.

Not the library ``filelock``: it does not say who holds a lock or that a dead process left one, and refuses file systems
that answer ENOLCK or ENOTSUP.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from counterpoint.core.errors import RunError

LOCK = ".lock"
# What file systems say that have no locks (some network and cluster file systems).
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
_HELD: set[int] = set()  # open lock files of this process


def _let_go_in_child() -> None:
    """A forked worker that outlives its killed parent must not keep the run locked."""
    # Closing is enough and unlocking would be too much: the lock belongs to the open file, which the parent has
    # open, too.
    for handle in tuple(_HELD):
        with contextlib.suppress(OSError):
            os.close(handle)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


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
    path = folder / LOCK
    try:
        handle, note = _take(path, wait)
    except OSError as error:
        raise RunError(f"cannot lock {folder}: {error.strerror or error}") from error
    _HELD.add(handle)
    try:
        yield note
    finally:
        with contextlib.suppress(OSError):
            if _is_at(path, handle):  # while it is held: nobody can have taken it in between
                path.unlink()
        if handle in _HELD:
            _HELD.discard(handle)
            os.close(handle)


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
        return holder is not None and _may_live(holder)
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


def _take(path: Path, wait: Callable[[Holder | None], object] | None) -> tuple[int, str | None]:
    """Open and lock the file, and write into it who holds it."""
    while True:
        # Not emptied: what stands there says who holds it, until the lock is ours. No link is followed, which could
        # lead to a file of the user's, and no pipe is waited for.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            has_locks = _lock(handle)
            if not _is_at(path, handle):  # its last holder removed it after it was opened here
                os.close(handle)
                continue
            note = _note(_read(handle), has_locks=has_locks)
            _write(handle)
        except BlockingIOError:
            holder = _read(handle)
            os.close(handle)
            if wait is None:
                raise _refusal(path, holder) from None
            wait(holder)
            continue
        except BaseException:
            os.close(handle)
            raise
        return handle, note


def _lock(handle: int) -> bool:
    """Lock an open file without waiting; False where the file system has no locks.

    Raises:
        BlockingIOError: another process holds it.
    """
    try:
        # flock and not lockf: POSIX locks belong to a process, and closing any other handle on the file would
        # give them back.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True


def _note(left: Holder | None, *, has_locks: bool) -> str | None:
    """What the user should know about a lock that was there; without locks of the system, look whether it lives.

    Raises:
        BlockingIOError: its holder lives.
    """
    if left is not None and not has_locks and _may_live(left):
        raise BlockingIOError
    notes = [] if has_locks else ["this file system has no locks: the run is guarded by process number only"]
    if left is not None:
        notes.append(f"took over the lock of {left}, which no longer runs")
    return "; ".join(notes) or None


def _may_live(holder: Holder) -> bool:
    """Whether the holder may still run; of other machines nothing is known."""
    if holder.host != socket.gethostname():
        return True
    if holder.pid == os.getpid():  # a number used again, as in containers, unless it is really this process
        return bool(_HELD)
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


def _refusal(path: Path, holder: Holder | None) -> RunError:
    """Why a second run cannot begin."""
    by = str(holder) if holder is not None else "another process"
    away = "" if holder is None or holder.host == socket.gethostname() else f"; if it is gone, remove {path}"
    return RunError(f"{path.parent} is in use by {by}; wait until it ends or stop it, or choose another --out{away}")


def _is_at(path: Path, handle: int) -> bool:
    """Whether the open file is the one that stands there now."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(handle))


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
