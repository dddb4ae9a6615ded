"""Build a method from resolved settings: which wiring, which loss, which further weights."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import own_draws
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.views.presets import local_size, plan_views
from counterpoint.losses.build import build_loss
from counterpoint.losses.cross_entropy import ClassLoss
from counterpoint.losses.distribution import SlicedLoss
from counterpoint.losses.loss import Loss
from counterpoint.methods.catalogue import MethodEntry, chosen, method_named
from counterpoint.methods.encoding import Chunks, GradientCache, Head
from counterpoint.methods.joint import Classification, JointEmbedding, TwoTowers
from counterpoint.methods.target_branch import MomentumQueue, Predictive, QueueContrast
from counterpoint.nn.encoders import build_encoder, feature_width
from counterpoint.nn.heads import build_projector, check_subvector, perceptron
from counterpoint.nn.synced_norm import batch_norm_layers

Wiring = JointEmbedding | MomentumQueue | Predictive | TwoTowers | Classification

# Backbone and projector have seed and seed + 1.
PREDICTOR_SEED, QUEUE_SEED, SECOND_SEED, CLASSIFIER_SEED = 2, 3, 4, 5
# Losses that only one wiring can use; every other loss is for joint and cross-modal.
OWN_LOSSES: Mapping[str, tuple[str, ...]] = {
    "queue": ("infonce", "dcl"),
    "predictive": ("regression",),
    "classification": ("cross-entropy", "nonnegative-cross-entropy"),
}
ONLY_THERE = {
    "regression": "byol or simsiam",
    "cross-entropy": "supervised",
    "nonnegative-cross-entropy": "nonnegative-supervised",
}


@dataclass(frozen=True)
class MethodParts:
    """Parts that a method is built around.

    Attributes:
        backbone: maps samples to representations (n, width).
        head: the projector, to (n, projected_width), and the output map.
        width: dimensions of the representation.
        projected_width: dimensions of what the projector returns.
        num_classes: number of classes of the data; 0 without labels.
        in_shape: shape of one sample.
        second_shape: shape of its partner in paired data; None otherwise.
        seed: the run's seed.
        loss: loss of the user's own; None for one of the catalogue.
    """

    backbone: nn.Module
    head: Head
    width: int
    projected_width: int
    num_classes: int
    in_shape: tuple[int, ...]
    second_shape: tuple[int, ...] | None
    seed: int
    loss: Loss | None = None

    @property
    def embedding_dims(self) -> int:
        """Dimensions that the loss sees."""
        return self.head.output_map.d0 or self.projected_width


def build_method(settings: TrainSettings, parts: MethodParts) -> Wiring:
    """Put the parts together as the method of the settings has it.

    New weights (predictor, queue, classifier, second encoder) follow from the seed alone, whatever was built before.

    Args:
        settings: settings of the run, resolved; what is still ``auto`` is the method's default.
        parts: encoder, projector and what is known of the data.

    Raises:
        UsageError: an unknown method or loss, a loss that the method cannot use, labels or pairs that the data lack,
            a number that does not fit, or chunks and a BatchNorm.
    """
    entry = method_named(settings.method)
    _check_data(settings.method, entry, parts)
    name = chosen(settings.loss.name, entry.loss)
    check_loss(settings.method, entry, name)
    try:
        method = WIRINGS[entry.wiring](settings, entry, parts)
    except (TypeError, ValueError) as error:
        # These name a setting, or the encoder, themselves.
        prefix = (
            "" if str(error).startswith(("target.", "projector.", "the encoder", "encoder ")) else f"loss.name {name}: "
        )
        raise UsageError(f"{prefix}{error}") from None
    # Encoders must be able to work in chunks, MoCo's and BYOL's copies as well; the predictor sees the whole batch.
    encoders = nn.ModuleDict({name: child for name, child in method.named_children() if name != "predictor"})
    norm = next(batch_norm_layers(encoders), None)
    if norm is not None and settings.engine.chunk_size != "none" and not settings.engine.chunk_norm:
        raise UsageError(
            f"engine.chunk_size {settings.engine.chunk_size}: layer {norm[0]} ({type(norm[1]).__name__}) mixes the "
            "samples of a batch; use --engine.chunk-norm true for statistics per chunk, or an encoder and projector "
            "without BatchNorm"
        )
    return method


def _check_data(method: str, entry: MethodEntry, parts: MethodParts) -> None:
    if entry.needs_labels and not parts.num_classes:
        raise UsageError(
            f"method {method} learns from labels, and the data have no labels; name them with --source.labels, or use "
            "--method simclr"
        )
    if entry.wiring == "cross-modal" and parts.second_shape is None:
        raise UsageError(
            f"method {method} learns from pairs of two kinds, and the data have no pairs; use paired data, or --method "
            "simclr"
        )
    if entry.wiring != "cross-modal" and parts.second_shape not in (None, parts.in_shape):
        raise UsageError(
            f"method {method} sends both views through one encoder, but the pairs have shapes {parts.in_shape} and "
            f"{parts.second_shape}; use --method cross-modal"
        )
    if parts.head.output_map.d0 is not None:
        check_subvector(parts.head.output_map.d0, parts.projected_width)


def check_loss(method: str, entry: MethodEntry, name: str) -> None:
    """Require a loss that the wiring can use.

    Raises:
        UsageError: the wiring cannot use the loss.
    """
    own_losses = OWN_LOSSES.get(entry.wiring)
    if own_losses is not None and name not in own_losses:
        raise UsageError(
            f"loss.name {name}: method {method} takes {' or '.join(own_losses)} only; leave loss.name at auto, or use "
            "--method simclr"
        )
    if own_losses is None and name in ONLY_THERE:
        raise UsageError(f"loss.name {name}: method {method} cannot use it; use --method {ONLY_THERE[name]}")


def loss_of(
    settings: TrainSettings, own: Loss | None = None, *, num_classes: int, further: Mapping[str, Any] | None = None
) -> Loss:
    """The loss of the settings; the method's own options hold for its own loss.

    Args:
        settings: settings of the run, resolved; what is still ``auto`` is the method's default.
        own: the user's own loss, of which a copy is returned; None for one of the catalogue.
        num_classes: number of classes of the data; 0 without labels.
        further: arguments of the loss that the wiring knows.

    Raises:
        ValueError: an option the loss does not take, one that is missing, or labels that the data lack.
    """
    entry, loss_settings = method_named(settings.method), settings.loss
    name = chosen(loss_settings.name, entry.loss)
    if name == CUSTOM:
        if own is None:
            raise ValueError("this run was trained with a loss of your own; pass it as loss=, or name it again")
        # The user's own loss stays as it is.
        return copy.deepcopy(own)
    common = {
        "temperature": float(chosen(settings.temperature, entry.temperature)),
        "epsilon": loss_settings.epsilon,
        "negatives": chosen(loss_settings.negatives, entry.negatives),
    }
    # Later ones win: the method's options, the user's, what the wiring knows.
    options = (dict(entry.options) if name == entry.loss else {}) | loss_settings.options | dict(further or {})
    loss = build_loss(name, common, options)
    if loss.uses_labels and not num_classes:
        raise ValueError("it learns from labels, and the data have no labels; name them with --source.labels")
    return loss


def _joint(settings: TrainSettings, entry: MethodEntry, parts: MethodParts) -> JointEmbedding:
    loss = loss_of(settings, parts.loss, num_classes=parts.num_classes)
    if settings.views.local_crops:
        assert isinstance(loss, SlicedLoss)
        if parts.second_shape is not None:
            raise UsageError("views.local_crops cuts views from one picture, and the data are pairs; leave it at 0")
        channels, *size = parts.in_shape
        shape = (channels, *local_size(plan_views(settings.views), (size[0], size[1])))
        remedy = f"take an encoder that pools, or --views.local-side 1, not {settings.views.local_side}"
        try:
            width = feature_width(parts.backbone, shape)
        except UsageError as error:
            raise UsageError(f"local views: {error}; {remedy}") from None
        if width != parts.width:
            raise UsageError(f"local views have {width} features, and whole ones {parts.width}; {remedy}")
    return JointEmbedding(parts.backbone, parts.head, loss, **_passes(settings))


def _queue(settings: TrainSettings, entry: MethodEntry, parts: MethodParts) -> MomentumQueue:
    loss_of(settings, parts.loss, num_classes=parts.num_classes)  # refuses what the plain loss refuses
    options: dict[str, Any] = {
        "temperature": chosen(settings.temperature, entry.temperature),
        # DCL: the positive is not a part of the denominator.
        "epsilon": 0.0 if settings.loss.name == "dcl" else settings.loss.epsilon,
    }
    unusable = set(settings.loss.options) - set(options)
    if unusable:
        raise ValueError(f"with a queue it takes temperature and epsilon only, got {', '.join(sorted(unusable))}")
    generator = torch.Generator().manual_seed(_seed(parts, QUEUE_SEED))
    size = chosen(settings.target.queue_size, entry.queue_size)
    # Options of the loss go before the general settings.
    options.update(settings.loss.options)
    loss = QueueContrast(int(size), parts.embedding_dims, **options, generator=generator)
    momentum = float(chosen(settings.target.momentum, entry.momentum))
    return MomentumQueue(parts.backbone, parts.head, loss, momentum=momentum, chunks=_chunks(settings))


def _predictive(settings: TrainSettings, entry: MethodEntry, parts: MethodParts) -> Predictive:
    loss: Any = loss_of(settings, parts.loss, num_classes=parts.num_classes)
    hidden = chosen(settings.target.predictor_hidden, entry.predictor_hidden_for(parts.width))
    with own_draws(_seed(parts, PREDICTOR_SEED)):
        # chen2021, section 3 (prediction MLP): neither BatchNorm nor ReLU after the last layer. BYOL's hidden layer is
        # the wider one (grill2020, section 3.3), SimSiam's a bottleneck.
        predictor = perceptron([parts.projected_width, int(hidden), parts.projected_width], norm="batch")
    momentum = None if entry.momentum is None else float(chosen(settings.target.momentum, entry.momentum))
    return Predictive(parts.backbone, parts.head, predictor, loss, momentum=momentum, chunks=_chunks(settings))


def _cross_modal(settings: TrainSettings, entry: MethodEntry, parts: MethodParts) -> TwoTowers:
    """Two encoders, the second an MLP for vectors and of the first one's make for images."""
    loss = loss_of(settings, parts.loss, num_classes=parts.num_classes)
    shape = parts.second_shape
    assert shape is not None
    name = "mlp" if len(shape) == 1 else settings.encoder
    if name == CUSTOM or (len(shape) > 1 and len(parts.in_shape) == 1):
        raise UsageError(
            f"encoder {settings.encoder}: the second kind of sample, of shape {shape}, needs an encoder of the "
            "catalogue; choose one with --encoder"
        )
    with own_draws(_seed(parts, SECOND_SEED)):
        backbone = build_encoder(name, shape, settings.stem, settings.initial)
        width = feature_width(backbone, shape)
        # Both towers must end in one space, so a projector that keeps its input's width will not do.
        projector = build_projector("linear", width, hidden=width, features=parts.projected_width)
    return TwoTowers(parts.backbone, parts.head, backbone, projector, loss, chunks=_chunks(settings))


def _classification(settings: TrainSettings, entry: MethodEntry, parts: MethodParts) -> Classification:
    generator = torch.Generator().manual_seed(_seed(parts, CLASSIFIER_SEED))
    sizes = {"num_classes": parts.num_classes, "num_features": parts.embedding_dims, "generator": generator}
    loss: Any = loss_of(settings, parts.loss, num_classes=parts.num_classes, further=sizes)
    assert isinstance(loss, ClassLoss)
    return Classification(parts.backbone, parts.head, loss, **_passes(settings))


def _passes(settings: TrainSettings) -> dict[str, Any]:
    return {"chunks": _chunks(settings), "is_apart": settings.engine.encode_views == "apart"}


def _chunks(settings: TrainSettings) -> Chunks | None:
    size = settings.engine.chunk_size
    if size == "none":
        return None
    return partial(GradientCache, chunk_size=size, allow_batch_norm=settings.engine.chunk_norm)


def _seed(parts: MethodParts, purpose: int) -> int:
    return (parts.seed + purpose) % 2**63


WIRINGS: Mapping[str, Callable[[TrainSettings, MethodEntry, MethodParts], Wiring]] = {
    "joint": _joint,
    "queue": _queue,
    "predictive": _predictive,
    "cross-modal": _cross_modal,
    "classification": _classification,
}
