"""Steps of a real run, taken on one rank of several or in one process, with what they saw and what they made."""

# N samples of this rank

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.dist import rank, world_size
from counterpoint.core.ranks import Ranks
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, nest
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import Placement
from counterpoint.engine.progress import Reporter
from counterpoint.engine.step import take_step
from counterpoint.runs.assembly import assemble
from counterpoint.runs.resolve import resolve_holdout
from counterpoint.runs.run_job import training_job
from counterpoint.runs.user_inputs import UserInputs, open_user_data


@dataclass
class WatchedViews:
    """Draws the views of a run in another precision, and remembers which samples they were and every bit of them."""

    drawer: ViewDrawer
    dtype: torch.dtype
    seen: dict[int, str]

    def two_views(self, samples: Tensor, ids: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        pair = self.drawer.two_views(samples, ids, *rest)
        for number, sample in enumerate(ids.tolist()):
            content = b"".join(view[number].contiguous().numpy().tobytes() for view in pair)
            self.seen[sample] = hashlib.sha256(content).hexdigest()
        return pair[0].to(self.dtype), pair[1].to(self.dtype)

    def local_views(self, *drawn: Any) -> Tensor | None:
        local = self.drawer.local_views(*drawn)
        return None if local is None else local.to(self.dtype)


@dataclass(frozen=True)
class Steps:
    """What some steps were.

    Attributes:
        views: per step, hash of both views by sample id, for this rank's samples in their order.
        losses: of the whole batch.
        tensors: weights and optimiser state afterwards.
        start: weights before.
    """

    views: list[dict[int, str]]
    losses: list[float]
    tensors: dict[str, Tensor]
    start: dict[str, Tensor]


def job_of(folder: Path, given: UserInputs = UserInputs(), **settings: Any) -> TrainingJob:  # noqa: B008
    """The job of a run on this rank; nothing is written."""
    asked = build(
        TrainSettings,
        nest({"data": "array", "engine.device": "cpu", "engine.precision": "fp32", **settings}),
        "settings",
    )
    number, size = rank(), world_size()
    placement = Placement("cpu", "fp32", {}, Ranks(number, number, size, size))
    source = open_user_data(asked, given, Reporter(quiet=True))
    return training_job(assemble(resolve_holdout(asked, source), source, placement, given), RunFolder(folder))


def take_steps(job: TrainingJob, num_steps: int, dtype: torch.dtype = torch.float32) -> Steps:
    """The first steps of a run; in 64-bit numbers, rounding does not hide a wrong factor."""
    if dtype == torch.float64:
        job.method.double()
    watched: list[dict[int, str]] = []
    views = WatchedViews(job.views, dtype, {})
    job = replace(job, views=views)  # pyright: ignore[reportArgumentType]
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    start = job.engine.full_state().model
    losses: list[float] = []
    position, epoch = Position(0, 0, 0), 0
    while position.step < num_steps:
        for batch in job.loader.epoch(epoch):
            views.seen = {}
            losses.append(take_step(job, batch, position).loss)
            watched.append(views.seen)
            position = Position(epoch, position.batch + 1, position.step + 1)
            if position.step == num_steps:
                break
        epoch += 1
        position = Position(epoch, 0, position.step)
    job.loader.close()
    state = job.engine.full_state()
    moments = {
        f"optimizer {number} {name}": torch.as_tensor(value)
        for number, entries in state.optimizer["state"].items()
        for name, value in entries.items()
    }
    return Steps(watched, losses, {**state.model, **moments}, start)
