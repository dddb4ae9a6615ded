"""An encoder from elsewhere beside samples, a share of which is held out: by its name, as a module, or in a file."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from counterpoint.core.array_layout import Kind
from counterpoint.core.data_settings import LookSettings, SourceSettings
from counterpoint.core.errors import UsageError
from counterpoint.core.user_objects import CUSTOM
from counterpoint.core.validation import build
from counterpoint.data.order import split_source
from counterpoint.data.sources import ALL, open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.subject import DEFAULT_HOLDOUT, Subject, name_skipped
from counterpoint.nn.encoders import CATALOGUE as ENCODERS
from counterpoint.nn.foreign import ForeignEncoder, build_foreign, default_side
from counterpoint.nn.library_encoders import LIBRARIES
from counterpoint.nn.trained import Encoder, EncoderCard

SUFFIX_OF_GRAPH = ".onnx"


def open_foreign(encoder: str | nn.Module, data: Any, labels: Any, look: LookSettings, reporter: Reporter) -> Subject:
    """An encoder from elsewhere with its samples, a share of which is held out."""
    if data is None:
        raise UsageError("an encoder from elsewhere has no samples of its own; give --data (of embed: SAMPLES)")
    asked = {**SourceSettings().model_dump(), **look.part}
    # Random weights are of no size; those of a file were trained at some.
    if look.image_size is None and look.weights is not None and (side := default_side(encoder)) is not None:
        asked["image_size"] = side
        reporter.say(f"images are brought to {side} px, the size {encoder} was made for; see --source.image-size")
    in_memory = labels
    if isinstance(labels, str | Path):
        asked, in_memory = {**asked, "labels": str(labels)}, None
    settings = build(SourceSettings, asked, "source")
    source = open_source(data, settings, labels=in_memory, progress=reporter.bar)
    name_skipped(source, reporter)
    known = build_foreign(encoder, source.shape, weights=look.weights)
    for remark in known.remarks:
        reporter.say(f"{known.name}: {remark}")
    prepared = _encoder(known, source.kind, source.shape, look)
    card = prepared.card
    weights = None if look.weights is None else Path(look.weights).name
    facts = {"encoder": known.name, "weights": weights, "weights_sha256": known.weights_sha256}
    facts |= {"in_shape": list(card.in_shape), "mean": list(card.mean), "std": list(card.std)}
    facts |= {"remarks": list(known.remarks)}
    split = split_source(len(source), source.labels, DEFAULT_HOLDOUT)
    name = known.name if look.weights is None else f"{known.name} {Path(look.weights).stem}"
    opens = settings.model_copy(update={"labels": "auto", "split": "auto", "classes": ALL})
    return Subject(name, prepared, source, split, (source,), opens=opens, facts=facts)


def open_baseline(name: str, weights: str | None, subject: Subject, reporter: Reporter) -> tuple[str, Encoder]:
    """An encoder from elsewhere for the samples of a subject, which it sees at the size that it was made for.

    Args:
        name: as ``nn.foreign.build_foreign`` takes it.
        weights: file of its weights; None for random ones.
        subject: whose samples are encoded, on the device of its encoder.
        reporter: says what was taken of the file, and whether images are resized.

    Returns:
        What its features are called, and the encoder.
    """
    source, in_shape = subject.source, subject.source.shape
    has_weights = weights is not None or name.endswith(SUFFIX_OF_GRAPH)
    if source.kind == "images" and has_weights and (side := default_side(name)) is not None:
        in_shape = (source.shape[0], side, side)
    known = build_foreign(name, in_shape, weights=weights)
    called = Path(name).name if weights is None else f"{name} {Path(weights).stem}"
    resized = f"images of {source.shape[1]} px are brought to {in_shape[1]} px" if in_shape != source.shape else ""
    for remark in filter(None, (*known.remarks, resized)):
        reporter.say(f"{called}: {remark}")
    return called, _encoder(known, source.kind, in_shape, LookSettings()).to(subject.encoder.device)


def _encoder(known: ForeignEncoder, kind: Kind, in_shape: tuple[int, ...], look: LookSettings) -> Encoder:
    """With the preparation of its input: as asked, as its library has it, or none."""
    channels = in_shape[0]
    scale: dict[str, tuple[float, ...]] = {}
    for name, asked, usual, neutral in (("mean", look.mean, known.mean, 0.0), ("std", look.std, known.std, 1.0)):
        values = asked or usual or (neutral,) * channels
        if len(values) != channels and asked is None:
            values = (sum(values) / len(values),) * channels  # grey pictures, and values of three colours
        if len(values) != channels or (name == "std" and min(values) <= 0):
            raise UsageError(
                f"{name} must be {channels} numbers{' > 0' * (name == 'std')}, got {len(values)}: {values}"
            )
        scale[name] = values
    with torch.no_grad():
        width = known.backbone(torch.zeros(2, *in_shape)).shape[1]
    # What a name of a library or of ours builds is known; the user's own code may change.
    is_known = known.name in ENCODERS or any(map(known.name.startswith, LIBRARIES))
    card = headless_card(known.name if is_known else CUSTOM, kind, in_shape, width, **scale)
    return Encoder(card, known.backbone, nn.Identity())


def headless_card(
    name: str, kind: Kind, in_shape: tuple[int, ...], width: int, **scale: tuple[float, ...]
) -> EncoderCard:
    """Of an encoder without projector: its embedding is the representation at unit length."""
    none: dict[str, Any] = {"projector": "none", "hidden": width, "features": width, "nonnegative": "none", "d0": None}
    return EncoderCard(name, kind, in_shape, **scale, width=width, **none)
