"""The command in forked processes: all of them share one import of torch, each has limits of its own."""

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pkgutil
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import counterpoint
from counterpoint.cli.main import main
from reproductions.__main__ import main as reproduce

MEMORY_MB = 4096  # beyond what torch has mapped: what asks for more gets none, and the machine stays alive
SECONDS = 60
SECONDS_TO_TELL = 2  # in which a process that is stopped for working too long writes where it was
CRASHED = 70  # exit code of a process that ended by an exception
PR_SET_PDEATHSIG = 1  # of prctl.h


@dataclass(frozen=True)
class Outcome:
    """What became of a process.

    Attributes:
        code: its exit code; negative: the signal that killed it; None: it did not end in time.
        out: what it printed.
        err: what it complained of; of one that did not end in time and of a crash also the calls that it was in.
        seconds: of a processor that it took.
        peak_mb: memory that it had at most, beyond what it was forked with.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    peak_mb: float

    def __str__(self) -> str:
        said = self.err.strip()[-600:] or self.out.strip()[-200:]
        return f"code {self.code} after {self.seconds:.1f} s: {said}"


class Process:
    """A forked process.

    Args:
        act: what it does; returns its exit code.
        files: its output goes beside this path, to ``.out`` and ``.err``.
        environment: added to its own.
        is_limited: whether its memory has a bound.
    """

    def __init__(
        self,
        act: Callable[[], int],
        files: Path,
        environment: Mapping[str, str] | None = None,
        *,
        is_limited: bool = True,
    ) -> None:
        self._files, self._shared_mb = files, resident_mb()
        self._ended: Outcome | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(act, files, environment or {}, is_limited=is_limited)

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        self._look()
        return self._ended is None

    def is_stopped(self, seconds: float) -> bool:
        """Wait until it stops itself or ends; whether it stopped."""
        deadline = time.monotonic() + seconds
        while self._ended is None and time.monotonic() < deadline:
            if self._look():
                return True
            time.sleep(0.002)
        return False

    def _look(self) -> bool:
        """Note how it ended, if it did; whether it has stopped itself since the last look."""
        if self._ended is not None:
            return False
        pid, status, usage = os.wait4(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0 or os.WIFSTOPPED(status):
            return pid != 0
        out, err = (Path(f"{self._files}{end}").read_text(errors="backslashreplace") for end in (".out", ".err"))
        peak_mb = max(0.0, usage.ru_maxrss / 1024 - self._shared_mb)
        code = os.waitstatus_to_exitcode(status)
        self._ended = Outcome(code, out, err, usage.ru_utime + usage.ru_stime, peak_mb)
        return False

    def wait(self, seconds: float = SECONDS) -> Outcome:
        """Wait until it ends; it is killed when it has worked, or waited for something else, for so many seconds.

        Time in which a busy machine does not let it work counts as neither.
        """
        worked, changed = 0.0, time.monotonic()
        while self.is_running():
            now = self._seconds_worked()
            if now > worked:
                worked, changed = now, time.monotonic()
            if worked > seconds or time.monotonic() - changed > seconds:
                self._stop()
            time.sleep(0.002)
        assert self._ended is not None
        return self._ended

    def _stop(self) -> None:
        """Let it write where it is, and kill it."""
        os.kill(self.pid, signal.SIGABRT)
        deadline = time.monotonic() + SECONDS_TO_TELL
        while self.is_running():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)
        assert self._ended is not None
        self._ended = replace(self._ended, code=None)

    def _seconds_worked(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user mode and in the kernel


def run_command(words: list[str], files: Path, *, seconds: float = SECONDS, **options: Any) -> Outcome:
    """Run the command to its end; see ``start_command``."""
    return start_command(words, files, **options).wait(seconds)


def act_on(words: list[str]) -> int:
    """Run a command of the package, or one of its reproductions, in this process."""
    return reproduce(words[1:]) if words[0] == "reproduce" else main(words)


def start_command(
    words: list[str],
    files: Path,
    *,
    prepare: Callable[[], object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start the command in a process of its own, in which ``prepare`` was called first."""

    def act() -> int:
        if prepare is not None:
            prepare()
        return act_on(words)

    return Process(act, files, environment)


def resident_mb() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def die_with_parent() -> None:
    """Ask Linux to kill this process as soon as the one that forked it is gone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(act: Callable[[], int], files: Path, environment: Mapping[str, str], *, is_limited: bool) -> None:
    """The rest of a forked process's life."""
    code = CRASHED
    try:
        die_with_parent()
        for number, end in ((1, ".out"), (2, ".err")):
            handle = os.open(f"{files}{end}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            os.dup2(handle, number)
            os.close(handle)
        faulthandler.enable()
        os.environ.update(environment)
        torch.set_num_threads(1)  # makes torch's pool anew after the fork, which two threads at once cannot
        if is_limited:
            _limit()
        code = act()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):  # a fault planted in the process lasts to its end
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _limit() -> None:
    """Bound what this process may take."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limit = mapped + MEMORY_MB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load_all() -> None:
    """Import what the command imports when it is needed, so that each process need not."""
    for module in pkgutil.walk_packages(counterpoint.__path__, "counterpoint."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of an optional part
                importlib.import_module(module.name)
    importlib.import_module("torch._dynamo")  # the first step of an optimiser does
    torch.set_num_threads(1)
    assert threading.active_count() == 1, "a process that has threads cannot be forked safely"
