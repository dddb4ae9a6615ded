"""Our side of the training benchmark: a run as `counterpoint train` has it, a bare loop beside it, and its parts."""

# N samples per step

import copy
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build
from counterpoint.data.loader import Batch, BatchLoader
from counterpoint.data.sources import ARRAY
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.engine.engine import Engine
from counterpoint.engine.gradients import Update
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.loop import run_training
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.nn.method import Method
from counterpoint.runs.assembly import assemble
from counterpoint.runs.resolve import resolve_holdout
from counterpoint.runs.run_files import create_run
from counterpoint.runs.run_job import training_job
from counterpoint.runs.user_inputs import UserInputs, open_user_data

LEARNING_RATE, TEMPERATURE, EMBEDDING_DIMS = 0.06, 0.5, 128  # of lightly's example, except that its head ends in 2048
WARM_UPS = 2  # first steps of a run, which also choose kernels and fill caches, are not counted
PARTS = ("views", "forward", "loss", "backward", "optimiser")


@dataclass(frozen=True)
class Setup:
    """One training problem; everyone who is compared solves exactly this.

    Attributes:
        images: uint8 (n, h, w, 3); one epoch is one run.
        encoder: ``resnet9`` or ``resnet18``.
        batch_size: samples per step, each in two views.
        precision: ``fp32`` or ``bf16`` (mixed).
        device: ``cpu`` or ``cuda``.
        encode_views: both views ``together`` or ``apart``, as lightly has them; ours only.
    """

    images: np.ndarray
    encoder: str
    batch_size: int
    precision: str
    device: str
    encode_views: str = "together"

    @property
    def num_steps(self) -> int:
        """Steps of a run."""
        return len(self.images) // self.batch_size


def make_job(setup: Setup, folder: Path) -> TrainingJob:
    """The job that `counterpoint train --method simclr` would run, for one epoch and without labels."""
    values = {
        "data": ARRAY,
        "encoder": setup.encoder,
        "batch_size": setup.batch_size,
        "epochs": 1,
        "temperature": TEMPERATURE,
        "source": {"holdout": 0.0},
        "projector": {"features": EMBEDDING_DIMS},
        "optim": {"name": "sgd", "learning_rate": LEARNING_RATE},
        "engine": {"device": setup.device, "precision": setup.precision, "encode_views": setup.encode_views},
    }
    settings = build(TrainSettings, values, "settings")
    source = open_user_data(settings, UserInputs(data=setup.images), Reporter(quiet=True))
    placement = place(setup.device, setup.precision)
    create_run(folder, overwrite=True)
    return training_job(assemble(resolve_holdout(settings, source), source, placement, UserInputs()), RunFolder(folder))


def random_pictures(num_pictures: int) -> np.ndarray:
    """uint8 (n, 32, 32, 3): random pixels, as speed does not depend on them."""
    return np.random.default_rng(0).integers(0, 256, (num_pictures, 32, 32, 3), dtype=np.uint8)


def step_seconds(setup: Setup, folder: Path, *, with_bare: bool, skip: int = WARM_UPS) -> dict[str, list[float]]:
    """Seconds of each step of a run but the first, and of a bare loop's steps taken between them, if asked for."""
    job = make_job(setup, folder)
    decay = job.optimizer.param_groups[0]["weight_decay"]
    others = {"bare": bare_step(copy.deepcopy(job.method), job.views, decay, setup)} if with_bare else {}
    loader = Interleaved(job.loader, others)
    run_training(replace(job, loader=loader), Reporter(quiet=True))  # pyright: ignore[reportArgumentType]
    return {name: seconds[skip:] for name, seconds in loader.seconds.items()}


class Interleaved:
    """A loader that times what the loop does between two batches, and lets others take a step after each of its own.

    A step lasts from the moment the loop asks for a batch to the moment it asks for the next: fetching, updating,
    bookkeeping and display.
    """

    def __init__(self, loader: BatchLoader, others: Mapping[str, Callable[[Batch], None]]) -> None:
        self.order = loader.order
        self.seconds: dict[str, list[float]] = {"ours": [], **{name: [] for name in others}}
        self._loader = loader
        self._others = others

    def epoch(self, epoch: int, *, first_batch: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch."""
        batches = self._loader.epoch(epoch, first_batch=first_batch)
        started = now()
        for batch in batches:
            yield batch
            self.seconds["ours"].append(now() - started)
            for name, step in self._others.items():
                started = now()
                step(batch)
                self.seconds[name].append(now() - started)
            started = now()


def bare_step(method: Method, views: ViewDrawer, decay: float, setup: Setup) -> Callable[[Batch], None]:
    """A step as written by hand: same model, views, loss and optimiser, and nothing around them."""
    method.train().to(setup.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    kernels = [p for p in method.parameters() if p.ndim > 1]
    vectors = [p for p in method.parameters() if p.ndim <= 1]
    groups = [{"params": kernels, "weight_decay": decay}, {"params": vectors}]
    optimizer = torch.optim.SGD(groups, LEARNING_RATE, momentum=0.9, fused=True)
    is_low = setup.precision == "bf16"

    def step(batch: Batch) -> None:
        both = torch.cat(views.two_views(batch.samples, batch.streams, 0))
        with torch.autocast(setup.device, torch.bfloat16, enabled=is_low):
            embeddings = method.projector(method.backbone(both))
        loss = method.loss(*embeddings.float().chunk(2))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # the loss is looked at each step, as in any loop that reports it

    return step


def now() -> float:
    """Seconds of the clock, after a GPU has finished its work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def forget_peak(device: str) -> None:
    """Reset the peak that ``peak_mib`` reads, if the device can."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_mib(device: str) -> float:
    """Most memory held at once: allocated on the GPU, or resident in this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


# --- parts of a step's time


def part_seconds(setup: Setup, folder: Path) -> dict[str, list[float]]:
    """Seconds of each part of each step of a run, and of the whole step under ``step``."""
    watch = Watch()
    job = make_job(setup, folder)
    watch.follow(job.method)
    loader = Interleaved(job.loader, {})
    timed = replace(
        job,
        loader=loader,  # pyright: ignore[reportArgumentType]
        views=TimedViews(job.views, watch),  # pyright: ignore[reportArgumentType]
        engine=TimedEngine(job.engine, watch),  # pyright: ignore[reportArgumentType]
    )
    run_training(timed, Reporter(quiet=True))
    by_part = {**{part: watch.seconds[part] for part in PARTS}, "step": loader.seconds["ours"]}
    assert len({len(seconds) for seconds in by_part.values()}) == 1, {name: len(by_part[name]) for name in by_part}
    return {name: seconds[WARM_UPS:] for name, seconds in by_part.items()}


class Watch:
    """Collects the seconds of named parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {part: [] for part in PARTS}
        self._started: dict[str, float] = {}

    def start(self, part: str) -> None:
        self._started[part] = now()

    def stop(self, part: str) -> None:
        self.seconds[part].append(now() - self._started.pop(part))

    def follow(self, method: Method) -> None:
        """Time a method's encoding, from the encoder's beginning to the loss's, and its loss."""
        method.backbone.register_forward_pre_hook(lambda *_: self.start("forward"))
        method.loss.register_forward_pre_hook(lambda *_: self.stop("forward"))
        method.loss.register_forward_pre_hook(lambda *_: self.start("loss"))
        method.loss.register_forward_hook(lambda *_: self.stop("loss"))


@dataclass(frozen=True)
class TimedViews:
    """Views whose drawing is timed."""

    views: ViewDrawer
    watch: Watch

    def two_views(self, samples: Tensor, ids: Tensor, epoch: int, *others: Any) -> tuple[Tensor, Tensor]:
        self.watch.start("views")
        drawn = self.views.two_views(samples, ids, epoch, *others)
        self.watch.stop("views")
        return drawn

    def local_views(self, *drawn: Any) -> Tensor | None:
        return self.views.local_views(*drawn)


class TimedEngine:
    """An engine whose backward pass and update are timed."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine = engine
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def backward(self, loss: Tensor) -> None:
        self._watch.start("backward")
        self._engine.backward(loss)
        self._watch.stop("backward")

    def update(self, *arguments: Any, **options: Any) -> Update:
        self._watch.start("optimiser")
        update = self._engine.update(*arguments, **options)
        self._watch.stop("optimiser")
        return update
