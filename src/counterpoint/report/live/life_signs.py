"""How a run in progress stands, in words, from small files of its folder; cheap enough to be asked each second."""

import os
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterpoint.core.errors import RunError
from counterpoint.core.markup import printable
from counterpoint.core.run_lock import holder_of, is_locked
from counterpoint.core.run_records import RunStatus
from counterpoint.core.rundir import RunFolder
from counterpoint.core.sealed_lines import read_lines
from counterpoint.core.user_files import read_text
from counterpoint.report.wording import duration, number

OVER = ("finished", "failed", "interrupted", "killed", "damaged")  # nothing will be written until someone acts
LEAST_SILENCE, FIRST_SILENCE = 120.0, 900.0  # seconds without a sign of life: after an epoch, and before the first
SILENT_EPOCHS = 5  # or so many epochs' time, if that is longer
RECENT = 5  # epochs whose time is expected again


@dataclass(frozen=True)
class LifeSigns:
    """How a run stands.

    Attributes:
        name: of the run.
        state: waiting, running, silent, or one of ``OVER``.
        words: one line, of what happens now.
        epoch: how many are done.
        mark: changes where the page would change, and nowhere else.
    """

    name: str
    state: str
    words: str
    epoch: int = 0
    mark: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be waited for."""
        return self.state in OVER


def life_signs(path: Path, name: str, now: float | None = None) -> LifeSigns:
    """Look at a run; nothing is written, and nothing is locked.

    Args:
        path: of the run; it need not exist yet.
        name: what it is called.
        now: time in seconds since 1970; None asks the clock.
    """
    now, folder = time.time() if now is None else now, RunFolder(path)
    if not folder.status.exists():
        return LifeSigns(name, "waiting", f"waits for {name} to begin", mark="waiting")
    try:
        status = folder.read_status()
        lines = [line.values for line in read_lines(folder.metrics).good]
    except RunError as error:
        return LifeSigns(name, "damaged", f"cannot be read: {printable(str(error))}", mark=f"damaged {error}")
    epoch = len(lines)
    if not is_locked(path):
        state = "killed" if folder.is_killed(status) else status.status
        # Between two processes it waits.
        resting = state if state in OVER else "waiting"
        return LifeSigns(name, resting, _resting_words(state, epoch, name), epoch, _mark(folder, state, epoch))
    seconds = _seconds_of_epoch(folder)
    silence = max(0.0, now - _last_sign(folder))
    limit = FIRST_SILENCE if seconds is None else max(LEAST_SILENCE, SILENT_EPOCHS * seconds)
    state = "silent" if silence > limit else "running"
    loss = f"loss {number(lines[-1].get('loss'), 4)}; " if lines else ""
    planned = _planned(folder, status)
    done = f"epoch {epoch}{f' of {planned}' if planned else ''} done; " if lines else ""
    if state == "silent":
        words = (
            f"no sign of life for {duration(silence)}: {holder_of(path) or 'a process'} holds the run, writes nothing"
        )
        return LifeSigns(name, state, f"{done}{words}", epoch, _mark(folder, state, epoch))
    words = f"running: {done}{loss}{_expected(folder, epoch, planned, seconds, now)}"
    return LifeSigns(name, state, words, epoch, _mark(folder, state, epoch))


def worst_first(signs: Sequence[LifeSigns]) -> LifeSigns:
    """Of several runs that one that the reader must know of: which trains, which went wrong, then any."""
    order = ("silent", "running", "damaged", "killed", "failed", "interrupted", "waiting", "finished")
    return min(signs, key=lambda each: order.index(each.state))


def _resting_words(state: str, epoch: int, name: str) -> str:
    """Why nothing happens, and what to do."""
    done = f"after epoch {epoch}" if epoch else "before its first epoch was done"
    goes_on = f"go on with: counterpoint resume {name}"
    return {
        "finished": f"finished {done}",
        "killed": f"was killed {done}; {goes_on}",
        "interrupted": f"was stopped {done}; {goes_on}",
        "failed": f"failed {done}; what it said stands where it was started; {goes_on}",
    }.get(state, "waits for a process to train it")


def _expected(folder: RunFolder, epoch: int, planned: int | None, seconds: float | None, now: float) -> str:
    """What the run works on, and when that is expected to be done."""
    if seconds is None:
        return "in its first epoch"
    if planned is not None and epoch >= planned:
        return "saving what it learned"
    since = max(0.0, now - _time_of(folder.metrics))
    left = f"in about {duration(seconds - since)}" if since < seconds else "any moment"
    return f"an epoch takes {duration(seconds)}, the next is expected {left}"


def _seconds_of_epoch(folder: RunFolder) -> float | None:
    """How long recent epochs took; None before the first one ends."""
    try:
        lines = read_lines(folder.timings).good
    except RunError:
        return None
    found = [value for line in lines[-RECENT:] if isinstance(value := line.values.get("seconds"), int | float)]
    return statistics.median(found) if found else None


def _planned(folder: RunFolder, status: RunStatus) -> int | None:
    """Epochs that there are to be in all."""
    if status.continuations:
        return status.continuations[-1].to_epoch
    try:
        # As text: reading YAML takes milliseconds, and this is asked each second.
        found = re.search(r"^epochs: (\d+)$", read_text(folder.resolved), flags=re.MULTILINE)
    except (OSError, ValueError):
        return None
    return int(found[1]) if found else None


def _last_sign(folder: RunFolder) -> float:
    """When anything was written last."""
    places = (folder.status, folder.metrics, folder.timings, folder.checkpoints, folder.path)
    return max(_time_of(place) for place in places)


def _time_of(path: Path) -> float:
    """When a file or folder was changed; 0 where there is none."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _mark(folder: RunFolder, state: str, epoch: int) -> str:
    """What the page depends on: state, epochs, and files that other commands make."""
    made = [f"{_time_of(path):.3f}" for path in (folder.evaluation, folder.findings, folder.arrays)]
    return " ".join([state, str(epoch), *made])
