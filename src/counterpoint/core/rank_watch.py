"""Signs of life: which of several processes has stopped, while the others wait for it in a collective."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from counterpoint.core.ranks import Ranks

BEAT_SECONDS = 5.0  # between two signs of life
SILENT_SECONDS = 30.0  # without one before it is said: far longer than a busy machine makes a thread wait


class RankWatch:
    """Gives this rank's signs of life, and tells on standard error when another rank gives none.

    The first rank watches all others, the second one the first. A rank that is gone is not its matter: its connections
    break, which ends the collectives of the others.

    Args:
        ranks: this process among the others.
        connect: gives a connection of its own to the store where the ranks meet: a call that waits there must not hold
            up the others' meeting.
    """

    def __init__(self, ranks: Ranks, connect: Callable[[], Any]) -> None:
        self._ranks, self._connect = ranks, connect
        watched = {0: range(1, ranks.world_size), 1: range(1)}.get(ranks.rank, range(0))
        self._seen = dict.fromkeys(watched, time.monotonic())
        self._ended = threading.Event()
        # Two, as a sign is not answered where the first rank, which keeps them, is the one that has stopped.
        self._threads = [threading.Thread(target=body, daemon=True) for body in (self._beat, self._watch)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop, before this rank leaves the others."""
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=1)

    def _beat(self) -> None:
        """Give signs of life, and note those of the ranks that are watched."""
        with contextlib.suppress(RuntimeError, OSError):  # where the others meet is gone, and so are they
            store, beats = self._connect(), dict.fromkeys(self._seen, 0)
            while not self._ended.wait(BEAT_SECONDS):
                store.add(f"beat-{self._ranks.rank}", 1)
                now = {rank: store.add(f"beat-{rank}", 0) for rank in beats}
                self._seen |= {rank: time.monotonic() for rank in beats if now[rank] != beats[rank]}
                beats = now

    def _watch(self) -> None:
        """Say once which rank falls silent, and that it goes on."""
        silent: set[int] = set()
        before = time.monotonic()
        while not self._ended.wait(BEAT_SECONDS):
            now = time.monotonic()
            if now - before > 2 * BEAT_SECONDS:  # it was this process that had stopped
                self._seen = dict.fromkeys(self._seen, now)
            before = now
            found = {rank for rank, seen in self._seen.items() if now - seen > SILENT_SECONDS}
            for rank in sorted(found - silent):
                _say(
                    f"rank {rank} has given no sign of life for {SILENT_SECONDS:.0f} s, and the others wait for it; "
                    "was it stopped?"
                )
            for rank in sorted(silent - found):
                _say(f"rank {rank} goes on")
            silent = found


@contextlib.contextmanager
def told_after(text: str) -> Iterator[None]:
    """Say something on standard error where the block takes longer than a silence may."""
    timer = threading.Timer(SILENT_SECONDS, _say, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"counterpoint: {text}\n")
        sys.stderr.flush()
