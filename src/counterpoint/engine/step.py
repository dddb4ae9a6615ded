"""One update of a run: views, loss, backward, agreement of all ranks, optimiser."""

# N samples of this rank

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.dist import gather_rows, gather_texts, rank, world_size
from counterpoint.core.errors import LoneTrainingError, NonFiniteError, TrainingError, first_line
from counterpoint.data.loader import Batch
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.gradients import Update
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.optimisers import set_learning_rate

NUM_NAMED = 5  # sample ids that a message lists


@dataclass(frozen=True)
class StepOutcome:
    """Outcome of one update; the same on every rank.

    Attributes:
        loss: loss of the whole batch, before the update.
        update: result of the update of the weights.
        stop_code: exit code that a signal asks for on any rank; 0 for none.
    """

    loss: float
    update: Update
    stop_code: int


def take_step(
    job: TrainingJob, batch: Batch, position: Position, *, poll_stop: Callable[[], int] = lambda: 0
) -> StepOutcome:
    """Update the weights once.

    Args:
        job: parts of the run, its engine set up.
        batch: this rank's samples of the step.
        position: position of the run before the step.
        poll_stop: exit code that a signal has asked this rank for so far; 0 for none.

    Raises:
        TrainingError: the loss or the gradient of some rank is not finite; raised on every rank, before the weights
            change.
        LoneTrainingError: memory ran out here.
    """
    # Dropout and the like draw from torch's own generator: seeding it by step makes it, too, a function of the
    # position.
    # Runs with neighbouring seeds share no number in their first million steps; ranks differ from bit 40 on.
    torch.manual_seed((job.settings.seed * 1_000_003 + position.step + (rank() << 40)) % 2**63)
    rate, clip = job.schedule(position.step), job.settings.optim.clip
    set_learning_rate(job.optimizer, rate)
    try:
        device = job.engine.device
        second, labels = (None if part is None else part.to(device) for part in (batch.second, batch.labels))
        samples = batch.samples.to(device)
        views = job.views.two_views(samples, batch.streams, position.epoch, second)
        local = job.views.local_views(samples, batch.streams, position.epoch)
        loss, code = _backward(job, batch, views if local is None else (*views, local), labels, position, poll_stop)
        update = job.engine.update(clip=None if clip == "none" else clip)
    except RuntimeError as error:
        # Lone: the other ranks are within the step and cannot be asked; they hear of it when this one leaves.
        words = str(error)
        # Memory may run out on a GPU, in one of its libraries, or on the CPU.
        if not isinstance(error, torch.OutOfMemoryError) and not re.search("DefaultCPUAllocator|ALLOC_FAILED", words):
            raise
        size = job.settings.engine.chunk_size
        smaller = max(1, (2 * len(batch.ids) if size == "none" else size) // 4)
        raise LoneTrainingError(
            f"out of memory with {len(batch.ids)} samples per step on this device: keep the batch and its negatives "
            f"with --engine.chunk-size {smaller} (gradient caching, one more forward pass), or lower --batch-size, or "
            f"use --engine.precision bf16 ({first_line(error)})"
        ) from None
    if update.nonfinite is not None:
        # The verdict is the same on all ranks, so that all of them take part in this collective.
        detail = f"samples {'; '.join(map(_named_ids, gather_rows(batch.ids).chunk(world_size())))}"
        raise TrainingError(_stop_words(position, f"the gradient of {update.nonfinite} is not finite", detail))
    job.method.after_step((position.step + 1) / job.schedule.num_steps)
    # Several ranks stop by the answer that all of them have; one process hears a signal that came during the step,
    # too.
    return StepOutcome(loss, update, code if world_size() > 1 else poll_stop())


def _backward(
    job: TrainingJob,
    batch: Batch,
    views: tuple[Tensor, ...],
    labels: Tensor | None,
    position: Position,
    poll_stop: Callable[[], int],
) -> tuple[float, int]:
    """Gradient of the loss; returns its mean over all ranks and what their signals ask for."""
    try:
        with job.engine.in_precision():
            loss = job.engine.module(*views[:2], labels, position.step, *views[2:])
    except NonFiniteError:  # losses refuse embeddings that are no longer finite
        loss = torch.tensor(math.nan, device=job.engine.device)
    # The mean loss over ranks, and the largest exit code that a signal asks for on any of them: one collective, before
    # the backward pass, in which NaN of one rank would spread to the gradients of all.
    own_code = poll_stop()
    if world_size() == 1:
        value, code = loss.item(), own_code
    else:
        # float64 holds a float32 loss and an exit code exactly. NaN of one rank makes the mean of all NaN: all of them
        # raise.
        own = torch.stack([loss.detach().double(), torch.full_like(loss, own_code, dtype=torch.float64)])
        losses, codes = gather_rows(own[None]).unbind(1)
        value, code = losses.mean().item(), int(codes.max().item())
    if not math.isfinite(value):
        raise TrainingError(_stop_words(position, f"the loss is {value}", _first_text(views, batch.ids, loss)))
    job.engine.backward(loss)
    return value, code


def _first_text(views: tuple[Tensor, ...], ids: Tensor, loss: Tensor) -> str:
    """Say which samples are to blame: those of a view that is not finite, or all of the first rank with such a loss."""
    text = ""
    if not bool(torch.isfinite(loss)):
        text = f"the views are finite; samples {_named_ids(ids)}"
        for number, view in enumerate(views[:2]):
            is_bad_N = ~torch.isfinite(view).flatten(1).all(dim=1)
            if bool(is_bad_N.any()):
                text = f"view {number} of the data is not finite; samples {_named_ids(ids[is_bad_N])}"
                break
    texts = gather_texts(text)
    # A view that is not finite is the cause, on whichever rank it is.
    complaints = [(number, complaint) for number, complaint in enumerate(texts) if complaint]
    number, complaint = min(complaints, key=lambda entry: entry[1].startswith("the views are finite"))
    return complaint if len(texts) == 1 else f"on rank {number} {complaint}"


def _named_ids(ids_N: Tensor) -> str:
    more = f" and {len(ids_N) - NUM_NAMED} more" if len(ids_N) > NUM_NAMED else ""
    return f"{ids_N[:NUM_NAMED].tolist()}{more}"


def _stop_words(position: Position, fault: str, detail: str) -> str:
    return (
        f"{fault} at step {position.step} (epoch {position.epoch + 1}): {detail}; the last checkpoint is untouched; "
        "try a lower --optim.learning-rate"
    )
