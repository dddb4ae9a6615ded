"""From settings to the parts of a run and its training job, so that all mistakes show before the first step."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.dist import is_first_rank, world_size
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import own_draws
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.loader import BatchLoader, Destination
from counterpoint.data.order import Order, Split, build_order, split_source, thin
from counterpoint.data.source import Source
from counterpoint.data.views.own_views import OwnViews
from counterpoint.engine.engine import Engine
from counterpoint.engine.job import Measurement, TrainingJob
from counterpoint.engine.loggers import build_loggers
from counterpoint.engine.optimisers import build_optimizer
from counterpoint.engine.placement import Placement
from counterpoint.engine.schedules import build_schedule
from counterpoint.evaluation.online_knn import EpochKNN
from counterpoint.evaluation.subject import view_drawer
from counterpoint.kernels.select import Choice, recording
from counterpoint.losses.build import applies_relu
from counterpoint.losses.loss import Loss
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.methods.catalogue import method_named
from counterpoint.methods.queue import QueueContrast
from counterpoint.methods.wiring import Head, MethodParts, build_method
from counterpoint.nn.encoders import feature_width, has_stem, initial_encoder, own_copy, with_pooling
from counterpoint.nn.heads import OutputMap, build_projector, check_subvector
from counterpoint.nn.method import Method
from counterpoint.nn.synced_norm import batch_norm_layers, with_synced_norm
from counterpoint.nn.trained import Encoder, EncoderCard
from counterpoint.runs.active_settings import chosen
from counterpoint.runs.resolve import Resolution, resolve, resolve_widths
from counterpoint.runs.resuming import settings_hash
from counterpoint.runs.user_inputs import Given
from counterpoint.runs.warm_start import RECORD, Statistics, WarmStart

STATISTICS_SAMPLES = 10_000  # samples from which mean and deviation are taken, at most
STATISTICS_CHUNK = 256


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
    start: WarmStart | None = None

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
    def loss(self) -> Loss:
        """The loss of the method."""
        return cast(Loss, self.method.loss)

    @property
    def num_negatives(self) -> int | None:
        """Vectors that repel each anchor; None for losses that do not count them."""
        return self.loss.num_negatives(self.loss_batch) if isinstance(self.loss, PairLoss | QueueContrast) else None


def assemble(
    resolution: Resolution, source: Source, placement: Placement, given: Given, start: WarmStart | None = None
) -> Assembled:
    """Build encoder, projector, method and order.

    Args:
        resolution: settings with the holdout filled in.
        source: the data.
        placement: device, precision and ranks.
        given: the user's own encoder, loss and views, if any.
        start: weights that the encoder begins with; None draws them.

    Raises:
        UsageError: a name is unknown, weights do not fit, or a number does not fit the data, the encoder or the ranks.
        DataError: too few samples.
    """
    settings = resolution.settings
    if len(source) < 4:
        raise DataError(f"{source.name} holds {len(source)} usable samples; contrastive training needs at least 4")
    split = split_source(len(source), source.labels, float(settings.source.holdout))
    # After the split: what is held out keeps the classes as the data have them.
    thinned = thin(split.train, source.labels, settings.source, source.class_names)
    if start is not None:
        start.choose_encoder(resolution, source.shape)
    # Batch and epochs go by the samples that are left.
    settings = resolve(resolution, source, len(thinned.positions), placement, given.views).settings
    _check_engine(settings, placement, len(thinned.positions))
    order = build_order(
        thinned.positions, source.labels, int(settings.batch_size), settings.seed, settings.source.sampling
    )
    backbone = initial_backbone(settings, source.shape, given.encoder)
    width = feature_width(backbone, source.shape)
    # Only the built encoder says how wide it is: projector, predictor and d0 follow from that.
    settings = resolve_widths(resolution, width).settings
    statistics = None if start is None else start.statistics_for(source, settings.encoder)
    card = _card(settings, source, width, statistics or channel_statistics(source, thinned.positions))
    encoder = Encoder(card, backbone, _projector(settings, card))
    if start is not None:  # before the method, which may copy the encoder
        start = start.load_into(encoder)
    method = _method(settings, source, encoder, placement, given.loss)
    # Last: the trial has the width and the batch of the run.
    kernels = _try_loss(settings, method, encoder.embedding_dims, len(source.class_names))
    return Assembled(
        resolution=resolution,
        placement=placement,
        source=source,
        split=split,
        positions=thinned.positions,
        order=order,
        class_counts=thinned.counts,
        encoder=encoder,
        method=method,
        kernels=kernels,
        views=given.views,
        start=start,
    )


def training_job(assembled: Assembled, folder: RunFolder) -> TrainingJob:
    """The training job that will write to a run folder; nothing is written yet.

    Args:
        assembled: its parts.
        folder: of the run.

    Raises:
        UsageError: a logger is not installed, or the data do not allow what should be measured.
    """
    settings, engine = assembled.settings, assembled.settings.engine
    method, order, placement = assembled.method, assembled.order, assembled.placement
    method.to(placement.torch_device)
    chance, floor = _levels(assembled)
    return TrainingJob(
        settings=settings,
        method=method,
        optimizer=build_optimizer(method, settings.optim, is_sharded=engine.strategy == "fsdp"),
        schedule=build_schedule(
            settings.optim, num_epochs=int(settings.epochs), batches_per_epoch=order.batches_per_epoch
        ),
        loader=_loader(assembled),
        views=view_drawer(settings, assembled.encoder.card, assembled.views),
        engine=Engine(placement, compiles=engine.compile, shards=engine.strategy == "fsdp"),
        folder=folder,
        chance=chance,
        floor=floor,
        measurements=_measurements(assembled),
        loggers=build_loggers(engine, folder) if is_first_rank() else (),
        facts=_facts(assembled),
    )


def _loader(assembled: Assembled) -> BatchLoader:
    """Batches of this rank's samples, on its device."""
    engine, placement, source = assembled.settings.engine, assembled.placement, assembled.source
    return BatchLoader(
        source.store,
        assembled.order,
        # A loss that reads no labels is given none: they cannot have a say in its training.
        labels=source.labels if assembled.loss.uses_labels else None,
        second=source.second,
        num_workers=engine.workers,
        destination=Destination(placement.torch_device, placement.ranks.rank, placement.world_size, engine.accumulate),
    )


def _levels(assembled: Assembled) -> tuple[float | None, float | None]:
    """What the loss curve is read against: chance and floor, each None where a loss has no such level."""
    is_nonnegative = assembled.settings.output.nonnegative != "none"
    chance = assembled.loss.chance(assembled.loss_batch)
    floor = assembled.loss.floor(assembled.loss_batch, nonnegative=is_nonnegative)
    # Where collapse is the lowest loss (BYOL, SimSiam), what looks all alike is no level to come down from.
    has_chance = math.isfinite(chance) and chance > floor
    return chance if has_chance else None, floor if math.isfinite(floor) else None


def _measurements(assembled: Assembled) -> tuple[Measurement, ...]:
    """What joins each epoch's record."""
    every = assembled.settings.engine.knn_every
    if every == "none":
        return ()
    # The neighbours are those that are trained on, thinned or not; the queries are held out.
    split = Split(assembled.positions, assembled.split.held_out)
    return (EpochKNN(assembled.source, split, assembled.encoder, every=every),)


def _facts(assembled: Assembled) -> dict[str, Any]:
    """What a checkpoint should say about the run."""
    return {
        "seed": assembled.settings.seed,
        "torch": torch.__version__.split("+")[0],  # 2.9.0+cu128: the build is not told
        "num_threads": torch.get_num_threads(),
        "device": assembled.settings.engine.device,
        "world_size": world_size(),
        "settings": settings_hash(assembled.settings),
        # Without the folder: checkpoints of one run are the same bytes wherever it is.
        "resolved": assembled.settings.model_dump(mode="json", exclude={"out"}),
        "data": assembled.source.fingerprint,
        **({} if assembled.start is None else {RECORD: assembled.start.record()}),
    }


def _check_engine(settings: TrainSettings, placement: Placement, num_train: int) -> None:
    """Queues fit the data, and every rank and every sub-batch gets equally many samples."""
    asked = settings.target.queue_size
    if method_named(settings.method).queue_size is not None and asked != "auto" and asked > num_train:
        raise UsageError(
            f"target.queue_size must be at most the number of training samples, {num_train}, got {asked}: a longer "
            "queue holds the anchor's own key"
        )
    size, ranks, parts = int(settings.batch_size), placement.world_size, settings.engine.accumulate
    # Each sub-batch, over all ranks, is a batch to the loss and needs a sample to repel.
    if size % (ranks * parts) or size // parts < 2:
        shares = f"{ranks} ranks" + (f" x {parts} sub-batches" if parts > 1 else "")
        step = ranks * parts
        raise UsageError(
            f"batch_size must be a multiple of {step} ({shares}), got {size}; use --batch-size "
            f"{max(step, 2 * parts, size // step * step)}"  # the nearest below
        )


def _method(
    settings: TrainSettings, source: Source, encoder: Encoder, placement: Placement, loss: Loss | None
) -> Method:
    """The method, with BatchNorm over all ranks where there are several."""
    card = encoder.card
    parts = MethodParts(
        backbone=encoder.backbone,
        # Losses scale to unit length themselves, or take lengths as they are (VICReg).
        head=Head(encoder.projector, OutputMap(d0=card.d0, nonnegative=card.nonnegative, normalize=False)),
        width=card.width,
        projected_width=card.projected_width,
        num_classes=0 if source.labels is None else len(source.class_names),
        in_shape=source.shape,
        second_shape=source.second_shape,
        seed=settings.seed,
        loss=loss,
    )
    method = build_method(settings, parts)
    if placement.world_size == 1:
        return method
    name, _ = next(batch_norm_layers(method), ("", None))
    if name and not settings.engine.sync_norm:
        raise UsageError(
            f"{placement.world_size} ranks, and layer {name} is a BatchNorm, whose statistics would be each rank's "
            "own; use --engine.sync-norm true, or an encoder and projector without BatchNorm"
        )
    with_synced_norm(method)
    return method


def _try_loss(settings: TrainSettings, method: Method, num_features: int, num_classes: int) -> list[Choice]:
    """Try the loss once on the run's device: what it lacks shows before the first step, and so do its kernels."""
    loss = cast(Loss, method.loss)
    generator = torch.Generator().manual_seed(0)
    batch_size = int(settings.batch_size) // settings.engine.accumulate
    # As large as in training, since kernels are chosen by size.
    trial = torch.randn(batch_size, num_features, generator=generator).to(settings.engine.device)
    labels = torch.arange(batch_size, device=trial.device) % num_classes if loss.uses_labels else None
    try:
        with recording() as choices:
            # A copy, so that nothing that a loss keeps is changed by the trial.
            copy.deepcopy(loss).to(trial.device)(trial, trial, labels)
    except (TypeError, ValueError) as error:
        raise UsageError(f"loss.name {settings.loss.name}: {error}") from None
    return choices


def initial_backbone(settings: TrainSettings, in_shape: tuple[int, ...], module: nn.Module | None) -> nn.Module:
    """The untrained encoder of a run: the same weights for the same seed, or a copy of the user's module."""
    if isinstance(module, Encoder):
        raise UsageError("a loaded encoder prepares its input itself, and views are prepared; pass encoder.backbone")
    if module is not None:
        return with_pooling(own_copy(module), in_shape)
    if settings.encoder == CUSTOM:
        raise UsageError("this run was trained with your own module; pass it as encoder=")
    return initial_encoder(settings.encoder, in_shape, settings.seed, settings.stem, settings.initial)


def _projector(settings: TrainSettings, card: EncoderCard) -> nn.Module:
    """The untrained projector of a run."""
    with own_draws(settings.seed + 1):  # not the encoder's own numbers again
        return build_projector(
            card.projector, card.width, hidden=card.hidden, features=card.features, details=card.projector_details
        )


def _card(settings: TrainSettings, source: Source, width: int, statistics: Statistics) -> EncoderCard:
    """What the run folder records about the encoder."""
    asked, method = settings.projector, method_named(settings.method)  # what the projector does not read is still auto
    features = int(chosen(asked.features, method.features_for(width)))
    output_norm = chosen(asked.output_norm, method.projector_output_norm)
    mean, std = statistics
    card = EncoderCard(
        architecture=settings.encoder,
        kind=source.kind,
        in_shape=source.shape,
        mean=mean,
        std=std,
        width=width,
        projector=asked.kind,
        hidden=int(chosen(asked.hidden, method.hidden_for(width, features))),
        features=features,
        nonnegative=_trained_map(settings),
        d0=None if settings.output.d0 == "all" else int(settings.output.d0),
        layers=int(chosen(asked.layers, method.projector_layers)),
        norm=chosen(asked.norm, method.projector_norm),
        output_norm=output_norm != "none",
        output_scale=output_norm == "batch",
        rank=chosen(asked.rank, None),
        stem=settings.stem if has_stem(settings.encoder) else "small",
    )
    if card.d0 is not None:
        check_subvector(card.d0, card.projected_width)
    return card


def _trained_map(settings: TrainSettings) -> str:
    """The non-negative map of what is compared: the one asked for, or the loss's own ReLU."""
    asked, loss = settings.output.nonnegative, settings.loss
    return "relu" if asked == "none" and applies_relu(loss.name, loss.options) else asked


def channel_statistics(source: Source, train: Tensor) -> Statistics:
    """Mean and deviation per channel (images, values in [0, 1]) or per feature (vectors) over training samples.

    A constant channel gets deviation 1, so that it becomes zero rather than NaN.
    """
    # Evenly spaced: samples of one class often lie together.
    chosen = train[torch.linspace(0, len(train) - 1, min(len(train), STATISTICS_SAMPLES)).long()].tolist()
    count, mean, squares, largest = 0, torch.zeros(1), torch.zeros(1), torch.zeros(1)
    for first in range(0, len(chosen), STATISTICS_CHUNK):
        samples = source.store.fetch(chosen[first : first + STATISTICS_CHUNK])
        # In float64: a channel has up to some 10^8 pixels.
        values = (to_unit_float(samples) if source.kind == "images" else samples).double()
        values = values.movedim(1, 0).flatten(1)  # channels or features, then everything else
        own, own_mean = values.shape[1], values.mean(dim=1)
        # Source: chan1983, Eq. 1.5: sums of squares of two parts, merged.
        squares = squares + (values - own_mean[:, None]).square().sum(dim=1)
        squares = squares + (own_mean - mean).square() * (count * own / (count + own))
        # After the squares, which need the mean of before.
        mean = mean + (own_mean - mean) * (own / (count + own))
        largest = torch.maximum(largest, values.abs().amax(dim=1))
        count += own
    std = (squares / (count - 1)).sqrt()
    # Rounding leaves a constant channel a deviation of about 1e-16 of its values, and not 0.
    std = torch.where(std > 1e-8 * largest.clamp(min=1e-30), std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
