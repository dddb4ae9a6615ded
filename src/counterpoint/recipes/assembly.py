"""Build every part of a run from its settings, so that all mistakes show before the first step."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.data.loader import BatchLoader
from counterpoint.data.order import EpochOrder, Split, split_source
from counterpoint.data.source import Source
from counterpoint.engine.fabric_adapter import FabricEngine, place
from counterpoint.engine.loop import TrainingJob
from counterpoint.engine.optimisers import WarmupCosine, build_optimizer
from counterpoint.evaluation.trained_run import view_drawer
from counterpoint.kernels.select import Choice, recording
from counterpoint.losses.build import build_loss, parameters_of
from counterpoint.losses.loss import Loss
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.methods.joint import JointEmbedding
from counterpoint.nn.encoders import CUSTOM, feature_width, initial_encoder, with_pooling
from counterpoint.nn.outputs import OutputMap, check_subvector
from counterpoint.nn.projectors import build_projector
from counterpoint.nn.trained import Encoder, EncoderCard
from counterpoint.recipes.resolve import Resolution, resolve, resolve_widths

STATISTICS_SAMPLES = 10_000  # samples from which mean and deviation are taken, at most


@dataclass(frozen=True)
class Assembled:
    """The parts of a run."""

    resolution: Resolution
    split: Split
    encoder: Encoder
    loss: Loss
    kernels: list[Choice]
    order: EpochOrder
    source: Source

    @property
    def num_parameters(self) -> int:
        """Trainable parameters of encoder and projector."""
        parts = (self.encoder.backbone, self.encoder.projector)
        return sum(p.numel() for part in parts for p in part.parameters() if p.requires_grad)

    @property
    def num_negatives(self) -> int | None:
        """Vectors that repel each anchor; None for losses that do not count them."""
        return self.loss.num_negatives(self.order.batch_size) if isinstance(self.loss, PairLoss) else None

    def pairs(self) -> str:
        """What the loss contrasts, in words."""
        settings, card = self.resolution.settings, self.loss.card
        takes_temperature = "temperature" in parameters_of(settings.loss.name)
        heat = f"temperature {settings.temperature:g}" if takes_temperature else f"{card.name} takes no temperature"
        if self.num_negatives is None:
            return f"{card.name}: {card.negatives} (batch {self.order.batch_size}); {heat}"
        return (
            f"each anchor sees {self.num_negatives} negatives (batch "
            f"{self.order.batch_size}, {settings.loss.negatives}); {heat}"
        )

    def banner(self, source: Source) -> str:
        """What a user should know before the first step."""
        settings, card = self.resolution.settings, self.encoder.card
        samples = f"{len(source):,} {source.kind} {'x'.join(map(str, source.shape))}"
        held_out = f", {len(self.split.held_out):,} held out" if len(self.split.held_out) else ""
        labels = f"{len(source.class_names)} classes (used in evaluation only)" if source.labels is not None else "none"
        return (
            f"{settings.method} on {source.name}: {samples}; {len(self.split.train):,} to train on{held_out}; "
            f"labels: {labels}\n"
            f"encoder {card.architecture} (width {card.width}), embedding {self.encoder.embedding_dims}, "
            f"{self.num_parameters:,} parameters; device {settings.engine.device}, precision "
            f"{settings.engine.precision}\n"
            f"{self.pairs()}; {settings.epochs} epochs of {self.order.batches_per_epoch} steps"
        )

    def job(self, folder: RunFolder) -> TrainingJob:
        """The training job that writes to a run folder."""
        settings = self.resolution.settings
        engine = FabricEngine(place(settings.engine.device, settings.engine.precision))
        card = self.encoder.card
        # Losses scale to unit length themselves, or take lengths as they are (VICReg).
        output_map = OutputMap(d0=card.d0, nonnegative=card.nonnegative, normalize=False)
        method = JointEmbedding(self.encoder.backbone, self.encoder.projector, output_map, self.loss)
        batch_size, batches = self.order.batch_size, self.order.batches_per_epoch
        optimizer = build_optimizer(method, settings.optim)
        optimizer.register_step_post_hook(lambda *_: method.after_step())
        num_epochs, warmup = int(settings.epochs), float(settings.optim.warmup_epochs)
        return TrainingJob(
            method=method,
            optimizer=optimizer,
            schedule=WarmupCosine(float(settings.optim.learning_rate), num_epochs * batches, round(warmup * batches)),
            loader=BatchLoader(self.source.store, self.order, num_workers=settings.engine.workers),
            views=view_drawer(settings, self.encoder.card),
            engine=engine,
            folder=folder,
            num_epochs=num_epochs,
            checkpoint_every=int(settings.engine.checkpoint_every),
            keep=settings.engine.keep,
            chance=_level(self.loss.chance(batch_size)),
            floor=_level(self.loss.floor(batch_size, nonnegative=settings.output.nonnegative != "none")),
            seed=settings.seed,
        )


def _level(value: float) -> float | None:
    """A level that a curve can be read against; None where a loss has none."""
    return value if math.isfinite(value) else None


def assemble(resolution: Resolution, source: Source, module: nn.Module | None) -> Assembled:
    """Build encoder, projector, loss and order.

    Args:
        resolution: settings with the holdout filled in.
        source: the data.
        module: the user's own encoder, if any.

    Raises:
        UsageError: a name is unknown, or a number does not fit the data or the encoder.
        DataError: too few samples.
    """
    settings = resolution.settings
    if len(source) < 4:
        raise DataError(f"{source.name} holds {len(source)} usable samples; contrastive training needs at least 4")
    split = split_source(len(source), source.labels, float(settings.source.holdout))
    placement = place(settings.engine.device, settings.engine.precision)
    settings = resolve(resolution, source, len(split.train), placement).settings
    order = EpochOrder(split.train, int(settings.batch_size), settings.seed)
    backbone = initial_backbone(settings, source.shape, module)
    width = feature_width(backbone, source.shape)
    settings = resolve_widths(resolution, width).settings
    card = _card(settings, source, split.train, width)
    projector = _projector(settings, width)
    encoder = Encoder(card, backbone, projector)
    loss, kernels = _loss(settings, order.batch_size, encoder.embedding_dims)
    return Assembled(resolution, split, encoder, loss, kernels, order, source)


def _loss(settings: TrainSettings, batch_size: int, num_features: int) -> tuple[Loss, list[Choice]]:
    """The loss, tried once on the run's device: what it lacks shows before the first step, and so do its kernels."""
    asked = settings.loss
    common = {"temperature": float(settings.temperature), "epsilon": asked.epsilon, "negatives": asked.negatives}
    generator = torch.Generator().manual_seed(0)
    trial = torch.randn(batch_size, num_features, generator=generator).to(settings.engine.device)
    try:
        loss = build_loss(asked.name, common, asked.options)
        if loss.uses_labels:
            raise ValueError(
                "it learns from labels, which training does not use; call counterpoint.losses in your own loop"
            )
        with recording() as choices:
            build_loss(asked.name, common, asked.options).to(settings.engine.device)(trial, trial)
    except (TypeError, ValueError) as error:
        raise UsageError(f"loss.name {asked.name}: {error}") from None
    return loss, choices


def initial_backbone(settings: TrainSettings, in_shape: tuple[int, ...], module: nn.Module | None) -> nn.Module:
    """The untrained encoder of a run: the same weights for the same seed. A user's module is taken as it is."""
    if module is not None:
        return with_pooling(module, in_shape)
    if settings.encoder == CUSTOM:
        raise UsageError("this run was trained with your own module; pass it as encoder=")
    return initial_encoder(settings.encoder, in_shape, settings.seed)


def _projector(settings: TrainSettings, width: int) -> nn.Module:
    """The untrained projector of a run."""
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed + 1)
        features = int(settings.projector.features)
        return build_projector(settings.projector.kind, width, hidden=int(settings.projector.hidden), features=features)


def _card(settings: TrainSettings, source: Source, train: Tensor, width: int) -> EncoderCard:
    """What the run folder records about the encoder."""
    features = width if settings.projector.kind == "none" else int(settings.projector.features)
    d0 = None if settings.output.d0 == "all" else int(settings.output.d0)
    if d0 is not None:
        check_subvector(d0, features)
    mean, std = channel_statistics(source, train)
    return EncoderCard(
        architecture=settings.encoder,
        kind=source.kind,
        in_shape=source.shape,
        mean=mean,
        std=std,
        width=width,
        projector=settings.projector.kind,
        hidden=int(settings.projector.hidden),
        features=features,
        nonnegative=settings.output.nonnegative,
        d0=d0,
    )


def channel_statistics(source: Source, train: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation per channel (images, values in [0, 1]) or per feature (vectors) over training samples.

    A constant channel gets deviation 1, so that it becomes zero rather than NaN.
    """
    chosen = train[torch.linspace(0, len(train) - 1, min(len(train), STATISTICS_SAMPLES)).long()].tolist()
    samples = source.store.fetch(chosen)
    values = to_unit_float(samples).double() if source.kind == "images" else samples.double()
    axes = (0, 2, 3) if values.ndim == 4 else (0,)
    std = values.std(dim=axes)
    std = torch.where(std > 1e-8 * values.abs().amax(dim=axes).clamp(min=1e-30), std, 1.0)
    return tuple(values.mean(dim=axes).tolist()), tuple(std.tolist())
