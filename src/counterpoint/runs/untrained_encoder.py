"""The encoder of a run before training: backbone, projector, and how its samples are prepared."""

import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import own_draws
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.source import Source
from counterpoint.losses.build import applies_relu
from counterpoint.methods.catalogue import chosen, method_named
from counterpoint.nn.encoders import has_stem, initial_encoder, own_copy, with_pooling
from counterpoint.nn.heads import build_projector, check_subvector
from counterpoint.nn.trained import Encoder, EncoderCard

STATISTICS_SAMPLES = 10_000  # samples from which mean and deviation are taken, at most
STATISTICS_CHUNK = 256

Statistics = tuple[tuple[float, ...], tuple[float, ...]]


def untrained_encoder(
    settings: TrainSettings, source: Source, backbone: nn.Module, width: int, statistics: Statistics
) -> Encoder:
    """Put the untrained projector of a run on a backbone."""
    projector_settings, method = settings.projector, method_named(settings.method)  # unread settings are auto
    features = int(chosen(projector_settings.features, method.features_for(width)))
    output_norm = chosen(projector_settings.output_norm, method.projector_output_norm)
    mean, std = statistics
    nonnegative = settings.output.nonnegative
    if nonnegative == "none" and applies_relu(settings.loss.name, settings.loss.options):  # the loss's own ReLU
        nonnegative = "relu"
    card = EncoderCard(
        architecture=settings.encoder,
        kind=source.kind,
        in_shape=source.shape,
        mean=mean,
        std=std,
        width=width,
        projector=projector_settings.kind,
        hidden=int(chosen(projector_settings.hidden, method.hidden_for(width, features))),
        features=features,
        nonnegative=nonnegative,
        d0=None if settings.output.d0 == "all" else int(settings.output.d0),
        layers=int(chosen(projector_settings.layers, method.projector_layers)),
        norm=chosen(projector_settings.norm, method.projector_norm),
        output_norm=output_norm != "none",
        output_scale=output_norm == "batch",
        rank=chosen(projector_settings.rank, None),
        active=projector_settings.active,
        stem=settings.stem if has_stem(settings.encoder) else "small",
        resizing="bicubic",
        table=source.table,
    )
    if card.d0 is not None:
        check_subvector(card.d0, card.projected_width)
    with own_draws(settings.seed + 1):  # not the encoder's own numbers again
        projector = build_projector(
            card.projector, card.width, hidden=card.hidden, features=card.features, details=card.projector_details
        )
    return Encoder(card, backbone, projector)


def initial_backbone(settings: TrainSettings, in_shape: tuple[int, ...], module: nn.Module | None) -> nn.Module:
    """The untrained encoder of a run: the same weights for the same seed, or a copy of the user's module."""
    if isinstance(module, Encoder):
        raise UsageError("a loaded encoder prepares its input itself, and views are prepared; pass encoder.backbone")
    if module is not None:
        return with_pooling(own_copy(module), in_shape)
    if settings.encoder == CUSTOM:
        raise UsageError("this run was trained with your own module; pass it as encoder=")
    return initial_encoder(settings.encoder, in_shape, settings.seed, settings.stem, settings.initial)


def channel_statistics(source: Source, train: Tensor) -> Statistics:
    """Mean and deviation per channel (images, values in [0, 1]) or per feature (vectors) over training samples.

    A constant channel gets deviation 1, so that it becomes zero rather than NaN.
    """
    chosen = evenly_spaced(train, STATISTICS_SAMPLES).tolist()
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
        # Updated after the squares, which need the mean of before.
        mean = mean + (own_mean - mean) * (own / (count + own))
        largest = torch.maximum(largest, values.abs().amax(dim=1))
        count += own
    std = (squares / (count - 1)).sqrt()
    # Rounding leaves a constant channel a deviation of about 1e-16 of its values, and not 0.
    std = torch.where(std > 1e-8 * largest.clamp(min=1e-30), std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
