"""Differences of Linux, macOS and Windows: files opened, flushed and read at a place, processes, memory, processor.

Locks are taken in ``run_lock`` and signals are heeded in ``engine.stop_signals``, nowhere else.
"""

import contextlib
import ctypes
import errno
import os
import platform
import re
import socket
import sys
import threading
from pathlib import Path

BINARY = getattr(os, "O_BINARY", 0)  # without it Windows writes two bytes for each end of a line
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe without a reader or writer is not waited for
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
SYNCHRONIZE = 0x00100000  # winnt.h: the right to ask whether a process has ended
MEMORY_STATUS_BYTES = 64  # sysinfoapi.h: MEMORYSTATUSEX, whose first field is its size

_SEEKING = threading.Lock()


def open_unlinked(path: str | Path, flags: int) -> int:
    """Open a file of ours; a link in its place is refused, since it could lead to a file of the user's.

    Raises:
        OSError: the path is a link, or the system refuses.
    """
    if not NO_LINK and os.path.islink(path):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, flags | NO_LINK | NO_WAIT | BINARY, 0o666)


def open_to_flush(path: Path) -> int | None:
    """Open a file or a folder for ``os.fsync``; None for a folder of Windows, which flushes none."""
    if sys.platform != "win32":
        return os.open(path, os.O_RDONLY)
    return None if path.is_dir() else os.open(path, os.O_RDWR | BINARY)  # it flushes only what may be written


def read_at(handle: int, buffer: memoryview, offset: int) -> int:
    """Read bytes of a file from a place on, in any thread; return their number."""
    if hasattr(os, "preadv"):
        return os.preadv(handle, [buffer], offset)
    with _SEEKING:
        os.lseek(handle, offset, os.SEEK_SET)
        content = os.read(handle, len(buffer))
    buffer[: len(content)] = content
    return len(content)


def write_at(handle: int, content: memoryview, offset: int) -> int:
    """Write bytes to a file from a place on, in any thread; return their number."""
    if hasattr(os, "pwrite"):
        return os.pwrite(handle, content, offset)
    with _SEEKING:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, content)


def host_name() -> str:
    """Name of this machine, with its namespace of process numbers, which a container may have of its own."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def is_running(pid: int) -> bool:
    """Tell whether a process of this machine may still run.

    >>> is_running(os.getpid()), is_running(2**22 + 1)
    (True, False)
    """
    if sys.platform == "win32":  # where signal 0 would end the process
        import _winapi  # deferred: Windows alone has it

        try:
            handle = _winapi.OpenProcess(SYNCHRONIZE, False, pid)
        except PermissionError:  # another user's
            return True
        except (OSError, OverflowError):
            return False
        try:
            return _winapi.WaitForSingleObject(handle, 0) == _winapi.WAIT_TIMEOUT
        finally:
            _winapi.CloseHandle(handle)
    try:
        os.kill(pid, 0)  # signal 0 is not sent: it only asks whether the process is there
        # One that was killed stays in the table of processes until its parent asks for it, which may be never.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process, no /proc, or a number that tells nothing
        return True


def amd_family() -> int:
    """The family of a processor of AMD's, by which its generation is known (25: Zen 3 and 4); 0 for any other."""
    text = platform.processor()
    if sys.platform == "linux":
        try:  # any other error is of the moment, and would change the bits of a run without a word
            text = Path("/proc/cpuinfo").read_text()
        except FileNotFoundError:  # hidden from some containers
            return 0
    family = re.search(r"family\s*:?\s*(\d+)", text, re.IGNORECASE)
    return int(family[1]) if family and "AuthenticAMD" in text else 0


def available_memory() -> int:
    """Bytes of memory that this machine can give now; all it has if the system does not say."""
    if sys.platform == "win32":
        return _windows_memory()[2]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return installed_memory()


def installed_memory() -> int:
    """Bytes of memory that this machine has."""
    if sys.platform == "win32":
        return _windows_memory()[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_memory() -> float | None:
    """Largest resident size of this process in bytes; None on Windows."""
    try:
        import resource  # deferred: Windows has no such module
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _windows_memory() -> list[int]:
    """MEMORYSTATUSEX as numbers of 8 bytes: its own size and the load, memory installed, memory available, and more."""
    status = (ctypes.c_uint64 * (MEMORY_STATUS_BYTES // 8))(MEMORY_STATUS_BYTES)
    ctypes.windll.kernel32.GlobalMemoryStatusEx(status)  # pyright: ignore
    return list(status)
