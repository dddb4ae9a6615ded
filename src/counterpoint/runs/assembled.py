"""The parts of a run, and the training job that is made of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from counterpoint.core.dist import is_first_rank, world_size
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.data.loader import BatchLoader, Destination
from counterpoint.data.order import Order, Split
from counterpoint.data.source import Source
from counterpoint.data.views.own_views import OwnViews
from counterpoint.engine.engine import Engine
from counterpoint.engine.hooks import Measurement
from counterpoint.engine.job import Levels, TrainingJob, TrainingPlan
from counterpoint.engine.loggers import build_loggers
from counterpoint.engine.optimisers import build_optimizer
from counterpoint.engine.placement import Placement
from counterpoint.engine.schedules import build_schedule
from counterpoint.engine.weight_average import WeightAverage
from counterpoint.evaluation.online_knn import OnlineKNN
from counterpoint.evaluation.trained_run import view_drawer
from counterpoint.kernels.select import Choice
from counterpoint.losses.loss import Loss
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.methods.cross_modal import TwoTowers
from counterpoint.methods.queue import QueueContrast
from counterpoint.nn.method import Method
from counterpoint.nn.trained import Encoder
from counterpoint.runs.changes import settings_hash
from counterpoint.runs.resolve import Resolution


@dataclass(frozen=True)
class Assembled:
    """The parts of a run."""

    resolution: Resolution
    placement: Placement
    source: Source
    split: Split
    positions: Tensor
    order: Order
    class_counts: Sequence[int]
    encoder: Encoder
    method: Method
    kernels: list[Choice]
    views: OwnViews | None

    @property
    def settings(self) -> TrainSettings:
        """Every setting, filled in."""
        return self.resolution.settings

    @property
    def num_parameters(self) -> int:
        """Trainable parameters of encoder and projector."""
        parts = (self.encoder.backbone, self.encoder.projector)
        return sum(p.numel() for part in parts for p in part.parameters() if p.requires_grad)

    @property
    def num_train(self) -> int:
        """Distinct samples that are trained on."""
        return len(self.positions)

    @property
    def loss_batch(self) -> int:
        """Samples that one call of the loss sees, over all ranks."""
        return self.order.batch_size // self.settings.engine.accumulate

    @property
    def second_encoder(self) -> Encoder | None:
        """The encoder of the second kind of sample, which is taken as it is; None where there is one kind."""
        if not isinstance(self.method, TwoTowers):
            return None
        shape = cast(tuple[int, ...], self.source.second_shape)
        is_same = shape == self.source.shape
        own, size = self.encoder.card, shape[0]
        card = replace(
            own,
            architecture=own.architecture if len(shape) > 1 else "mlp",
            kind="images" if len(shape) > 1 else "vectors",
            in_shape=shape,
            mean=own.mean if is_same else (0.0,) * size,
            std=own.std if is_same else (1.0,) * size,
            width=cast(nn.Linear, self.method.second_projector).in_features,
            projector="linear",
            features=own.projected_width,
        )
        return Encoder(card, self.method.second_backbone, self.method.second_projector)

    @property
    def loss(self) -> Loss:
        """The loss of the method."""
        return cast(Loss, self.method.loss)

    @property
    def num_negatives(self) -> int | None:
        """Vectors that repel each anchor; None for losses that do not count them."""
        return self.loss.num_negatives(self.loss_batch) if isinstance(self.loss, PairLoss | QueueContrast) else None

    def job(self, folder: RunFolder) -> TrainingJob:
        """The training job that will write to a run folder; nothing is written yet.

        Raises:
            UsageError: a logger is not installed, or the data do not allow what should be measured.
        """
        settings, engine = self.settings, self.settings.engine
        self.method.to(self.placement.torch_device)  # before its weights are averaged
        average = None if engine.average == "none" else WeightAverage(self.method.state_dict(), engine.average)
        return TrainingJob(
            method=self.method,
            optimizer=build_optimizer(self.method, settings.optim, is_sharded=engine.strategy == "fsdp"),
            schedule=build_schedule(
                settings.optim, num_epochs=int(settings.epochs), batches_per_epoch=self.order.batches_per_epoch
            ),
            loader=self._loader(),
            views=view_drawer(settings, self.encoder.card, self.views),
            engine=Engine(self.placement, compiles=engine.compile, shards=engine.strategy == "fsdp"),
            folder=folder,
            plan=_plan(settings),
            levels=self._levels(),
            average=average,
            measurements=self._measurements(average),
            loggers=build_loggers(engine, folder) if is_first_rank() else (),
            facts=self._facts(),
        )

    def _loader(self) -> BatchLoader:
        """Batches of this rank's samples, on its device."""
        engine, placement = self.settings.engine, self.placement
        return BatchLoader(
            self.source.store,
            self.order,
            labels=self.source.labels if self.loss.uses_labels else None,
            second=self.source.second,
            num_workers=engine.workers,
            destination=Destination(placement.torch_device, placement.rank, placement.world_size, engine.accumulate),
        )

    def _levels(self) -> Levels:
        """What the loss curve is read against."""
        is_nonnegative = self.settings.output.nonnegative != "none"
        chance = self.loss.chance(self.loss_batch)
        floor = self.loss.floor(self.loss_batch, nonnegative=is_nonnegative)
        # Where collapse is the lowest loss (BYOL, SimSiam), what looks all alike is no level to come down from.
        return Levels(_level(chance) if chance > floor else None, _level(floor))

    def _measurements(self, average: WeightAverage | None) -> tuple[Measurement, ...]:
        """What joins each epoch's record."""
        every = self.settings.engine.knn_every
        if every == "none":
            return ()
        split = Split(self.positions, self.split.held_out)
        return (OnlineKNN(self.source, split, self.encoder, every=every, average=average),)

    def _facts(self) -> dict[str, Any]:
        """What a checkpoint should say about the run."""
        return {
            "seed": self.settings.seed,
            "torch": torch.__version__.split("+")[0],
            "num_threads": torch.get_num_threads(),
            "device": self.settings.engine.device,
            "world_size": world_size(),
            "settings": settings_hash(self.settings),
            "data": self.source.fingerprint,
        }


def _plan(settings: TrainSettings) -> TrainingPlan:
    """How long a run is, how a step is cut, and how often it is saved."""
    engine, clip = settings.engine, settings.optim.clip
    return TrainingPlan(
        num_epochs=int(settings.epochs),
        checkpoint_every=int(engine.checkpoint_every),
        checkpoint_steps=None if engine.checkpoint_steps == "none" else engine.checkpoint_steps,
        keep=engine.keep,
        num_parts=engine.accumulate,
        clip=None if clip == "none" else clip,
        chunk_size=None if engine.chunk_size == "none" else engine.chunk_size,
        seed=settings.seed,
    )


def _level(value: float) -> float | None:
    """A level that a curve can be read against; None where a loss has none."""
    return value if math.isfinite(value) else None
