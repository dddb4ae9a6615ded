"""Signals that ask a process to stop: training saves first, every other verb removes unfinished files."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# SIGUSR1: what SLURM sends before the time is up. SIGBREAK: Ctrl-Break of Windows, which has no SIGUSR1.
NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGBREAK")
SIGNALS = tuple(signal.Signals[name] for name in NAMES if hasattr(signal, name))


class StopRequest:
    """A request to stop, set by a signal; ``exit_code`` is then the shell's convention, 128 + signal."""

    exit_code: int | None = None

    def __bool__(self) -> bool:
        return self.exit_code is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn each of ``SIGNALS`` into a request to save and stop while the block runs, in the main thread only.

    A handler does no more than set a flag. A scheduler may send several signals while the state is saved (SLURM:
    SIGUSR1, SIGTERM), so only a Ctrl-C, which a person sends, stops a run that was asked to stop before.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not request:
            request.exit_code = 128 + number

    if not _is_main_thread():
        yield request
        return
    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_exception() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that unfinished files are removed; only without a handler."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.SIGTERM)

    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_sigterm(stopped: KeyboardInterrupt) -> bool:
    """Tell whether ``sigterm_as_exception`` raised this, and not a Ctrl-C."""
    return stopped.args == (signal.SIGTERM,)


def _is_main_thread() -> bool:
    """Tell whether this is the main thread: Python lets no other thread set handlers."""
    return threading.current_thread() is threading.main_thread()
