"""All features that a protocol compares: layers of an encoder, at several checkpoints, and its baselines."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as cached
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.run_records import BASELINE, BASELINES, FEATURES
from counterpoint.core.stored_rows import Rows, taken, whole
from counterpoint.data.source import Source
from counterpoint.data.stores import RowsStore, Store
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.classifier_accuracy import own_classes
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import (
    SampleFeatures,
    blank_encoder,
    content_hashes,
    extract,
    input_components,
    num_pieces,
    num_shared,
    raw_chunks,
    with_norms_of,
)
from counterpoint.evaluation.foreign_subject import open_baseline
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.evaluation.trained_run import encoder_at, steps_asked
from counterpoint.nn.layer_outputs import EMBEDDING, OUTPUTS, REPRESENTATION, check_layers
from counterpoint.nn.trained import Encoder

PIXELS, INPUT, UNTRAINED, _ = BASELINES
INITIAL = "initial encoder"
Represent = Callable[[Store], Mapping[str, Tensor]]  # features of all samples of a store, by their name


@dataclass(frozen=True)
class Origin:
    """How features are made of raw samples: they are a layer of an encoder, or what a function gives.

    Attributes:
        encoder: gives it, ready to pass samples; the same function for all layers of one.
        layer: of the encoder.
        function: of raw samples, where there is no encoder.
    """

    encoder: Callable[[], Encoder] | None = None
    layer: str = ""
    function: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class FeatureSet:
    """Features of all samples, by source, what the protocol records about them, and classes from a classifier.

    ``origin`` is None for features that come from anywhere.
    """

    name: str
    parts: tuple[Rows, ...]
    about: dict[str, Any]
    predicted: Tensor | None = None
    origin: Origin | None = None

    def at(self, positions: Tensor) -> Rows:
        """The rows at some positions, which lie all in the first source or all in the second."""
        border = len(self.parts[0])
        if len(self.parts) == 1 or int(positions.max()) < border:
            return taken(self.parts[0], positions)
        return taken(self.parts[1], positions - border)


@dataclass(frozen=True)
class FeatureSets:
    """What there is to compare.

    Attributes:
        sets: the features.
        content_N: hash of what each sample holds.
    """

    sets: tuple[FeatureSet, ...]
    content_N: np.ndarray

    def num_shared(self, bank: Tensor, queries: Tensor) -> int:
        """How many queries hold what a sample of the bank holds."""
        return num_shared(self.content_N[bank.numpy()].tolist(), self.content_N[queries.numpy()].tolist())


def gather(subject: Subject, asked: EvaluationSettings, reporter: Reporter) -> FeatureSets:
    """Features of a subject and of its baselines.

    Args:
        subject: what is judged.
        asked: ``layers`` (empty for representation and embedding), ``checkpoint``, ``baselines`` and ``cache``.
        reporter: shows progress.

    Raises:
        UsageError: no such layer, checkpoint or baseline.
    """
    named = _named(subject, asked, reporter)  # first: what cannot be built is said before anything is encoded
    layers = asked.layers or (REPRESENTATION, EMBEDDING)
    if subject.encoder.card.projector == "none" and subject.folder is None and not asked.layers:
        layers = (REPRESENTATION,)  # what comes from elsewhere has no embedding of its own
    sets: list[FeatureSet] = []
    content: list[np.ndarray] = []
    for ending, encoder in _encoders(subject, asked.checkpoint):
        # An encoder's own classifier, whose row is the embedding's, takes the representation.
        needed = layers if encoder.classifier is None else tuple(dict.fromkeys((*layers, REPRESENTATION)))
        found = _passed(encoder, subject, needed, f"features{ending}", reporter, cache=asked.cache)
        content = [each.content_N for each in found]
        for layer in layers:
            name = f"{layer if layer in OUTPUTS else f'layer {layer}'}{ending}"
            own = _of_layer(name, found, Origin(partial(_itself, encoder), layer))
            sets.append(_with_classes(own, encoder, subject, found, reporter))
    if subject.is_features:
        return FeatureSets((FeatureSet(FEATURES, sets[0].parts, {}),), np.concatenate(content))

    def add(name: str, encoder: Encoder, title: str, about: dict[str, Any]) -> None:
        found = _passed(encoder, subject, [REPRESENTATION], title, reporter, cache=asked.cache)
        sets.append(_of_layer(name, found, Origin(partial(_itself, encoder), REPRESENTATION), about))

    if subject.initial is not None:
        add(INITIAL, subject.initial, "the initial encoder's features", {})
    sets += _untrained(subject, reporter, cache=asked.cache)
    for name, encoder in named.items():
        add(name, encoder, f"features of {name}", {BASELINE: True})
    components = input_components(subject.sources, subject.split.train, cache=asked.cache)
    name, origin = PIXELS if subject.source.kind == "images" else INPUT, Origin(function=components.project)
    sets.append(FeatureSet(name, components.scores, components.about, origin=origin))
    return FeatureSets(tuple(sets), np.concatenate(content))


def _encoders(subject: Subject, checkpoint: str | None) -> list[tuple[str, Encoder]]:
    """The encoder, or those of checkpoints, each with the end of its features' names."""
    if checkpoint is None or subject.folder is None:
        return [("", subject.encoder)]
    steps = steps_asked(subject.folder, checkpoint)
    return [(f" at step {step}", encoder_at(subject.folder, subject.encoder, step)) for step in steps]


def _passed(
    encoder: Encoder, subject: Subject, layers: Sequence[str], title: str, reporter: Reporter, *, cache: bool
) -> list[SampleFeatures]:
    """Features of the samples of each source."""
    if subject.is_features:
        # On disk, if they lie there.
        rows = [cast(RowsStore, source.store).rows for source in subject.sources]
        return [SampleFeatures({REPRESENTATION: each}, content_hashes(each)) for each in rows]
    check_layers(encoder, layers)
    total = sum(map(num_pieces, subject.sources))
    with reporter.bar(f"{title} of {len(subject.source):,} samples", total) as advance:
        key = key_of(encoder) if cache else None
        return [extract(encoder, source, layers, key=key, advance=advance) for source in subject.sources]


def _with_classes(
    features: FeatureSet, encoder: Encoder, subject: Subject, found: Sequence[SampleFeatures], reporter: Reporter
) -> FeatureSet:
    """The embedding with the classes that the encoder's own classifier gives; other features, as they are."""
    if features.name != EMBEDDING or encoder.classifier is None:
        return features
    r_ND = torch.cat([each.representation for each in found])
    return replace(features, predicted=own_classes(encoder, r_ND, subject.source.class_names, reporter))


def _named(subject: Subject, asked: EvaluationSettings, reporter: Reporter) -> dict[str, Encoder]:
    """The encoders that the user named as baselines, by the names of their features."""
    names, files = asked.baselines, asked.baseline_weights
    if names and subject.is_features:
        raise UsageError(
            "baselines encode samples, and features are all there is here; evaluate an encoder with --data"
        )
    if len(files) > len(names):
        raise UsageError(
            f"baseline_weights has {len(files)} files for {len(names)} baselines; name an encoder for each"
        )
    known = [
        open_baseline(name, weights, subject, reporter)
        for name, weights in zip(names, [*files, *[None] * (len(names) - len(files))], strict=True)
    ]
    if len(dict(known)) < len(known):
        raise UsageError(f"baselines has the same encoder twice: {', '.join(name for name, _ in known)}")
    return dict(known)


def _untrained(subject: Subject, reporter: Reporter, *, cache: bool) -> list[FeatureSet]:
    """The untrained encoder's representation; nothing for a user's own module, which nobody can build anew."""
    backbone = untrained_backbone(subject)
    if backbone is None:
        return []
    encoder, train, bank = subject.encoder, subject.split.train, subject.sources[0]
    blank = blank_encoder(backbone, encoder)
    begin = cached(lambda: with_norms_of(blank, bank, train))  # once for all that pass through it
    digest = hashlib.sha256(train.numpy().tobytes()).hexdigest()[:16]
    # Of the weights before their norms are set, which is what this key spares.
    key = f"untrained {key_of(blank)} {bank.fingerprint} {digest}" if cache else None
    total = sum(map(num_pieces, subject.sources))
    with reporter.bar("the same of the untrained encoder", total) as advance:
        found = [
            extract(blank, source, [REPRESENTATION], key=key, begin=begin, advance=advance)
            for source in subject.sources
        ]
    about = {"norms": "set on the training samples"}
    return [_of_layer(UNTRAINED, found, Origin(begin, REPRESENTATION), about)]


def represent_as(sets: Sequence[FeatureSet], source: Source) -> Represent:
    """What gives features of the samples of any store, by the names of the sets.

    Args:
        sets: with an origin.
        source: whose samples are of the same form.
    """
    layers: dict[Callable[[], Encoder], list[FeatureSet]] = {}
    for each in sets:
        if each.origin is not None and each.origin.encoder is not None:
            layers.setdefault(each.origin.encoder, []).append(each)
    functions = {each.name: each.origin.function for each in sets if each.origin and each.origin.function}

    def represent(store: Store) -> dict[str, Tensor]:
        samples, found = replace(source, store=store), {}
        for give, own in layers.items():
            names = {each.name: each.origin.layer for each in own if each.origin is not None}
            features = extract(give(), samples, list(dict.fromkeys(names.values())))
            found |= {name: whole(features.layers[layer]) for name, layer in names.items()}
        for name, function in functions.items():
            found[name] = torch.cat([function(part) for part in raw_chunks(samples)])
        return found

    return represent


def _itself(encoder: Encoder) -> Encoder:
    return encoder


def _of_layer(
    name: str, found: Sequence[SampleFeatures], origin: Origin, about: Mapping[str, Any] = MappingProxyType({})
) -> FeatureSet:
    """One layer's features by source."""
    return FeatureSet(name, tuple(each.layers[origin.layer] for each in found), dict(about), origin=origin)
