"""Waiting and number of the threads of this process, and the memory that it keeps: from Python as from the command.

The OpenMP runtimes of torch and scikit-learn let idle threads spin for milliseconds; beside another program that wants
their processor each step then waits for it. They read how long as they are loaded. Where that came before Counterpoint,
they are set while work is done: GNU's spins briefly where its threads are more than processors, which an idle team
makes them; LLVM's and Intel's have a call for it. Neither changes a bit of any result.
"""

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

SWITCH = "COUNTERPOINT_TUNE"  # 0 leaves threads and memory as they are
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
HEAP = ("MALLOC_", "GLIBC_TUNABLES")  # beginnings of the variables by which a user tunes glibc's heap
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of malloc.h
# No block is mapped on its own, and the heap is never given back to the system: each step would map and clear it again.
KEEPING = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1}
# The value that glibc reaches once a block of 32 MiB was freed.
USUAL = {M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 64 << 20}
CGROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

_LOCK = threading.Lock()


class _AtWork:
    """State of this process: calls at work, actions at the end of the last one, runtimes that were loaded first."""

    depth = 0
    ending = ExitStack()
    is_late = False
    is_told = False


def prepare_process() -> None:
    """Set what OpenMP reads as it is loaded, unless the user has; called as ``counterpoint`` is imported."""
    if is_left_alone() or any(name in os.environ for name in WAITING):
        return
    os.environ.update(PASSIVE)  # processes that are started from here read it, too
    _AtWork.is_late = not {"torch", "sklearn"}.isdisjoint(sys.modules)


def is_left_alone() -> bool:
    """Tell whether the user wants threads and memory as they are."""
    return os.environ.get(SWITCH) == "0"


def thread_waiting() -> str:
    """Say how threads wait in this process, and why, for its records."""
    if is_left_alone():
        return f"as they were ({SWITCH}=0)"
    variables = [f"{name}={os.environ[name]}" for name in WAITING if name in os.environ]
    if not _AtWork.is_late:
        return ", ".join(variables)
    manner = "briefly, while work is done" if _openmp_libraries() else "as torch has it"
    return f"{manner} (torch was loaded before counterpoint)"


def thread_remark(number: int) -> str | None:
    """One line on the choice of as many threads, once per process; None if nothing differs from the usual."""
    is_limited = number == processors() < min(os.cpu_count() or 1, runnable_processors())
    if _AtWork.is_told or is_left_alone() or not (_AtWork.is_late or is_limited):
        return None
    _AtWork.is_told = True
    share = ", the container's share of processors" if is_limited else ""
    return f"threads: {number}{share}; they wait {thread_waiting()}; {SWITCH}=0 leaves them as they were"


@contextmanager
def at_work() -> Iterator[None]:
    """Inside the block threads wait briefly, are no more than processors, and freed memory stays with the process.

    Afterwards threads wait as before, the memory goes back to the system, and glibc has its usual thresholds.
    """
    with _LOCK:
        _AtWork.depth += 1
        is_first = _AtWork.depth == 1 and not is_left_alone()
    try:
        if is_first:
            _keep_freed_memory(_AtWork.ending)
        if is_first and _AtWork.is_late:
            _wait_briefly(_AtWork.ending)
        yield
    finally:
        with _LOCK:
            _AtWork.depth -= 1
            if _AtWork.depth == 0:
                _AtWork.ending.close()


def threads_to_take(number: int) -> int:
    """Number of threads to use if torch would use ``number``: no more than processors, unless the user chose.

    A number other than torch's default was set by the user.
    """
    # With and without the second thread of each core, of the machine or of what this process may run on.
    by_itself = [count // share for count in (os.cpu_count() or 1, runnable_processors()) for share in (1, 2)]
    if is_left_alone() or any(name in os.environ for name in NUMBERS) or number not in by_itself:
        return number
    return min(number, processors())


def processors() -> int:
    """Number of processors that this process may use at a time: those it may run on, up to its container's share."""
    return max(1, min([runnable_processors(), *map(math.ceil, _shares())]))


def runnable_processors() -> int:
    """Number of processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def give_back_memory() -> None:
    """Ask glibc's allocator to give freed memory back to the system; others are left alone."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _shares() -> Iterator[float]:
    """Processors' worth of time per period, in this process's control groups and those above them (version 2 and 1)."""
    try:
        lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for _, kinds, name in (line.split(":", 2) for line in lines):
        if not kinds:
            yield from _shares_above(CGROUPS, name, "cpu.max")
        elif "cpu" in kinds.split(","):
            yield from _shares_above(CGROUPS / "cpu", name, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _shares_above(root: Path, name: str, *files: str) -> Iterator[float]:
    own = root / name.lstrip("/")
    # Within a container the name may be the host's, and the root is the container's own.
    for place in {own, root, *own.parents} - {*root.parents}:
        try:
            quota, period = " ".join((place / file).read_text(encoding="utf-8") for file in files).split()
            if int(quota) > 0:
                yield int(quota) / int(period)
        except (OSError, ValueError):  # none there, or "max"
            continue


def _keep_freed_memory(ending: ExitStack) -> None:
    """Ask glibc's allocator to keep freed blocks, and in the end to give them back; others are left alone."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(libc, "mallopt") or any(name.startswith(HEAP) for name in os.environ):  # musl's Linux has no mallopt
        return
    assert libc is not None
    for name, value in KEEPING.items():
        libc.mallopt(name, value)
    ending.callback(give_back_memory)  # called last
    for name, value in USUAL.items():
        ending.callback(libc.mallopt, name, value)


def _wait_briefly(ending: ExitStack) -> None:
    for library in _openmp_libraries():
        if hasattr(library, "kmp_set_blocktime"):  # LLVM's and Intel's
            before = library.kmp_get_blocktime()
            library.kmp_set_blocktime(0)
            ending.callback(library.kmp_set_blocktime, before)
        else:
            ending.callback(_idle_team(library))


def _idle_team(library: Any) -> Callable[[], None]:
    """Have a thread whose team is larger than there are processors, and sleeps; return a function that ends both."""
    nothing = ctypes.cast(library.omp_get_num_procs, ctypes.c_void_p)  # what the team does, once
    is_there, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            library.GOMP_parallel(nothing, None, library.omp_get_num_procs() + 1, 0)
        finally:
            is_there.set()
        is_over.wait()  # a team lasts as long as the thread that made it

    threading.Thread(target=hold, name="idle-team", daemon=True).start()
    is_there.wait()
    return is_over.set


@cache
def _openmp_libraries() -> list[Any]:
    """The OpenMP runtimes that this process has loaded and that can be set: LLVM's, Intel's and GNU's."""
    from threadpoolctl import ThreadpoolController  # deferred: as counterpoint is imported, nothing is looked for

    openmp = [library.dynlib for library in ThreadpoolController().lib_controllers if library.internal_api == "openmp"]
    return [library for library in openmp if hasattr(library, "kmp_set_blocktime") or hasattr(library, "GOMP_parallel")]
