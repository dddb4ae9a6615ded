"""More epochs for a run: what is refused, what is recorded, and what becomes of what was known of the earlier encoder.

The run's record comes first: once ``run.json`` lists a continuation, the run goes on to its epochs, wherever the
process that wrote it was killed. Settings and checkpoints may lag behind that list, and are read with it
(``runs.recover_run``).
"""

import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from counterpoint.core import __version__
from counterpoint.core.errors import RunError, StaleFileError, UsageError
from counterpoint.core.files import run_named_in
from counterpoint.core.run_records import Continuation, RunStatus, read_record
from counterpoint.core.rundir import RUN, RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import with_threads
from counterpoint.core.user_files import read_text
from counterpoint.core.validation import build
from counterpoint.engine.checkpoint import Position, newest_memory
from counterpoint.engine.progress import Reporter
from counterpoint.engine.schedules import Schedule

CONTINUATIONS = "continuations"  # in run.json, and in what checkpoints say of the run


def further_epochs(folder: RunFolder, settings: TrainSettings, epochs: int | None) -> Continuation | None:
    """What is to be recorded where a run goes on to another number of epochs; None where it is the same.

    Args:
        folder: the run, which this process holds.
        settings: its own.
        epochs: how many there shall be in all; None for as many as it has.

    Raises:
        UsageError: the run has more already.
    """
    planned = int(settings.epochs)
    if epochs is None or epochs == planned:
        return None
    build(TrainSettings, {"epochs": epochs}, "resume")
    memory = newest_memory(folder.checkpoints)
    position = Position(0, 0, 0) if memory is None else memory.position
    num_begun = position.epoch + (position.batch > 0)
    if epochs < num_begun:
        raise UsageError(
            f"epochs must be at least {num_begun}, as many as {folder.path} has begun, got {epochs}; what was trained "
            "cannot be taken back"
        )
    return Continuation(
        from_epoch=position.epoch,
        from_step=position.step,
        planned=planned,
        to_epoch=epochs,
        version=__version__,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def readable_status(folder: RunFolder) -> RunStatus | None:
    """``run.json`` of a run that may be repaired; None where it is missing, damaged or of another run.

    Raises:
        StaleFileError: the newest checkpoint is of another run.
    """
    status, memory = None, newest_memory(folder.checkpoints)
    with contextlib.suppress(RunError):
        status = folder.read_status()
    if status is None or memory is None or status.run_id == memory.facts.get(RUN):
        return status
    with contextlib.suppress(OSError, ValueError):
        if run_named_in(read_text(folder.resolved)) == memory.facts.get(RUN):
            return None  # two against one
    raise StaleFileError(
        f"{memory.path} is of another run ({memory.facts.get(RUN)}) than {folder.status} ({status.run_id}); put the "
        "run's own back, or remove it: counterpoint resume goes on from the one before"
    )


def continuations_of(folder: RunFolder) -> tuple[Continuation, ...]:
    """The continuations of a run, oldest first: from ``run.json``, or where that is damaged from a checkpoint."""
    if (status := readable_status(folder)) is not None:
        return status.continuations
    memory = newest_memory(folder.checkpoints)
    kept = [] if memory is None else memory.facts.get(CONTINUATIONS, [])
    return tuple(read_record(Continuation, values, f"{folder.checkpoints}: {CONTINUATIONS}") for values in kept)


def continue_run(folder: RunFolder, further: Continuation) -> None:
    """Record that a run goes on; from here on it is not finished.

    Args:
        folder: the run, which this process holds, with a sound ``run.json``.
        further: how far it goes.
    """
    # What they say of steps after a checkpoint was taken at rates of the earlier schedule: nothing to compare with.
    for path in folder.checkpoints.glob("after-*.json"):
        path.unlink()
    known = [*folder.read_status().continuations, further]
    folder.update_status(status="interrupted", continuations=[each.written() for each in known])


@contextlib.contextmanager
def threads_of_begin(folder: RunFolder, settings: TrainSettings, reporter: Reporter) -> Iterator[None]:
    """Within, as many threads as a run on the CPU began with, where the machine has them: they decide the last bits.

    Args:
        folder: the run, which goes on.
        settings: its own.
        reporter: hears of another number than this process has.
    """
    now = torch.get_num_threads()
    try:
        began = folder.read_status().num_threads
    except RunError:  # what is damaged is written again later
        memory = newest_memory(folder.checkpoints)
        began = None if memory is None else memory.facts.get("num_threads")
    if settings.engine.device != "cpu" or began in (None, now):
        yield
        return
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if began > most:
        words = f"threads: {now}, and it began with {began} (processors here: {most})"
        reporter.say(f"{words}; its last bits are not those of an uninterrupted run")
        yield
    else:
        reporter.say(f"threads: {began}, as it began, not {now} as here; their number decides the last bits")
        with with_threads(began):
            yield


def told(further: Continuation, schedule: Schedule) -> str:
    """What a continuation is, in one line."""
    rate = schedule(min(further.from_step, schedule.num_steps))
    return (
        f"goes on from epoch {further.from_epoch} to {further.to_epoch} (it was to have {further.planned}); the "
        f"learning rate follows its schedule over all {further.to_epoch} from here on, and begins with {rate:.1e}"
    )


def reason_of(known: Sequence[Continuation]) -> str:
    """Why a run has the epochs that it has."""
    parts = [f"to {each.to_epoch} from epoch {each.from_epoch} on" for each in known]
    return (
        f"continued: {known[0].planned} at first, {', '.join(parts)}; each time the schedule is laid over all of them"
    )


def keep_earlier(folder: RunFolder, earlier: int | None, num_epochs: int) -> Path | None:
    """Put the encoder of an earlier end of a run, and what was found out about it, into a folder of its own.

    Args:
        folder: the run, about to hold what belongs to other epochs.
        earlier: epochs of what it holds; None if it has not come to an end yet.
        num_epochs: epochs of what it will hold.

    Returns:
        The folder; None where there is nothing to put there.

    Raises:
        RunError: the disk refuses.
    """
    samples = (folder.collection, folder.map_layout)
    described = (folder.findings, folder.arrays, *samples, folder.spectrum, folder.report)
    results = (folder.evaluation, folder.other_evaluations, *described)
    weights = (folder.second.path, folder.classifier_weights, folder.classifier_card, folder.weights)
    # The card last: with it all are there.
    found = [path for path in (*results, *weights, folder.encoder_card) if path.exists()]
    if earlier is None or earlier == num_epochs or not found:
        return None
    aside = folder.of_epochs(earlier)
    if aside.encoder_card.exists():  # killed after this was done: what stands there now is of the new encoder
        return None
    try:
        aside.path.mkdir(exist_ok=True)
        for path in found:
            if not (aside.path / path.name).exists():
                path.rename(aside.path / path.name)
    except OSError as error:
        raise RunError(f"cannot write {aside.path}: {error.strerror or error}") from None
    return aside.path
