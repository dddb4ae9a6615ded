"""A system that gives too little: full or read-only disks, few handles, small files, little memory; a jumping clock."""

import ctypes
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from campaign.kind import Case, Kind, Place, Verdict
from campaign.kinds.failing_calls import after_failure
from campaign.processes import Outcome, run_command
from campaign.work import ACTIONS, begin_work, digests, prepare_work

CLONE_NEWNS = 0x00020000  # of sched.h
MS_RDONLY, MS_REMOUNT, MS_REC, MS_PRIVATE = 1, 32, 16384, 1 << 18  # of mount.h
PAGE = 4096  # bytes: a tmpfs counts these
ROOM = 64 << 20  # bytes of a disk that is not full
NEEDED = 4 << 20  # bytes, about, that an action writes
YEARS = 3e8  # seconds
# What libraries make of too little memory, which nobody can mend from here: see "What is not promised".
STARTED = "Exception ignored in thread started by"
BLAS_ENDS = "OpenBLAS error: Memory allocation"
ABORTED = "terminate called after throwing an instance of 'std::bad_alloc'"
BLAS_LIBRARIES = re.compile(r"recent call first\):\n  File [^\n]*/site-packages/(numpy|scipy|sklearn)/")
LIMITS = ("full disk", "read-only disk", "handles", "file size", "memory", "clock")


def next_case(draw: np.random.Generator) -> Case:
    """An action, and what there is too little of."""
    return {"action": str(draw.choice(list(ACTIONS))), "limit": str(draw.choice(LIMITS)), "at": float(draw.random())}


def run(case: Case, place: Place) -> Verdict:
    """Do the work within the limit, and once more without it."""
    action, limit, folder = case["action"], case["limit"], place.folder / "work"
    folder.mkdir()
    is_disk = "disk" in limit
    if is_disk and not _mount(folder):
        return Verdict(detail=f"skipped: {limit}, only root mounts one")
    words = begin_work(action, place.material, folder)
    before = digests(folder)
    if is_disk:
        used = sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))
        is_read_only = limit == "read-only disk"
        _remount(folder, ROOM if is_read_only else used + PAGE + int(case["at"] ** 2 * NEEDED), is_read_only)
    outcome = run_command(words, place.folder / "said", prepare=lambda: LESS.get(limit, lambda at: None)(case["at"]))
    if is_disk:
        _remount(folder, ROOM, is_read_only=False)
    if limit == "memory" and (whose := _fault_of_others(outcome)):
        return Verdict(detail=f"skipped: {limit}, {whose}")
    verdict = after_failure(action, place, before, outcome, words)
    return Verdict(verdict.fault, f"{limit}: {verdict.detail}" if verdict.fault else f"{limit}, code {outcome.code}")


def _fault_of_others(outcome: Outcome) -> str:
    """What a library made of too little memory; empty where it made nothing of it."""
    is_stuck = outcome.code is None
    if is_stuck and STARTED in outcome.err:
        return "CPython waits for a thread that had no memory to start"
    if BLAS_ENDS in outcome.err or (is_stuck and BLAS_LIBRARIES.search(outcome.err)):
        return "OpenBLAS ends the process or asks again without end"
    if outcome.code == -signal.SIGABRT and ABORTED in outcome.err:
        return "C++ of torch or another library ends the process"
    return ""


def _mount(folder: Path) -> bool:
    """Put a small disk of this process and its children there; whether the system allows it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        return False
    return libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, f"size={ROOM}".encode()) == 0


def _remount(folder: Path, size: int, is_read_only: bool) -> None:
    flags = MS_REMOUNT | (MS_RDONLY if is_read_only else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(folder), b"tmpfs", flags, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "mount")


def _few_handles(at: float) -> None:
    used = len(os.listdir("/proc/self/fd"))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + int(12 * at), most))


def _small_files(at: float) -> None:
    size = int(2 ** (12 + 10 * at))  # what is printed fits
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _little_memory(at: float) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = mapped + int(2 ** (20 + 9 * at))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _jumping_clock(at: float) -> None:
    """The time of day goes back or on by years, once or at each look; `monotonic` keeps its promise."""
    draw, real, jump = np.random.default_rng(int(at * 1e9)), time.time, [0.0]
    chance = draw.choice([0.05, 1.0])

    def jumped() -> float:
        if draw.random() < chance:
            jump[0] = draw.uniform(-1, 1) * YEARS
        return real() + jump[0]

    time.time, time.time_ns = jumped, lambda: int(1e9 * jumped())


LESS: dict[str, Callable[[float], None]] = {
    "handles": _few_handles,
    "file size": _small_files,
    "memory": _little_memory,
    "clock": _jumping_clock,
}

KIND = Kind("limits", next_case, run, prepare_work, material="work")
