"""The training loop: one readable pass over epochs and batches that can stop and go on at any step."""

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from counterpoint.core.errors import InterruptedRunError, NonFiniteError, TrainingError
from counterpoint.core.rundir import RunFolder
from counterpoint.data.loader import Batch, BatchLoader
from counterpoint.data.views import ViewDrawer
from counterpoint.engine.checkpoint import Position, restore_checkpoint, save_checkpoint
from counterpoint.engine.fabric_adapter import FabricEngine
from counterpoint.engine.interrupt import StopRequest, stop_on_signals
from counterpoint.engine.optimisers import set_learning_rate
from counterpoint.engine.progress import EpochRecord, Reporter, TrainingDisplay


@dataclass(frozen=True)
class TrainingJob:
    """Everything a run needs, built and checked before the first step.

    Attributes:
        method: maps two views to a scalar loss.
        optimizer: of the method's parameters.
        schedule: learning rate of each step.
        loader: batches of raw samples.
        views: draws the two views.
        engine: device and precision.
        folder: where metrics and checkpoints go.
        num_epochs: passes over the training samples.
        checkpoint_every: epochs between checkpoints.
        keep: checkpoints kept.
        chance: loss of an encoder that has learned nothing; None if there is no such number.
        floor: loss that no embedding can go below; None if there is none.
        seed: the run's seed.
    """

    method: nn.Module
    optimizer: Optimizer
    schedule: Callable[[int], float]
    loader: BatchLoader
    views: ViewDrawer
    engine: FabricEngine
    folder: RunFolder
    num_epochs: int
    checkpoint_every: int
    keep: int
    chance: float | None
    floor: float | None
    seed: int

    @property
    def num_steps(self) -> int:
        """Updates in the whole run."""
        return self.num_epochs * self.loader.order.batches_per_epoch


@dataclass
class EpochLog:
    """Running sums of the epoch in progress; saved with a checkpoint taken in its midst."""

    loss_sum: float = 0.0
    num_batches: int = 0
    seconds: float = 0.0


@dataclass
class LoopState:
    """Where the loop stands."""

    position: Position = field(default_factory=lambda: Position(epoch=0, batch=0, step=0))
    log: EpochLog = field(default_factory=EpochLog)


def run_training(job: TrainingJob, reporter: Reporter, *, resume: bool = False) -> None:
    """Train to the end, saving checkpoints on the way.

    Args:
        job: what to train.
        reporter: shows progress.
        resume: go on from the newest checkpoint that verifies.

    Raises:
        InterruptedRunError: a signal asked to stop; the position was saved first.
        TrainingError: the loss is no longer finite.
        RunError: a checkpoint cannot be written, or none can be read.
    """
    module, optimizer = job.engine.setup(job.method, job.optimizer)
    job.method.train()
    state = _restore(job, reporter) if resume else LoopState()
    if not resume:
        _save(job, state)
    showing = reporter.training(job.num_epochs, job.loader.order.batches_per_epoch, state.position.step)
    with torch.random.fork_rng(), stop_on_signals() as stop, showing as display:
        while state.position.epoch < job.num_epochs:
            _run_epoch(job, (module, optimizer), state, display, stop)


def _run_epoch(
    job: TrainingJob,
    prepared: tuple[nn.Module, Optimizer],
    state: LoopState,
    display: TrainingDisplay,
    stop: StopRequest,
) -> None:
    """Train from ``state.position`` to the end of its epoch."""
    epoch = state.position.epoch
    for batch in job.loader.epoch(epoch, first_batch=state.position.batch):
        started = time.perf_counter()
        loss = _step(job, prepared, batch, state.position)
        state.log.loss_sum += loss
        state.log.num_batches += 1
        state.log.seconds += time.perf_counter() - started
        state.position = Position(epoch, state.position.batch + 1, state.position.step + 1)
        display.step_done(epoch)
        if stop and state.position.batch < job.loader.order.batches_per_epoch:
            _stop(job, state, stop)
    record = _record(job, state)
    job.folder.append_metrics(asdict(record))
    display.epoch_done(record)
    state.position, state.log = Position(epoch + 1, 0, state.position.step), EpochLog()
    is_last = state.position.epoch == job.num_epochs
    if is_last or state.position.epoch % job.checkpoint_every == 0:
        _save(job, state)
    if stop and not is_last:
        _stop(job, state, stop)


def _step(job: TrainingJob, prepared: tuple[nn.Module, Optimizer], batch: Batch, position: Position) -> float:
    """One update; returns the loss."""
    module, optimizer = prepared
    # Dropout and the like draw from torch's own generator: seeding it by step makes it, too, a function of the
    # position.
    torch.manual_seed((job.seed * 1_000_003 + position.step) % 2**63)
    set_learning_rate(job.optimizer, job.schedule(position.step))
    samples, ids = batch.samples.to(job.engine.device), batch.ids.to(job.engine.device)
    loss = _loss(module, *job.views.two_views(samples, ids, position.epoch))
    value = float(loss.detach())
    if not math.isfinite(value):
        raise TrainingError(
            f"the loss is {value} at step {position.step} (epoch {position.epoch + 1}, samples "
            f"{batch.ids[:5].tolist()} ...); "
            "the last checkpoint is untouched; try a lower --optim.learning-rate"
        )
    job.engine.step(loss, optimizer)
    return value


def _loss(module: nn.Module, view0: Tensor, view1: Tensor) -> Tensor:
    """Loss of a batch; NaN where the embeddings are no longer finite, which losses refuse."""
    try:
        return module(view0, view1)
    except NonFiniteError:
        return torch.tensor(math.nan)


def _record(job: TrainingJob, state: LoopState) -> EpochRecord:
    """Figures of the epoch that just ended."""
    batches = state.log.num_batches
    num_samples = batches * job.loader.order.batch_size
    return EpochRecord(
        epoch=state.position.epoch + 1,
        step=state.position.step,
        loss=state.log.loss_sum / batches,
        chance=job.chance,
        floor=job.floor,
        learning_rate=job.schedule(state.position.step - 1),
        images_per_second=round(num_samples / state.log.seconds, 1),
        seconds=round(state.log.seconds, 4),
    )


def _save(job: TrainingJob, state: LoopState) -> None:
    """Checkpoint the current position."""
    save_checkpoint(
        job.folder.checkpoints, job.method, job.optimizer, state.position, log=asdict(state.log), keep=job.keep
    )  # fmt: skip


def _restore(job: TrainingJob, reporter: Reporter) -> LoopState:
    """Load the newest valid checkpoint and drop metrics written after it."""
    restored = restore_checkpoint(job.folder.checkpoints, job.method, job.optimizer)
    for problem in restored.damaged:
        reporter.say(f"damaged checkpoint passed over: {problem}")
    job.folder.truncate_metrics(restored.position.step)
    reporter.say(
        f"resuming from {restored.path.name} (epoch {restored.position.epoch + 1}, step {restored.position.step} "
        f"of {job.num_steps})"
    )
    return LoopState(restored.position, EpochLog(**restored.log))


def _stop(job: TrainingJob, state: LoopState, stop: StopRequest) -> None:
    """Save and leave."""
    _save(job, state)
    assert stop.exit_code is not None
    position = state.position
    raise InterruptedRunError(
        f"stopped and saved at step {position.step} of {job.num_steps}; continue with: counterpoint resume "
        f"{shlex.quote(str(job.folder.path))}",
        exit_code=stop.exit_code,
    )
