"""Encoders that nobody trained: weights of a seed, and norms whose statistics show when one is forgotten."""

from dataclasses import replace
from typing import Any

from torch import nn

from counterpoint.nn.encoders import build_encoder, feature_width, with_pooling
from counterpoint.nn.heads import build_projector
from counterpoint.nn.trained import Encoder, EncoderCard
from foreign_files import filled


def encoder_of(card: EncoderCard, module: nn.Module | None = None) -> Encoder:
    """The encoder of a card; ``module`` is the user's own backbone."""
    shape, sizes = card.in_shape, {"hidden": card.hidden, "features": card.features}
    backbone = with_pooling(module, shape) if module else build_encoder(card.architecture, shape, card.stem)
    projector = build_projector(card.projector, card.width, **sizes, details=card.projector_details)
    return Encoder(card, filled(backbone), filled(projector))


def make_encoder(architecture: str = "convnet", in_shape: tuple[int, ...] = (3, 8, 8), **changes: Any) -> Encoder:
    """An encoder of the catalogue whose card differs from the usual one in some fields."""
    channels, width = in_shape[0], feature_width(build_encoder(architecture, in_shape), in_shape)
    card = EncoderCard(
        architecture=architecture, kind="vectors" if len(in_shape) == 1 else "images", in_shape=in_shape,
        mean=(0.4,) * channels, std=(0.3,) * channels, width=width, projector="mlp", hidden=16, features=6,
        nonnegative="none", d0=None, norm="batch", resizing="bicubic",
    )  # fmt: skip
    return encoder_of(replace(card, **changes))
