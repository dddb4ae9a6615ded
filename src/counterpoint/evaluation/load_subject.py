"""Open the subject of an evaluation: a run, an encoder trained elsewhere, or a file of features."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import Kind
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.process_setup import thread_remark
from counterpoint.core.schemas import FEATURES
from counterpoint.core.settings import LookSettings, SourceSettings
from counterpoint.core.user_files import Address, as_path, is_file_or_shards
from counterpoint.core.user_objects import CUSTOM, is_origin
from counterpoint.core.validation import build
from counterpoint.data.order import split_source
from counterpoint.data.sources import ALL
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.subject import DEFAULT_HOLDOUT, Subject, beside, open_queries, open_samples
from counterpoint.evaluation.trained_run import encoder_at, open_trained, steps_asked
from counterpoint.evaluation.vector_table import Table, features_source
from counterpoint.nn.encoders import CATALOGUE as ENCODERS
from counterpoint.nn.foreign import LIBRARIES, ForeignEncoder, build_foreign, habit_of
from counterpoint.nn.trained import Encoder, EncoderCard

SUFFIX_OF_GRAPH = ".onnx"


@dataclass(frozen=True)
class Samples:
    """Samples and queries with their labels, as a user gave them; see ``protocol.evaluate``."""

    data: Any = None
    labels: Any = None
    test_data: Any = None
    test_labels: Any = None


def open_subject(subject: Any, samples: Samples, look: LookSettings, reporter: Reporter) -> Subject:
    """Open an encoder beside the samples that it is judged on.

    Args:
        subject: a run or its folder; an encoder from elsewhere, as a module or by a name of
            ``nn.foreign.build_foreign``; or features (n, d), in memory or in a file that ``READERS`` read.
        samples: data and queries; None for ``data`` takes a run's own samples, and features are their own samples.
        look: weights, checkpoint and device of the encoder, and the part of the data that is taken.
        reporter: shows progress.

    Raises:
        UsageError: the subject is none of these, or a setting has no effect on it.
        DataError: data that cannot be used.
    """
    if samples.test_data is None and samples.test_labels is not None:
        raise UsageError("test_labels= goes with test_data=")
    if remark := thread_remark(torch.get_num_threads()):
        reporter.say(remark)
    is_foreign = is_encoder(subject)
    foreign_settings = [name for name in ("weights", "mean", "std") if getattr(look, name) is not None]
    if foreign_settings and not is_foreign:
        raise UsageError(f"{foreign_settings[0]} goes with an encoder from elsewhere (--encoder)")
    if is_foreign:
        opened = _open_foreign(subject, samples.data, samples.labels, look, reporter)
    elif not (is_file_or_shards(subject) if isinstance(subject, str | Path) else is_array(subject)):
        data = {"data": samples.data, "labels": samples.labels}
        opened = open_trained(subject, **data, part=look.part, reporter=reporter)
    else:
        return _open_features(subject, samples, look, reporter)
    if look.checkpoint is not None and opened.folder is None:
        raise UsageError("checkpoint goes with a run; an encoder from elsewhere has the weights of its file")
    opened.encoder.to(place(look.device, "fp32").torch_device)
    if samples.test_data is None:
        return opened
    return beside(
        opened, open_queries(opened.opens, samples.test_data, samples.test_labels, part=look.part, reporter=reporter)
    )


def one_checkpoint(subject: Subject, checkpoint: str | None) -> Subject:
    """A subject with its encoder as it was at a checkpoint; None takes the last state.

    Raises:
        UsageError: no such checkpoint is kept, or all of them were requested.
    """
    if checkpoint is None or subject.folder is None:
        return subject
    steps = steps_asked(subject.folder, checkpoint)
    if len(steps) > 1:
        raise UsageError(f"checkpoint must be one here; steps that are kept: {', '.join(map(str, steps))}")
    encoder = encoder_at(subject.folder, subject.encoder, steps[0])
    return replace(subject, encoder=encoder, is_own_record=False)


def is_encoder(subject: Any) -> bool:
    """Tell whether something is an encoder from elsewhere: a module, or the name of one.

    >>> is_encoder("timm:resnet18"), is_encoder("runs/ncl")
    (True, False)
    """
    if not isinstance(subject, str):
        return isinstance(subject, nn.Module)
    place, is_name = as_path(subject), is_origin(subject) or subject in ENCODERS
    is_path = isinstance(place, Address) or place.exists()  # an address has a colon, as some names have
    return subject.endswith(SUFFIX_OF_GRAPH) or (is_name and not is_path)


def is_array(subject: Any) -> bool:
    """Tell whether something in memory can be features: a table or an array."""
    return isinstance(subject, Table | Tensor | Sequence) or hasattr(subject, "__array__")


def _open_features(features: Any, samples: Samples, look: LookSettings, reporter: Reporter) -> Subject:
    names = ("split", "root", "image_size", "max_bad", "altered", "checkpoint")
    encoder_settings = ["data"] if samples.data is not None else []
    encoder_settings += [name for name in names if getattr(look, name) is not None]
    if encoder_settings:
        raise UsageError(f"{encoder_settings[0]} goes with an encoder; only features were given")
    source = features_source(features, samples.labels, look, reporter)
    width = source.shape[0]
    card = _headless_card(FEATURES, "vectors", (width,), width, mean=(0.0,) * width, std=(1.0,) * width)
    split = split_source(len(source), source.labels, DEFAULT_HOLDOUT)
    facts = {"encoder": FEATURES, "in_shape": [width], "fingerprint": source.fingerprint}
    subject = Subject(source.name, Encoder(card, nn.Identity(), nn.Identity()), source, split, (source,), facts=facts)
    if samples.test_data is None:
        return subject
    queries = features_source(samples.test_data, samples.test_labels, look, reporter, source.table)
    if queries.shape != source.shape:
        names = [queries.name, source.name] if queries.name != source.name else ["test_data", "data"]  # of arrays
        raise DataError(f"{names[0]} has {queries.shape[0]} features and {names[1]} {width}; both must be equal")
    return beside(subject, queries)


def _open_foreign(encoder: str | nn.Module, data: Any, labels: Any, look: LookSettings, reporter: Reporter) -> Subject:
    if data is None:
        raise UsageError("an encoder from elsewhere comes without samples; give --data (for embed: SAMPLES)")
    source_settings = {**SourceSettings().model_dump(), **look.part}
    # Random weights have no size of images; those of a file were trained at one.
    if look.image_size is None and look.weights is not None and (side := habit_of(encoder).side) is not None:
        source_settings["image_size"] = side
        reporter.say(f"images are resized to {side} px, the size {encoder} was made for; see --source.image-size")
    source = open_samples(data, source_settings, labels, reporter)
    foreign = build_foreign(encoder, source.shape, weights=look.weights)
    for remark in foreign.remarks:
        reporter.say(f"{foreign.name}: {remark}")
    prepared = _prepared_encoder(foreign, source.kind, source.shape, look)
    card = prepared.card
    weights = None if look.weights is None else Path(look.weights).name
    facts = {"encoder": foreign.name, "weights": weights, "weights_sha256": foreign.weights_sha256}
    facts |= {"in_shape": list(card.in_shape), "mean": list(card.mean), "std": list(card.std)}
    facts |= {"remarks": list(foreign.remarks)}
    split = split_source(len(source), source.labels, DEFAULT_HOLDOUT)
    name = foreign.name if look.weights is None else f"{foreign.name} {Path(look.weights).stem}"
    opens = build(SourceSettings, {**source_settings, "labels": "auto", "split": "auto", "classes": ALL}, "source")
    return Subject(name, prepared, source, split, (source,), opens=opens, facts=facts)


def _prepared_encoder(foreign: ForeignEncoder, kind: Kind, in_shape: tuple[int, ...], look: LookSettings) -> Encoder:
    """The encoder with the preparation of its input: that of the settings, that of its library, or none."""
    channels = in_shape[0]
    scale: dict[str, tuple[float, ...]] = {}
    for name, setting, usual, neutral in (("mean", look.mean, foreign.mean, 0.0), ("std", look.std, foreign.std, 1.0)):
        values = setting or usual or (neutral,) * channels
        if len(values) != channels and setting is None:
            values = (sum(values) / len(values),) * channels  # grey pictures, and values of three colours
        if len(values) != channels or (name == "std" and min(values) <= 0):
            raise UsageError(
                f"{name} must be {channels} numbers{' > 0' * (name == 'std')}, got {len(values)}: {values}"
            )
        scale[name] = values
    with torch.no_grad():
        width = foreign.backbone(torch.zeros(2, *in_shape)).shape[1]
    # Encoders of a library or of ours are known by their names; the user's own code may change.
    is_known = foreign.name in ENCODERS or any(map(foreign.name.startswith, LIBRARIES))
    card = _headless_card(foreign.name if is_known else CUSTOM, kind, in_shape, width, **scale)
    return Encoder(card, foreign.backbone, nn.Identity())


def _headless_card(
    name: str, kind: Kind, in_shape: tuple[int, ...], width: int, **scale: tuple[float, ...]
) -> EncoderCard:
    """The card of an encoder without projector: its embedding is the representation at unit length."""
    none: dict[str, Any] = {"projector": "none", "hidden": width, "features": width, "nonnegative": "none", "d0": None}
    return EncoderCard(name, kind, in_shape, **scale, width=width, **none, resizing="bicubic")
