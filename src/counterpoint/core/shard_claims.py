"""The schedule of numbered tasks over any number of processes, and the claims by which each task is done once.

A process does its own tasks first (round robin), then those that nobody has claimed, and those whose claim is stale:
nobody waits for a process that was killed. Processes talk through files in one folder, which may be on a file system
that several machines share:

- A claim is a file that only one process can create (``O_EXCL``: atomic on local disks, NFS 3 and later, Lustre, GPFS).
  What a dead process claimed is claimed by the next generation of the same task, NNNNNN-2 after NNNNNN-1, so that of
  two processes that take over at once one succeeds; nothing is removed or renamed while others look.
- The holder touches its claim every ``PATIENCE / 8`` seconds. A claim is stale once it has not been touched for
  ``PATIENCE`` seconds, by the clock that stamps files there (one clock on a local disk and on NFS; elsewhere the clocks
  of machines must agree to well below ``PATIENCE``), at once if its process is gone from this machine, and after
  ``TORN`` seconds if nothing stands in it: its process was killed before it had written who it is.

Claims spare work and decide nothing: a task must give the same bytes whoever does it, and put them in place by a
rename. A process that was only asleep, and one that a slow network hid, then do no harm but to their own time.
"""

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from counterpoint.core.errors import RunError
from counterpoint.core.run_lock import Holder, host_name, is_gone
from counterpoint.core.work_parts import Part

# Seconds without a sign of life after which a claim counts for nothing; NFS shows a change after 60 at most.
PATIENCE = 120.0
TORN = 2.0  # seconds after which a claim says who holds it
BEATS = 8  # signs of life within that time
POLL_SECONDS = (0.05, 5.0)  # first and longest time between two looks at what others are doing
MOST_HOLDER_BYTES = 4096


def visiting_order(num_tasks: int, part: Part) -> Iterator[int]:
    """All tasks in the order in which a part looks at them: its own, then those of the next part, and so on.

    Tasks of others come from their ends, as their owners begin at the other end; each part begins with another one.

    >>> [list(visiting_order(7, Part(number, 3))) for number in (1, 2)]
    [[0, 3, 6, 4, 1, 5, 2], [1, 4, 5, 2, 6, 3, 0]]
    """
    yield from range(part.number - 1, num_tasks, part.total)
    for ahead in range(1, part.total):
        other = (part.number - 1 + ahead) % part.total
        yield from reversed(range(other, num_tasks, part.total))


class Claims:
    """The claims of one process in a folder; a context, within which what it holds shows signs of life.

    Args:
        folder: of claims; made if it is not there.
        say: told once what is waited for.
        patience: see ``PATIENCE``.

    Raises:
        RunError: the folder cannot be written.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None, patience: float = PATIENCE) -> None:
        self.folder, self._say, self._patience = folder, say, patience
        self._token, self._taken, self._has_said = secrets.token_hex(8), list[Path](), False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        with self._spoken():
            folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Claims":
        """Begin to show signs of life."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End them; what is then not done may be claimed by others at once."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._clock.unlink()
        for path in self._taken:
            with contextlib.suppress(OSError):
                os.utime(path, (0, 0))  # long ago: stale

    def take(self, number: int) -> bool:
        """Claim a task; False while another process has it, or where the folder has just been removed.

        Raises:
            RunError: the folder cannot be written.
        """
        # Who finds all done removes the folder, perhaps between two looks of this process.
        with self._spoken(), contextlib.suppress(FileNotFoundError):
            return self._take(number)
        return False

    def _take(self, number: int) -> bool:
        """Claim a task in the first generation that is free."""
        generation = 1
        while True:
            path = self.folder / f"{number:06d}-{generation}"
            if self._create(path):
                self._taken.append(path)
                return True
            # The next generation first: whether that is stale is asked in the next round.
            is_newer = path.with_name(f"{number:06d}-{generation + 1}").exists()
            if not is_newer and not self._is_stale(path):
                return False
            generation += 1

    def say_waiting(self, number: int, num_left: int) -> None:
        """Say once that others have all that is left."""
        if self._has_said:
            return
        self._has_said = True
        # The last of its generations, of which there are few.
        found = max(self.folder.glob(f"{number:06d}-*"), key=lambda path: (len(path.name), path.name), default=None)
        holder = None if found is None else _read_holder(found)
        more = f" and {num_left - 1} more" if num_left > 1 else ""
        self._say(f"waiting for number {number}{more}, which {holder or 'another process'} does")

    @property
    def _clock(self) -> Path:
        """A file that is touched to learn what time the file system has."""
        return self.folder / f".clock-{self._token}"

    def _create(self, path: Path) -> bool:
        """Create a claim; False where it exists."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        try:
            since = datetime.now(UTC).isoformat(timespec="seconds")
            os.write(handle, json.dumps(asdict(Holder(os.getpid(), host_name(), since))).encode())
        finally:
            os.close(handle)
        return True

    def _is_stale(self, path: Path) -> bool:
        """Whether a claim shows no life: its process is gone from this machine, or nobody has touched it for long."""
        touched = path.stat().st_mtime
        holder = _read_holder(path)
        if holder is not None and is_gone(holder):
            return True
        self._clock.touch()
        patience = self._patience if holder is not None else min(TORN, self._patience)
        return self._clock.stat().st_mtime - touched > patience

    def _beat(self) -> None:
        """Touch what was taken last and is being worked on, until the end."""
        while not self._ended.wait(self._patience / BEATS):
            # The folder goes when all is done; a disk that refuses lets the claim become stale, which is safe.
            with contextlib.suppress(OSError, IndexError):
                os.utime(self._taken[-1])

    @contextlib.contextmanager
    def _spoken(self) -> Iterator[None]:
        """Errors of the disk as ours."""
        try:
            yield
        except OSError as error:
            raise RunError(f"cannot write claims in {self.folder}: {error.strerror or error}") from error


def work_through(
    num_tasks: int,
    part: Part,
    claims: Claims,
    *,
    is_done: Callable[[int], bool],
    work: Callable[[int], None],
    takes_over: bool = True,
) -> None:
    """Do tasks until all are done, by this process or by others.

    It waits for others only where each task that is left is claimed by a process that shows life: for one task's time
    at most, and ``PATIENCE`` where that process dies.

    Args:
        num_tasks: how many; they are numbered from 0.
        part: this process's.
        claims: of this process, entered.
        is_done: whether a task's result is in place; what is done stays so.
        work: does one, and puts its result in place.
        takes_over: also do tasks of other parts; without that, return once its own are done.
    """
    left = [number for number in visiting_order(num_tasks, part) if takes_over or part.has(number)]
    pause, longest = POLL_SECONDS
    while left:
        num_worked = sum(_try(number, claims, is_done, work) for number in left)
        left = [number for number in left if not is_done(number)]
        pause = POLL_SECONDS[0] if num_worked else min(2 * pause, longest)
        if left and not num_worked:
            claims.say_waiting(left[0], len(left))
            time.sleep(pause)


def _try(number: int, claims: Claims, is_done: Callable[[int], bool], work: Callable[[int], None]) -> bool:
    """Do a task that nobody has done or is doing; whether it was done here."""
    if is_done(number) or not claims.take(number):
        return False
    # Once more: its holder may have finished between the first look and the claim.
    if is_done(number):
        return False
    work(number)
    return True


def _read_holder(path: Path) -> Holder | None:
    """Who wrote a claim; None while it is being written, or where its process was killed before that."""
    try:
        with path.open("rb") as stream:
            values = json.loads(stream.read(MOST_HOLDER_BYTES))
        return Holder(int(values["pid"]), str(values["host"]), str(values["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
