"""Build the parts of a run from its settings, so that all mistakes show before the first step."""

import copy
import statistics as figures
from dataclasses import dataclass
from typing import cast

import torch

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.data.order import Order, build_order
from counterpoint.data.source import Source
from counterpoint.engine.placement import Placement
from counterpoint.kernels.select import Choice, recording
from counterpoint.losses.loss import Loss
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.methods.target_branch import QueueContrast
from counterpoint.methods.wiring import Head, MethodParts, build_method
from counterpoint.nn.encoders import IDENTITY, feature_width
from counterpoint.nn.heads import OutputMap
from counterpoint.nn.method import Method
from counterpoint.nn.synced_norm import with_synced_norm
from counterpoint.nn.trained import Encoder
from counterpoint.runs.resolve import Resolution, TrainingPart, resolve, resolve_widths, training_part
from counterpoint.runs.untrained_encoder import channel_statistics, initial_backbone, untrained_encoder
from counterpoint.runs.user_inputs import UserInputs
from counterpoint.runs.warm_start import WarmStart


@dataclass(frozen=True)
class Assembled:
    """The parts of a run."""

    resolution: Resolution
    placement: Placement
    source: Source
    part: TrainingPart
    order: Order
    encoder: Encoder
    method: Method
    kernels: list[Choice]
    inputs: UserInputs
    start: WarmStart | None = None

    @property
    def settings(self) -> TrainSettings:
        """Every setting, filled in."""
        return self.resolution.settings

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters of encoder and projector."""
        parts = (self.encoder.backbone, self.encoder.projector)
        return sum(p.numel() for part in parts for p in part.parameters() if p.requires_grad)

    @property
    def num_train(self) -> int:
        """Number of distinct samples that are trained on."""
        return len(self.part.positions)

    @property
    def loss(self) -> Loss:
        """The loss of the method."""
        return cast(Loss, self.method.loss)

    @property
    def num_negatives(self) -> int | None:
        """Number of vectors that repel each anchor; None for a loss that does not count them."""
        return (
            self.loss.num_negatives(self.order.batch_size) if isinstance(self.loss, PairLoss | QueueContrast) else None
        )


def assemble(
    resolution: Resolution, source: Source, placement: Placement, inputs: UserInputs, start: WarmStart | None = None
) -> Assembled:
    """Build encoder, projector, method and order.

    Args:
        resolution: settings with the holdout filled in.
        source: the data.
        placement: device, precision and ranks.
        inputs: the user's own encoder, loss and views, if any.
        start: weights that the encoder begins with; None draws them.

    Raises:
        UsageError: a name is unknown, weights do not fit, or a number does not fit the data, the encoder or the ranks.
        DataError: too few samples.
    """
    settings = resolution.settings
    if len(source) < 4:
        raise DataError(f"{source.name} holds {len(source)} usable samples; contrastive training needs at least 4")
    part = training_part(settings, source)
    if start is not None:
        start.choose_encoder(resolution, source.shape)
    # Batch and epochs go by the samples that are left.
    settings = resolve(resolution, source, len(part.positions), placement, inputs.views).settings
    _check_engine(resolution, placement, len(part.positions))
    order = build_order(
        part.positions, source.labels, int(settings.batch_size), settings.seed, settings.source.sampling
    )
    backbone = initial_backbone(settings, source.shape, inputs.encoder)
    width = feature_width(backbone, source.shape)
    # Only the built encoder says how wide it is: projector, predictor and d0 follow from that.
    settings = resolve_widths(resolution, width).settings
    statistics = None if start is None else start.statistics_for(source, settings.encoder)
    statistics = statistics or channel_statistics(source, part.positions)
    if settings.encoder == IDENTITY:  # features keep their proportions: what varies little stays small
        statistics = statistics[0], (figures.median(statistics[1]),) * len(statistics[1])
    encoder = untrained_encoder(settings, source, backbone, width, statistics)
    if start is not None:  # before the method, which may copy the encoder
        start = start.load_into(encoder)
    method = _assemble_method(settings, source, encoder, placement, inputs.loss)
    # Last: the trial has the width and the batch of the run.
    kernels = _try_loss(settings, method, encoder.embedding_dims, len(source.class_names))
    return Assembled(
        resolution=resolution,
        placement=placement,
        source=source,
        part=part,
        order=order,
        encoder=encoder,
        method=method,
        kernels=kernels,
        inputs=inputs,
        start=start,
    )


def _check_engine(resolution: Resolution, placement: Placement, num_train: int) -> None:
    settings = resolution.settings
    queue_size = settings.target.queue_size
    if "target.queue_size" not in resolution.idle and queue_size != "auto" and queue_size > num_train:
        raise UsageError(
            f"target.queue_size must be at most the number of training samples, {num_train}, got {queue_size}: a "
            "longer queue holds the anchor's own key"
        )
    size, ranks = int(settings.batch_size), placement.world_size
    if size % ranks:
        nearest = max(ranks, size // ranks * ranks)  # from below
        raise UsageError(
            f"batch_size must be a multiple of {ranks} ({ranks} ranks), got {size}; use --batch-size {nearest}"
        )


def _assemble_method(
    settings: TrainSettings, source: Source, encoder: Encoder, placement: Placement, loss: Loss | None
) -> Method:
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
    if placement.world_size > 1:
        with_synced_norm(method)
    return method


def _try_loss(settings: TrainSettings, method: Method, num_features: int, num_classes: int) -> list[Choice]:
    """Try the loss once on the run's device: what it lacks shows before the first step, and so do its kernels."""
    loss = cast(Loss, method.loss)
    generator = torch.Generator().manual_seed(0)
    # As large as in training, since kernels are chosen by size.
    batch_size = int(settings.batch_size)
    trial = torch.randn(batch_size, num_features, generator=generator).to(settings.engine.device)
    labels = torch.arange(batch_size, device=trial.device) % num_classes if loss.uses_labels else None
    try:
        with recording() as choices:
            # A copy, so that nothing that a loss keeps is changed by the trial.
            copy.deepcopy(loss).to(trial.device)(trial, trial, labels)
    except (TypeError, ValueError) as error:
        raise UsageError(f"loss.name {settings.loss.name}: {error}") from None
    return choices
