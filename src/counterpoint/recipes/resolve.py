"""Fill in every ``auto`` once data, method and device are known, and say why."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.core.settings import Settings, TrainSettings
from counterpoint.data.presets import PRESETS, choose_preset, filled
from counterpoint.data.source import Source, source_side
from counterpoint.engine.fabric_adapter import Placement
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.methods.catalogue import Method

Section = TypeVar("Section", bound=Settings)

HOLDOUT = 0.2
LARGEST_BATCH = 256
TARGET_STEPS = 400
EPOCH_RANGE = (10, 200)
EMBEDDING_DIMS = 128
LEARNING_RATE = {"adamw": 2e-3, "sgd": 0.06}
WEIGHT_DECAY = {"adamw": 1e-4, "sgd": 5e-4}
WARMUP_SHARE = 0.05
CHECKPOINTS_PER_RUN = 10
CONVNET_LARGEST_SIDE = 64


@dataclass
class Resolution:
    """Settings without ``auto``, and the reason of each value that was filled in."""

    settings: TrainSettings
    reasons: dict[str, str] = field(default_factory=dict)

    def fill(self, path: str, choose: Callable[[], tuple[Any, str]]) -> None:
        """Replace the setting at a dotted path if it is ``auto``."""
        *parents, leaf = path.split(".")
        section = self.settings if not parents else getattr(self.settings, parents[0])
        if getattr(section, leaf) != "auto":
            return
        value, reason = choose()
        self.reasons[path] = reason
        changed = section.model_copy(update={leaf: value})
        self.settings = self.settings.model_copy(update={parents[0]: changed}) if parents else changed


def method_of(settings: TrainSettings) -> Method:
    """The chosen method.

    Raises:
        UsageError: unknown name.
    """
    if settings.method not in METHODS:
        raise unknown_name("method", settings.method, METHODS)
    return METHODS[settings.method]


def resolve_holdout(settings: TrainSettings, source: Source) -> Resolution:
    """Fill in what must be known before the data can be split."""
    resolution = Resolution(settings)
    resolution.reasons.update(source.notes)
    has_labels = source.labels is not None
    reason = (
        "labels are known, so an honest evaluation is possible" if has_labels else "no labels: everything is trained on"
    )
    resolution.fill("source.holdout", lambda: (HOLDOUT if has_labels else 0.0, reason))
    side = source_side(source.shape)
    if source.kind == "images" and settings.source.image_size not in ("auto", side):
        raise UsageError(f"source.image_size resizes folders only; {source.name} holds images of {source.shape[1]} px")
    why = "the size of the data" if source.kind == "images" else "not used: the data are vectors"
    resolution.fill("source.image_size", lambda: (side, source.notes.get("source.image_size", why)))
    return resolution


def resolve(resolution: Resolution, source: Source, num_train: int, placement: Placement) -> Resolution:
    """Fill in the rest, except what depends on the encoder's width (see ``resolve_widths``)."""
    method = method_of(resolution.settings)
    fill = resolution.fill
    by_method = f"as {resolution.settings.method} has it ({method.source})"
    fill("encoder", lambda: _encoder(source, placement))
    fill("batch_size", lambda: _batch_size(num_train))
    batches = max(1, num_train // int(resolution.settings.batch_size))
    fill("epochs", lambda: _epochs(batches))
    fill("temperature", lambda: (method.temperature, by_method))
    fill("projector.kind", lambda: (method.projector, by_method))
    fill("output.nonnegative", lambda: (method.nonnegative, by_method))
    fill("loss.negatives", lambda: (method.negatives, by_method))
    resolve_views(resolution, source)
    optimiser = resolution.settings.optim.name
    share = int(resolution.settings.batch_size) / 128 if optimiser == "sgd" else 1.0
    fill(
        "optim.learning_rate",
        lambda: (
            LEARNING_RATE[optimiser] * share,
            f"default of {optimiser}" + (", in proportion to the batch" if optimiser == "sgd" else ""),
        ),
    )
    fill("optim.weight_decay", lambda: (WEIGHT_DECAY[optimiser], f"default of {optimiser}"))
    epochs = int(resolution.settings.epochs)
    fill("optim.warmup_epochs", lambda: (round(WARMUP_SHARE * epochs, 2), f"{WARMUP_SHARE:.0%} of the epochs"))
    fill(
        "engine.checkpoint_every",
        lambda: (math.ceil(epochs / CHECKPOINTS_PER_RUN), f"about {CHECKPOINTS_PER_RUN} checkpoints per run"),
    )
    fill("engine.device", lambda: (placement.device, placement.reasons["engine.device"]))
    fill("engine.precision", lambda: (placement.precision, placement.reasons["engine.precision"]))
    return resolution


def resolve_views(resolution: Resolution, source: Source) -> Resolution:
    """Fill in the views."""
    resolution.fill("views.preset", lambda: choose_preset(source.kind, source.shape))
    preset = resolution.settings.views.preset
    if preset in PRESETS and preset != "none" and (preset == "vectors") != (source.kind == "vectors"):
        raise UsageError(
            f"views.preset {preset} is not for {source.kind}; leave it at auto, or see `counterpoint list views`"
        )
    for name, value in filled(resolution.settings.views):
        resolution.fill(f"views.{name}", lambda value=value: (value, f"preset {preset}"))
    return resolution


def resolve_widths(resolution: Resolution, width: int) -> Resolution:
    """Fill in what follows from the encoder's width."""
    settings = resolution.settings
    method = method_of(settings)
    resolution.fill("projector.features", lambda: (EMBEDDING_DIMS, "default"))
    features = int(resolution.settings.projector.features)
    resolution.fill("projector.hidden", lambda: (max(width, features), "the larger of the mlp's two ends"))
    dims = width if settings.projector.kind == "none" else features
    if method.d0_share is None:
        resolution.fill("output.d0", lambda: ("all", "the loss sees the whole vector"))
    else:
        share = method.d0_share
        resolution.fill(
            "output.d0", lambda: (max(2, round(share * dims)), f"{share:.1%} of {dims} dimensions ({method.source})")
        )
    return resolution


def _encoder(source: Source, placement: Placement) -> tuple[str, str]:
    if source.kind == "vectors":
        return "mlp", "the data are vectors"
    side = max(source.shape[1:])
    if side <= 16 or (placement.device == "cpu" and side <= CONVNET_LARGEST_SIDE):
        return "convnet", f"images of {side} px on {placement.device}: small enough to train in minutes"
    return (
        ("resnet9", f"images of {side} px")
        if placement.device == "cpu"
        else ("resnet18", f"images of {side} px on a GPU")
    )


def _batch_size(num_train: int) -> tuple[int, str]:
    """Largest power of two up to a quarter of the samples, at most 256."""
    quarter = max(2, num_train // 4)
    size = min(LARGEST_BATCH, 1 << (quarter.bit_length() - 1))
    return size, f"a power of two, at most {LARGEST_BATCH} and at most a quarter of {num_train} training samples"


def _epochs(batches_per_epoch: int) -> tuple[int, str]:
    """Enough epochs for about ``TARGET_STEPS`` updates."""
    low, high = EPOCH_RANGE
    epochs = min(high, max(low, math.ceil(TARGET_STEPS / batches_per_epoch)))
    return epochs, f"about {TARGET_STEPS} updates at {batches_per_epoch} per epoch, between {low} and {high} epochs"
