"""Signs of life: which of several processes has stopped, while the others wait for it in a collective."""

import contextlib
import datetime
import sys
import threading
import time

from torch.distributed import DistError, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from counterpoint.core.ranks import Ranks

BEAT_SECONDS = 5.0  # between two signs of life
CONNECT_SECONDS = 300.0
SILENT_SECONDS = 30.0  # without one before it is said: far longer than a busy machine makes a thread wait


class RankWatch:
    """Gives this rank's signs of life, and tells on standard error when another rank gives none.

    The first rank watches all others, the second one the first. A rank that is gone is not its matter: its connections
    break, which ends the collectives of the others.

    Args:
        ranks: this process among the others.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
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
        with contextlib.suppress(DistError, RuntimeError, OSError):  # where the others meet is gone, and so are they
            store, beats = self._connect(), dict.fromkeys(self._seen, 0)
            while not self._ended.wait(BEAT_SECONDS):
                store.add(_key(self._ranks, self._ranks.rank), 1)
                for rank, before in beats.items():
                    beats[rank] = store.add(_key(self._ranks, rank), 0)
                    if beats[rank] != before:
                        self._seen[rank] = time.monotonic()

    def _watch(self) -> None:
        """Say once which rank falls silent, and that it goes on."""
        silent: set[int] = set()
        before = time.monotonic()
        while not self._ended.wait(BEAT_SECONDS):
            now = time.monotonic()
            if now - before > 2 * BEAT_SECONDS:  # it was this process that had stopped
                self._seen = dict.fromkeys(self._seen, now)
            before = now
            for rank, seen in self._seen.items():
                is_silent = now - seen > SILENT_SECONDS
                if is_silent and rank not in silent:
                    silent.add(rank)
                    _say(
                        f"rank {rank} has given no sign of life for {SILENT_SECONDS:.0f} s, and the others wait for "
                        "it; was it stopped?"
                    )
                elif not is_silent and rank in silent:
                    silent.discard(rank)
                    _say(f"rank {rank} goes on")

    def _connect(self) -> Store:
        """A connection of its own: a call that waits must not hold up the others' meeting."""
        return TCPStore(
            self._ranks.address,
            self._ranks.port,
            is_master=False,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=CONNECT_SECONDS),
        )


def _key(ranks: Ranks, rank: int) -> str:
    """Under torchrun names of an earlier start are still there."""
    return f"beat-{ranks.restarts}-{rank}"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"counterpoint: {text}\n")
        sys.stderr.flush()
