"""Ctrl-C, SIGTERM and SIGUSR1 ask training to save at the next step boundary; a Ctrl-C after that stops at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # SIGUSR1: what SLURM sends before the time is up


class StopRequest:
    """Set by a signal; ``exit_code`` is then the shell's convention, 128 + signal."""

    exit_code: int | None = None

    def __bool__(self) -> bool:
        return self.exit_code is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn signals into a request while the block runs (main thread only; elsewhere nothing changes).

    A handler does no more than set a flag. A scheduler may send several signals while the state is saved (SLURM:
    SIGUSR1, SIGTERM), so only a Ctrl-C, which a person sends, stops a run that was asked to stop before.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not request:
            request.exit_code = 128 + number

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
