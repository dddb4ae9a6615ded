"""Ctrl-C and SIGTERM ask training to stop at the next step boundary; a second Ctrl-C stops at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Set by a signal; ``exit_code`` is then the shell's convention, 128 + signal."""

    exit_code: int | None = None

    def __bool__(self) -> bool:
        return self.exit_code is not None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn signals into a request while the block runs (main thread only; elsewhere nothing changes)."""
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request:
            raise KeyboardInterrupt
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
