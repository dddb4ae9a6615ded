"""The training loop: a function of (job, position), so that it can stop and continue at any step, on all ranks."""

import math
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from counterpoint.core.derived_files import check_run
from counterpoint.core.dist import ranks_that_differ, world_size
from counterpoint.core.errors import CounterpointError, InterruptedRunError, LoneTrainingError, RunError, first_line
from counterpoint.core.rundir import RUN, append_line, log_hash
from counterpoint.core.schemas import EpochRecord
from counterpoint.core.torch_state import GENERATOR, own_draws
from counterpoint.data.loader import Batch
from counterpoint.engine.checkpoint import (
    Position,
    Snapshot,
    drop_old,
    list_checkpoints,
    restore_checkpoint,
    save_checkpoint,
)
from counterpoint.engine.job import Logger, TrainingJob
from counterpoint.engine.placement import from_first_rank, on_all_ranks, on_first_rank
from counterpoint.engine.progress import Reporter, TrainingDisplay
from counterpoint.engine.replay import StepRecord, record_step, weights_digest
from counterpoint.engine.step import StepOutcome, take_step
from counterpoint.engine.stop_signals import StopRequest, stop_on_signals


@dataclass
class EpochLog:
    """Running sums of the epoch in progress; saved with a checkpoint taken in the middle of it."""

    loss_sum: float = 0.0
    norm_sum: float = 0.0
    num_batches: int = 0
    num_skipped: int = 0


@dataclass
class LoopState:
    """The position of the loop.

    Attributes:
        position: epochs done, batches done of the current epoch, and updates done.
        log: sums over the epoch in progress.
        seconds: seconds that the epoch's steps took in this process; not saved, since no two runs share it.
        notes: messages that the user has not been shown yet.
        unproven: number of the step that a replay from the last checkpoint repeats, until it is recorded; else None.
    """

    position: Position = field(default_factory=lambda: Position(epoch=0, batch=0, step=0))
    log: EpochLog = field(default_factory=EpochLog)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    unproven: int | None = None


def run_training(job: TrainingJob, reporter: Reporter, *, resume: bool = False) -> dict[str, Tensor]:
    """Train to the end, saving checkpoints on the way. Every rank calls it.

    Args:
        job: parts of the run.
        reporter: reporter that shows the progress.
        resume: whether to continue from the newest checkpoint that verifies.

    Returns:
        The weights of the method by name, on the CPU.

    Raises:
        InterruptedRunError: a signal asked some rank to stop; the position was saved first.
        TrainingError: a step cannot be taken.
        RunError: a checkpoint cannot be written, or none can be read.
    """
    # Nothing else would tell: DDP replaces the weights of the other ranks by rank 0's, FSDP sends none at all.
    if world_size() > 1 and ranks_that_differ(weights_digest(job.method.state_dict())):
        raise RunError("the ranks begin with different weights; seed torch before you build your own encoder")
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    state = _restore(job, reporter) if resume else LoopState()
    if state.unproven is None:
        # Step 0, too: a run that is stopped in its first epoch continues from there, and its first step can be
        # replayed.
        _save(job, state)
    showing = reporter.training(job.num_epochs, job.loader.order.batches_per_epoch, state.position.step, job.unit)
    # Every step seeds torch's generator; the caller's numbers continue after the run as if there had been none.
    with torch.random.fork_rng(_devices(job)), stop_on_signals() as stop, showing as display:
        while state.position.epoch < job.num_epochs:
            _run_epoch(job, state, display, stop)
    for logger in job.loggers:
        if note := _log_safely(logger, logger.close):
            reporter.say(note)
    return job.engine.full_state().model


def replay_step(job: TrainingJob, restored: Snapshot) -> StepRecord:
    """Take the step that follows a checkpoint, and return its result. Nothing is written.

    Args:
        job: parts of the run, not set up yet.
        restored: content of the checkpoint.
    """
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    _load(job, restored)
    position = restored.position
    batch = next(iter(job.loader.epoch(position.epoch, first_batch=position.batch)))
    with own_draws(devices=_devices(job)):
        return _step_record(job, position, take_step(job, batch, position))


def _devices(job: TrainingJob) -> list[torch.device]:
    """GPUs whose random numbers are the caller's, too."""
    return [job.engine.device] if job.engine.device.type == "cuda" else []


def _run_epoch(job: TrainingJob, state: LoopState, display: TrainingDisplay, stop: StopRequest) -> None:
    epoch, num_batches = state.position.epoch, job.loader.order.batches_per_epoch
    # Time and batches of this process only: the speed of a resumed epoch is that of its rest.
    state.seconds, steps_here, stop_code = 0.0, num_batches - state.position.batch, 0
    for batch in _batches(job, state.position):
        started = time.perf_counter()
        stop_code = _one_step(job, state, batch, stop)
        state.seconds += time.perf_counter() - started
        display.step_done(epoch)
        while state.notes:
            display.reporter.say(state.notes.pop(0))
        # No checkpoint after the last batch: the epoch's record is written before a checkpoint says that the epoch is
        # done.
        if state.position.batch < num_batches:
            _maybe_leave(job, state, stop_code)
    _end_epoch(job, state, display, steps_here)
    if state.position.epoch < job.num_epochs:
        _maybe_leave(job, state, stop_code, is_epoch_end=True)


def _batches(job: TrainingJob, position: Position) -> Iterator[Batch]:
    """The rest of an epoch; a sample that one of several ranks cannot read is that rank's own error."""
    try:
        yield from job.loader.epoch(position.epoch, first_batch=position.batch)
    except CounterpointError as error:
        raise error if world_size() == 1 else LoneTrainingError(str(error)) from None


def _one_step(job: TrainingJob, state: LoopState, batch: Batch, stop: StopRequest) -> int:
    """Take a step and note what came of it; returns the exit code that a signal asks for, or 0."""
    before = state.position
    with GENERATOR:
        outcome = take_step(job, batch, before, poll_stop=lambda: stop.exit_code or 0)
    state.log.loss_sum += outcome.loss
    # The length of a gradient that overflowed is infinite or NaN and would spoil the epoch's mean.
    state.log.norm_sum += outcome.update.gradient_norm if outcome.update.is_applied else 0.0
    state.log.num_batches += 1
    state.log.num_skipped += not outcome.update.is_applied
    state.position = Position(before.epoch, before.batch + 1, before.step + 1)
    # Only the first step after a checkpoint is recorded: it is the one that can be taken again.
    if state.unproven == before.step:
        record = _step_record(job, before, outcome)

        def prove() -> None:
            note = record_step(job.folder.checkpoints, record, device=job.engine.device.type)
            state.notes += [note] if note else []

        on_first_rank(prove)
        state.unproven = None
    return outcome.stop_code


def _end_epoch(job: TrainingJob, state: LoopState, display: TrainingDisplay, steps_here: int) -> None:
    """Measure, write the epoch's record, and save if it is time."""
    position = Position(state.position.epoch + 1, 0, state.position.step)
    is_last = position.epoch == job.num_epochs
    measured = {} if job.measure is None else dict(job.measure(position.epoch, is_last, job.method))
    # Figures before the checkpoint: a kill between the two leaves lines that resuming drops, but no epoch without
    # one.
    record = _record(job, state, measured, steps_here)

    def write() -> None:
        append_line(job.folder.metrics, record.metrics())
        append_line(job.folder.timings, record.timings())
        figures = {**record.metrics(), **record.timings()}
        notes = (_log_safely(logger, lambda logger=logger: logger(figures)) for logger in job.loggers)
        state.notes.extend(note for note in notes if note)

    on_first_rank(write)
    display.epoch_done(record)
    state.position, state.log = position, EpochLog()
    # A checkpoint by steps that falls on the end of an epoch is saved here, once.
    is_due = position.epoch % int(job.settings.engine.checkpoint_every) == 0 or job.is_due(position.step)
    if is_last or is_due:
        _save(job, state)


def _log_safely(logger: Logger, act: Callable[[], None]) -> str:
    """Let a logger do something; what it raises ends no run, since the figures are in ``metrics.jsonl``, too."""
    try:
        act()
    except Exception as error:  # of a foreign library: its network, its disk, its server
        return f"{type(logger).__name__}: {first_line(error)}; metrics.jsonl has the figures"
    return ""


def _record(job: TrainingJob, state: LoopState, measured: dict[str, float], steps_here: int) -> EpochRecord:
    batches = state.log.num_batches
    return EpochRecord(
        epoch=state.position.epoch + 1,
        step=state.position.step,
        loss=state.log.loss_sum / batches,
        chance=job.chance,
        floor=job.floor,
        learning_rate=job.schedule(state.position.step - 1),
        gradient_norm=state.log.norm_sum / max(1, batches - state.log.num_skipped),  # max: float16 may skip them all
        skipped_updates=state.log.num_skipped,
        measured=measured,
        # No rate where the clock stood still.
        images_per_second=round(steps_here * job.loader.order.batch_size / (state.seconds or math.inf), 1),
        seconds=round(state.seconds, 4),
    )


def _step_record(job: TrainingJob, before: Position, outcome: StepOutcome) -> StepRecord:
    """Record a step for a later replay. Every rank calls it."""
    # Ids of all ranks together, from the order: the batch at hand is this rank's share.
    ids = job.loader.order.batches(before.epoch)[before.batch]
    digest = weights_digest(job.engine.full_state().model)
    return StepRecord.of(before, ids, outcome.loss, outcome.update.gradient_norm, digest)


def _save(job: TrainingJob, state: LoopState) -> None:
    """Checkpoint the current position. Every rank calls it; the first one writes."""
    snapshot = Snapshot(
        state=job.engine.full_state(),
        average={},
        position=state.position,
        log=asdict(state.log),
        facts=dict(job.facts),
    )

    def save() -> None:
        folder, facts = job.folder, snapshot.facts
        facts["figures"] = log_hash(folder.metrics)
        save_checkpoint(folder.checkpoints, snapshot, keep=job.settings.engine.keep, stays=job.lasting_steps)

    on_first_rank(save)
    state.unproven = state.position.step


def _load(job: TrainingJob, snapshot: Snapshot) -> EpochLog:
    try:
        job.engine.load_state(snapshot.state)
        return EpochLog(**snapshot.log)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"the checkpoint does not fit this model: {' '.join(str(error).split())[:300]}") from None


def _restore(job: TrainingJob, reporter: Reporter) -> LoopState:
    """Load the newest valid checkpoint and drop metrics written after it."""
    # Killed before its first checkpoint was whole. Figures without any checkpoint are a loss, which
    # `restore_checkpoint` tells, and no fresh start.
    folder = job.folder
    is_new = from_first_rank(lambda: "" if list_checkpoints(folder.checkpoints) or folder.read_metrics() else "none")
    if is_new == "none":
        reporter.say("no checkpoint was saved yet; starting from the beginning")
        # There may still be a torn first line, or timings whose metrics were never written.
        on_first_rank(lambda: job.folder.truncate_metrics(0))
        return LoopState()
    restored = on_all_ranks(lambda: restore_checkpoint(job.folder.checkpoints))
    if ranks_that_differ(restored.path.name):
        raise RunError(f"the ranks do not see the same checkpoints in {job.folder.checkpoints}; use a shared folder")
    on_all_ranks(lambda: check_run(job.folder, restored.path, restored.snapshot.facts.get(RUN)))
    for problem in restored.damaged:
        reporter.say(f"damaged checkpoint skipped: {problem}")
    log = _load(job, restored.snapshot)
    position = restored.snapshot.position
    # Lines that were written after this checkpoint are of steps that will be taken again.
    on_first_rank(lambda: job.folder.truncate_metrics(position.step))
    # A save that was killed may have left one too many; no save follows where it was the last.
    keep = job.settings.engine.keep
    on_first_rank(lambda: drop_old(job.folder.checkpoints, position.step, keep, job.lasting_steps))
    reporter.say(
        f"resuming from {restored.path.name} (epoch {position.epoch + 1}, step {position.step} of "
        f"{job.schedule.num_steps})"
    )
    return LoopState(position, log, unproven=position.step)


def _maybe_leave(job: TrainingJob, state: LoopState, stop_code: int, *, is_epoch_end: bool = False) -> None:
    """Save within an epoch if it is time, or if a signal asked to stop: then leave."""
    # At the end of an epoch `_end_epoch` has saved what was due; a stop saves in any case, and leaves it as it is
    # then.
    if stop_code or (job.is_due(state.position.step) and not is_epoch_end):
        _save(job, state)
    if stop_code:
        raise InterruptedRunError(
            f"stopped and saved at step {state.position.step} of {job.schedule.num_steps}; continue with: counterpoint "
            f"resume {shlex.quote(str(job.folder.path))}",
            exit_code=stop_code,
        )
