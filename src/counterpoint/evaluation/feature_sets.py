"""All features that a protocol compares: layers of an encoder, at several checkpoints, and its baselines."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as cached
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import some
from counterpoint.core.pieces import HERE
from counterpoint.core.run_records import BASELINES, FEATURES
from counterpoint.core.stored_rows import Rows, taken, whole
from counterpoint.data.source import Source
from counterpoint.data.stores import MemoryStore, Store
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.class_accuracy import CLASSIFIER
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import (
    SampleFeatures,
    blank_encoder,
    content_hashes,
    encoded_by,
    extract,
    input_components,
    num_pieces,
    with_norms_of,
)
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.evaluation.trained_run import encoder_at, steps_asked
from counterpoint.nn.layer_outputs import EMBEDDING, OUTPUTS, REPRESENTATION, check_layers
from counterpoint.nn.trained import Encoder

PIXELS, INPUT, UNTRAINED, _ = BASELINES
INITIAL = "initial encoder"
Represent = Callable[[Store], Mapping[str, Tensor]]  # features of all samples of a store, by their name


@dataclass(frozen=True)
class Origin:
    """The encoder and the layer of it that features are."""

    encoder: Encoder
    layer: str


@dataclass(frozen=True)
class FeatureSet:
    """Features of all samples, by source, what the protocol records about them, and classes from a classifier.

    ``origin`` is None for features that come from anywhere, and for components of the input.
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
        known = set(self.content_N[bank.numpy()].tolist())
        return sum(content in known for content in self.content_N[queries.numpy()].tolist())


def gather(subject: Subject, asked: EvaluationSettings, reporter: Reporter) -> FeatureSets:
    """Features of a subject and of its baselines.

    Args:
        subject: what is judged.
        asked: ``layers`` (empty for representation and embedding), ``checkpoint`` and ``cache``.
        reporter: shows progress.

    Raises:
        UsageError: no such layer or checkpoint.
    """
    layers = asked.layers or (REPRESENTATION, EMBEDDING)
    if subject.encoder.card.projector == "none" and subject.folder is None and not asked.layers:
        layers = (REPRESENTATION,)  # what comes from elsewhere has no embedding of its own
    sets: list[FeatureSet] = []
    content: list[np.ndarray] = []
    encoders = [("", subject.encoder)]
    if asked.checkpoint is not None and (folder := subject.folder) is not None:
        steps = steps_asked(folder, asked.checkpoint)
        encoders = [(f" at step {step}", encoder_at(folder, subject.encoder, step)) for step in steps]
    for ending, encoder in encoders:
        # An encoder's own classifier, whose row is the embedding's, takes the representation.
        needed = layers if encoder.classifier is None else tuple(dict.fromkeys((*layers, REPRESENTATION)))
        found = _passed(encoder, subject, needed, f"features{ending}", reporter, cache=asked.cache)
        content = [each.content_N for each in found]
        for layer in layers:
            name = f"{layer if layer in OUTPUTS else f'layer {layer}'}{ending}"
            own = _of_layer(name, found, Origin(encoder, layer))
            if layer == EMBEDDING and encoder.classifier is not None:
                r_ND = torch.cat([each.representation for each in found])
                own = replace(own, predicted=own_classes(encoder, r_ND, subject.source.class_names, reporter))
            sets.append(own)
    if subject.is_features:
        return FeatureSets((FeatureSet(FEATURES, sets[0].parts, {}),), np.concatenate(content))
    if subject.initial is not None:
        title = "the initial encoder's features"
        found = _passed(subject.initial, subject, [REPRESENTATION], title, reporter, cache=asked.cache)
        sets.append(_of_layer(INITIAL, found, Origin(subject.initial, REPRESENTATION)))
    sets += _untrained(subject, reporter, cache=asked.cache)
    components = input_components(subject.sources, subject.split.train, cache=asked.cache)
    name = PIXELS if subject.source.kind == "images" else INPUT
    sets.append(FeatureSet(name, components.scores, components.about))
    return FeatureSets(tuple(sets), np.concatenate(content))


def _passed(
    encoder: Encoder, subject: Subject, layers: Sequence[str], title: str, reporter: Reporter, *, cache: bool
) -> list[SampleFeatures]:
    if subject.is_features:
        rows = [cast(MemoryStore, source.store).samples for source in subject.sources]
        return [SampleFeatures({REPRESENTATION: each}, content_hashes(each)) for each in rows]
    check_layers(encoder, layers)
    total = sum(map(num_pieces, subject.sources))
    with reporter.bar(f"{title} of {len(subject.source):,} samples", total) as advance:
        return [extract(encoder, source, layers, cache=cache, advance=advance) for source in subject.sources]


def own_classes(
    encoder: Encoder, representations: Tensor, class_names: Sequence[str], reporter: Reporter
) -> Tensor | None:
    """Classes of samples by an encoder's own classifier, as numbers of the samples' classes.

    Args:
        encoder: with a classifier.
        representations: of the samples, (n, width).
        class_names: of the samples' classes, which are known by their names.
        reporter: says where the classifier knows none of these classes.

    Returns:
        Class numbers (n,); -1 for a class that these samples do not have. None where the classifier knows none.
    """
    logits_NC = encoder.class_logits(representations)
    assert encoder.classifier is not None
    known = encoder.classifier.class_names
    number_of = {name: number for number, name in enumerate(class_names)}
    if not number_of.keys() & set(known):
        reporter.say(
            f"{CLASSIFIER} is left out: it knows none of the classes of these samples; it was trained with "
            f"{some(known)}"
        )
        return None
    return torch.tensor([number_of.get(name, -1) for name in known])[logits_NC.argmax(dim=1)]


def _untrained(subject: Subject, reporter: Reporter, *, cache: bool) -> list[FeatureSet]:
    """The untrained encoder's representation; nothing for a user's own module, which cannot be rebuilt."""
    backbone = untrained_backbone(subject)
    if backbone is None:
        return []
    encoder, train, bank = subject.encoder, subject.split.train, subject.sources[0]
    blank = blank_encoder(backbone, encoder)
    begin = cached(lambda: with_norms_of(blank, bank, train))  # once for all that pass through it
    digest = hashlib.sha256(train.numpy().tobytes()).hexdigest()[:16]
    # Of the weights before their norms are set, which is what this key spares.
    key = cache and f"untrained {key_of(blank)} {bank.fingerprint} {digest}"
    total = sum(map(num_pieces, subject.sources))
    with reporter.bar("the same of the untrained encoder", total) as advance:
        found = [
            extract(blank, source, [REPRESENTATION], cache=key, begin=begin, advance=advance)
            for source in subject.sources
        ]
    about = {"norms": "set on the training samples"}
    return [_of_layer(UNTRAINED, found, Origin(blank, REPRESENTATION), about)]


def represent_as(sets: Sequence[FeatureSet], source: Source) -> Represent:
    """What gives features of the samples of any store, by the names of the sets.

    Args:
        sets: with an origin.
        source: whose samples are of the same form.
    """
    origins = {each.name: each.origin for each in sets if each.origin is not None}

    def represent(store: Store) -> dict[str, Tensor]:
        samples, found = replace(source, store=store), {}
        for encoder in dict.fromkeys(origin.encoder for origin in origins.values()):
            names = {name: origin.layer for name, origin in origins.items() if origin.encoder is encoder}
            with encoded_by(HERE):  # few samples, which workers do not have
                features = extract(encoder, samples, list(dict.fromkeys(names.values())))
            found |= {name: whole(features.layers[layer]) for name, layer in names.items()}
        return found

    return represent


def _of_layer(
    name: str, found: Sequence[SampleFeatures], origin: Origin, about: Mapping[str, Any] = MappingProxyType({})
) -> FeatureSet:
    return FeatureSet(name, tuple(each.layers[origin.layer] for each in found), dict(about), origin=origin)
