"""Fill in every ``auto`` once data, method and device are known, and say why."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import TrainSettings, ViewSettings
from counterpoint.data.order import Split, class_sizes, split_source, thin
from counterpoint.data.source import Source, source_side
from counterpoint.data.views.image_statistics import look, sample_pictures
from counterpoint.data.views.own_views import NUM_TRIED, OwnViews
from counterpoint.data.views.presets import PRESETS, choose_preset, plan_views
from counterpoint.engine.placement import Placement
from counterpoint.losses.build import applies_relu
from counterpoint.methods.catalogue import chosen, method_named
from counterpoint.nn.encoders import LARGEST_SMALL_SIDE, stem_for
from counterpoint.nn.heads import output_width
from counterpoint.runs.active_settings import idle_settings

HOLDOUT = 0.2
LARGEST_BATCH = 256
TARGET_STEPS = 400
EPOCH_RANGE = (10, 200)
LEARNING_RATE = {"adamw": 2e-3, "adam": 2e-3, "sgd": 0.06, "lars": 0.3}
BATCH_OF_RATE = {"sgd": 128, "lars": 256}  # batch to which the rate belongs, if it grows with the batch
WEIGHT_DECAY = {"adamw": 1e-4, "adam": 0.0, "sgd": 5e-4, "lars": 1e-6}
WARMUP_SHARE = 0.05
CHECKPOINTS_PER_RUN = 10
CONVNET_LARGEST_SIDE = 64


@dataclass
class Resolution:
    """Settings without ``auto``, the reason of each value that was filled in, and settings without an effect.

    Attributes:
        settings: the settings, as far as they are filled in.
        reasons: reason of each value that was filled in, by dotted path.
        idle: reason why a setting has no effect, by dotted path.
    """

    settings: TrainSettings
    reasons: dict[str, str] = field(default_factory=dict)
    idle: Mapping[str, str] = field(default_factory=dict)

    def fill(self, path: str, choose: Callable[[], tuple[Any, str]]) -> None:
        """Replace the setting at a dotted path if it is ``auto`` and has an effect."""
        # What has no effect keeps auto: a number there would look as if it were used.
        if path in self.idle:
            return
        *parents, leaf = path.split(".")
        section = self.settings if not parents else getattr(self.settings, parents[0])
        if getattr(section, leaf) != "auto":
            return
        value, reason = choose()
        self.reasons[path] = reason
        changed = section.model_copy(update={leaf: value})
        self.settings = self.settings.model_copy(update={parents[0]: changed}) if parents else changed


@dataclass(frozen=True)
class TrainingPart:
    """The samples that are trained on.

    Attributes:
        split: the samples for training, and those that are held out.
        positions: positions in the source of the samples that are trained on: all for training, or those that are
            left of thinned classes.
        counts: number of these samples by class.
    """

    split: Split
    positions: Tensor
    counts: tuple[int, ...]


def training_part(settings: TrainSettings, source: Source) -> TrainingPart:
    """Split the samples, and thin the classes; the holdout is filled in."""
    split = split_source(len(source), source.labels, float(settings.source.holdout))
    # Thinned after the split: what is held out keeps the classes as the data have them.
    positions = thin(split.train, source.labels, settings.source, source.class_names)
    return TrainingPart(split, positions, class_sizes(source.labels, positions, len(source.class_names)))


def resolve_holdout(settings: TrainSettings, source: Source) -> Resolution:
    """Fill in what must be known before the data can be split."""
    resolution = Resolution(settings, dict(source.notes))
    has_labels = source.labels is not None
    reason = (
        "labels are known, so an honest evaluation is possible" if has_labels else "no labels: everything is trained on"
    )
    resolution.fill("source.holdout", lambda: (HOLDOUT if has_labels else 0.0, reason))
    # Folders are resized as they are read; an array keeps its size.
    side = source_side(source.shape)
    if source.kind == "images" and settings.source.image_size not in ("auto", side):
        raise UsageError(f"source.image_size resizes folders only; {source.name} holds images of {source.shape[1]} px")
    why = "the size of the data" if source.kind == "images" else "not used: the data are vectors"
    resolution.fill("source.image_size", lambda: (side, source.notes.get("source.image_size", why)))
    return resolution


def resolve(
    resolution: Resolution, source: Source, num_train: int, placement: Placement, views: OwnViews | None = None
) -> Resolution:
    """Fill in the rest, except what depends on the encoder's width (see ``resolve_widths``)."""
    method = method_named(resolution.settings.method)
    fill = resolution.fill
    by_method = f"as {resolution.settings.method} has it ({method.source})"
    fill("encoder", lambda: _choose_encoder(source, placement))
    # The order matters from here on: epochs and rates need the batch, the warm-up needs the epochs.
    fill("batch_size", lambda: usual_batch(num_train))
    batches = max(1, num_train // int(resolution.settings.batch_size))
    low, high = EPOCH_RANGE
    usual = min(high, max(low, math.ceil(TARGET_STEPS / batches)))
    why = f"about {TARGET_STEPS} updates at {batches} per epoch, between {low} and {high} epochs"
    fill("epochs", lambda: (usual, why))
    fill("loss.name", lambda: (method.loss, by_method))
    # The paper of the supervised methods has both, and no default.
    is_open = method.wiring == "classification"
    why = "the classifier sees the representation; ncl2024, G.6, has it with and without projector"
    fill("projector.kind", lambda: (method.projector, why if is_open else by_method))
    # This also finds settings without an effect, which `fill` then leaves alone.
    resolve_views(resolution, source, own=views)
    limit = f"images of {max(source.shape[1:], default=0)} px; large above {LARGEST_SMALL_SIDE} px"
    fill("stem", lambda: (stem_for(*source.shape[1:]), limit))
    fill("temperature", lambda: (method.temperature, by_method))
    fill("projector.layers", lambda: (method.projector_layers, by_method))
    fill("projector.norm", lambda: (method.projector_norm, by_method))
    fill("projector.output_norm", lambda: (method.projector_output_norm, by_method))
    fill("target.momentum", lambda: (method.momentum, by_method))
    # As many past keys as are usual, but so few that rarely one of them is a key of the sample itself: a power of two.
    most = method.queue_size or 0
    queue_size = min(most, 1 << max(0, (num_train // 2).bit_length() - 1))
    why = f"at most {most} and at most half of {num_train} training samples"
    fill("target.queue_size", lambda: (queue_size, why))
    loss = resolution.settings.loss
    # First, and with a reason of its own: of two fills the second finds nothing to do.
    if method.nonnegative == "none" and applies_relu(loss.name, loss.options):
        fill("output.nonnegative", lambda: ("relu", f"the loss {loss.name} puts a ReLU on its inputs"))
    fill("output.nonnegative", lambda: (method.nonnegative, by_method))
    fill("loss.negatives", lambda: (method.negatives, by_method))
    optimiser = resolution.settings.optim.name
    # The optimiser's usual rate, in proportion to the batch if that is the custom.
    rate, of_batch, size = LEARNING_RATE[optimiser], BATCH_OF_RATE.get(optimiser), int(resolution.settings.batch_size)
    words = f"default of {optimiser}" + (", in proportion to the batch" if of_batch else "")
    fill("optim.learning_rate", lambda: (rate * size / of_batch if of_batch else rate, words))
    fill("optim.weight_decay", lambda: (WEIGHT_DECAY[optimiser], f"default of {optimiser}"))
    epochs = int(resolution.settings.epochs)
    fill("optim.warmup_epochs", lambda: (round(WARMUP_SHARE * epochs, 2), f"{WARMUP_SHARE:.0%} of the epochs"))
    fill(
        "engine.checkpoint_every",
        lambda: (math.ceil(epochs / CHECKPOINTS_PER_RUN), f"about {CHECKPOINTS_PER_RUN} checkpoints per run"),
    )
    fill("engine.device", lambda: (placement.device, placement.reasons["engine.device"]))
    fill("engine.precision", lambda: (placement.precision, placement.reasons["engine.precision"]))
    fill("engine.encode_views", lambda: ("together", "BatchNorm has the statistics of both views"))
    fill("engine.strategy", lambda: ("ddp", "a copy of the encoder on each rank"))
    return resolution


def resolve_views(resolution: Resolution, source: Source, *, own: OwnViews | None = None) -> Resolution:
    """Fill in the views, and try those of the user's own.

    Args:
        resolution: settings to fill in.
        source: the data.
        own: the user's own views.

    Raises:
        UsageError: a preset for other data, or own views that are none or are not at hand.
    """
    is_seen = source.kind == "images"
    pixels = sample_pictures(source) if is_seen else None
    looks = None if pixels is None else look(pixels)
    resolution.fill("views.preset", lambda: choose_preset(source.kind, source.shape, looks))
    preset = resolution.settings.views.preset
    if preset in PRESETS and preset != "none" and (preset == "vectors") == is_seen:
        raise UsageError(
            f"views.preset {preset} is not for {source.kind}; leave it at auto, or see `counterpoint list views`"
        )
    plan = plan_views(resolution.settings.views) if preset in PRESETS else resolution.settings.views
    # The preset decides what is idle: blur_sigma, for example, has no effect if nothing is blurred.
    resolution.idle = idle_settings(resolution.settings, source.shape)
    for name, value in plan:
        resolution.fill(f"views.{name}", lambda value=value: (value, f"preset {preset}"))  # bound now
    if own is not None:
        own.check(source.store.fetch(range(min(NUM_TRIED, len(source)))) if pixels is None else pixels)
    return resolution


def crop_and_flip(source: Source) -> dict[str, Any]:
    """Settings for the crop and the flip alone, of the views that suit the data; vectors stay as they are."""
    if source.kind == "vectors":
        return {"preset": "none"}
    preset, _ = choose_preset(source.kind, source.shape, look(sample_pictures(source)))
    plan = plan_views(ViewSettings(preset=preset))
    return {"preset": "none", "crop_scale": list(plan.crop_scale), "flip": plan.flip}


def resolve_widths(resolution: Resolution, width: int) -> Resolution:
    """Fill in what follows from the encoder's width."""
    method = method_named(resolution.settings.method)
    fill, by_method = resolution.fill, f"as {resolution.settings.method} has it ({method.source})"
    fill("projector.features", lambda: (method.features_for(width), by_method))
    features = chosen(resolution.settings.projector.features, method.features_for(width))
    fill("projector.hidden", lambda: (method.hidden_for(width, features), by_method))
    fill("projector.rank", lambda: (max(1, width // 2), "half the width of the representation"))
    projector = resolution.settings.projector
    # Dimensions of what the loss compares, of which d0 takes a share.
    dims = output_width(projector.kind, width, features=features, rank=chosen(projector.rank, None))
    fill("target.predictor_hidden", lambda: (method.predictor_hidden_for(width), by_method))
    if method.d0_share is None:
        fill("output.d0", lambda: ("all", "the loss sees the whole vector"))
    else:
        share = method.d0_share
        fill("output.d0", lambda: (max(2, round(share * dims)), f"{share:.1%} of {dims} dimensions ({method.source})"))
    return resolution


def _choose_encoder(source: Source, placement: Placement) -> tuple[str, str]:
    if source.kind == "vectors":
        return "mlp", "the data are vectors"
    side = max(source.shape[1:])
    if side <= 16 or (placement.device == "cpu" and side <= CONVNET_LARGEST_SIDE):
        return "convnet", f"images of {side} px on {placement.device}: small enough to train in minutes"
    name, where = ("resnet9", "") if placement.device == "cpu" else ("resnet18", " on a GPU")
    return name, f"images of {side} px{where}"


def usual_batch(num_train: int, largest: int = LARGEST_BATCH) -> tuple[int, str]:
    """Largest power of two up to a quarter of the samples, at most ``largest``."""
    quarter = max(2, num_train // 4)
    size = min(largest, 1 << (quarter.bit_length() - 1))
    return size, f"a power of two, at most {largest} and at most a quarter of {num_train} training samples"
