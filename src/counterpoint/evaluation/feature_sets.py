"""All features that a protocol compares: layers of an encoder, at several checkpoints, and its baselines."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as cached
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.errors import some
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.ranks import HERE
from counterpoint.core.schemas import BASELINES, FEATURES
from counterpoint.core.stored_rows import Rows, gather, load
from counterpoint.core.thread_parts import one_blas_thread
from counterpoint.data.source import Source
from counterpoint.data.stores import MemoryStore
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.class_accuracy import CLASSIFIER
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_tables import Write, key_of, stored_or_computed
from counterpoint.evaluation.features import (
    PCA_DIMS,
    SampleFeatures,
    blank_encoder,
    content_hashes,
    encoded_by,
    extract,
    num_pieces,
    raw_chunks,
    with_norms_of,
)
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.evaluation.trained_run import encoder_at, steps_asked
from counterpoint.nn.layer_outputs import EMBEDDING, OUTPUTS, REPRESENTATION, check_layers
from counterpoint.nn.trained import Encoder

PIXELS, INPUT, UNTRAINED, _ = BASELINES
INITIAL = "initial encoder"
MOST_FITTED = 1 << 30  # bytes of raw samples from which components are fitted


@dataclass(frozen=True)
class FeatureSet:
    """Features of all samples, by source, with the settings for their record and the classes from a classifier.

    ``encoder`` and its ``layer`` say how the features were computed; features that were given, and components of the
    input, have no encoder.
    """

    name: str
    parts: tuple[Rows, ...]
    about: dict[str, Any]
    predicted: Tensor | None = None
    encoder: Encoder | None = None
    layer: str = ""

    def at(self, positions: Tensor) -> Rows:
        """The rows at some positions, which all lie in the first source or all in the second."""
        border = len(self.parts[0])
        if len(self.parts) == 1 or int(positions.max()) < border:
            return gather(self.parts[0], positions)
        return gather(self.parts[1], positions - border)


@dataclass(frozen=True)
class FeatureSets:
    """All features that an evaluation compares.

    Attributes:
        sets: sets of features, of the subject and of its baselines.
        content_N: hash of what each sample holds.
    """

    sets: tuple[FeatureSet, ...]
    content_N: np.ndarray

    def num_shared(self, bank: Tensor, queries: Tensor) -> int:
        """Number of queries that have the content of a sample of the bank."""
        bank_contents = set(self.content_N[bank.numpy()].tolist())
        return sum(content in bank_contents for content in self.content_N[queries.numpy()].tolist())


def gather_features(subject: Subject, settings: EvaluationSettings, reporter: Reporter) -> FeatureSets:
    """Compute the features of a subject and of its baselines.

    Args:
        subject: the encoder that is judged, or features.
        settings: ``layers`` (empty for representation and embedding), ``checkpoint`` and ``cache``.
        reporter: shows progress.

    Raises:
        UsageError: no such layer or checkpoint.
    """
    layers = settings.layers or (REPRESENTATION, EMBEDDING)
    if subject.encoder.card.projector == "none" and subject.folder is None and not settings.layers:
        layers = (REPRESENTATION,)  # an encoder from elsewhere has no embedding of its own
    sets: list[FeatureSet] = []
    content: list[np.ndarray] = []
    encoders = [("", subject.encoder)]
    if settings.checkpoint is not None and (folder := subject.folder) is not None:
        steps = steps_asked(folder, settings.checkpoint)
        encoders = [(f" at step {step}", encoder_at(folder, subject.encoder, step)) for step in steps]
    for ending, encoder in encoders:
        # An encoder's own classifier, whose row is the embedding's, takes the representation.
        needed = layers if encoder.classifier is None else tuple(dict.fromkeys((*layers, REPRESENTATION)))
        parts = _sample_features(encoder, subject, needed, f"features{ending}", reporter, cache=settings.cache)
        content = [each.content_N for each in parts]
        for layer in layers:
            name = f"{layer if layer in OUTPUTS else f'layer {layer}'}{ending}"
            features = _feature_set(name, parts, encoder, layer)
            if layer == EMBEDDING and encoder.classifier is not None:
                r_ND = torch.cat([each.representation for each in parts])
                features = replace(features, predicted=own_classes(encoder, r_ND, subject.source.class_names, reporter))
            sets.append(features)
    if subject.is_features:
        return FeatureSets((FeatureSet(FEATURES, sets[0].parts, {}),), np.concatenate(content))
    if subject.initial is not None:
        title = "the initial encoder's features"
        parts = _sample_features(subject.initial, subject, [REPRESENTATION], title, reporter, cache=settings.cache)
        sets.append(_feature_set(INITIAL, parts, subject.initial, REPRESENTATION))
    sets += _untrained_sets(subject, reporter, cache=settings.cache)
    sets.append(input_components(subject.sources, subject.split.train, cache=settings.cache))
    return FeatureSets(tuple(sets), np.concatenate(content))


def _sample_features(
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
        encoder: encoder that has a classifier.
        representations: representations of the samples, (n, width).
        class_names: names of the samples' classes, by which these are matched with the classifier's classes.
        reporter: shows a line if the classifier knows none of these classes.

    Returns:
        Class numbers (n,); -1 for a class that these samples do not have. None if the classifier knows none.
    """
    logits_NC = encoder.class_logits(representations)
    assert encoder.classifier is not None
    known_names = encoder.classifier.class_names
    number_of = {name: number for number, name in enumerate(class_names)}
    if not number_of.keys() & set(known_names):
        reporter.say(
            f"{CLASSIFIER} is left out: it knows none of the classes of these samples; it was trained with "
            f"{some(known_names)}"
        )
        return None
    return torch.tensor([number_of.get(name, -1) for name in known_names])[logits_NC.argmax(dim=1)]


def _untrained_sets(subject: Subject, reporter: Reporter, *, cache: bool) -> list[FeatureSet]:
    """The untrained encoder's representation; an empty list for a user's own module, which cannot be rebuilt."""
    backbone = untrained_backbone(subject)
    if backbone is None:
        return []
    encoder, train, bank = subject.encoder, subject.split.train, subject.sources[0]
    blank = blank_encoder(backbone, encoder)
    begin = cached(lambda: with_norms_of(blank, bank, train))  # once for all that pass through it
    digest = hashlib.sha256(train.numpy().tobytes()).hexdigest()[:16]
    # The key is of the weights before their norms are set: if the cache has the features, no norms are set.
    key = cache and f"untrained {key_of(blank)} {bank.fingerprint} {digest}"
    total = sum(map(num_pieces, subject.sources))
    with reporter.bar("the same of the untrained encoder", total) as advance:
        parts = [
            extract(blank, source, [REPRESENTATION], cache=key, begin=begin, advance=advance)
            for source in subject.sources
        ]
    about = {"norms": "set on the training samples"}
    return [_feature_set(UNTRAINED, parts, blank, REPRESENTATION, about)]


def input_components(sources: Sequence[Source], train: Tensor, *, cache: bool = True) -> FeatureSet:
    """Principal components of the raw input (pixels or features): the baseline that needs no learning.

    Args:
        sources: sources of the samples; the first one has the samples that the components are fitted on.
        train: positions of the training samples in the first source.
        cache: whether scores are read from the cache and kept in it.

    Returns:
        At most ``PCA_DIMS`` components, fitted on those training samples, evenly spaced, that ``MOST_FITTED`` bytes
        hold; with their number, and the number of samples they were fitted on, if these were not all.
    """
    width = int(np.prod(sources[0].shape))
    num_fitted = min(len(train), max(PCA_DIMS + 1, MOST_FITTED // (4 * width)))
    fitted = evenly_spaced(train, num_fitted) if num_fitted < len(train) else train
    # n centred samples span at most n - 1 directions.
    about = {"components": min(PCA_DIMS, width, num_fitted - 1)}
    if num_fitted < len(train):
        about["fitted_on"] = num_fitted

    def flat(samples: Tensor) -> np.ndarray:
        return (to_unit_float(samples) if sources[0].kind == "images" else samples).flatten(1).numpy()

    @cached
    def model() -> PCA:
        # Randomised, but with a fixed seed: the same figure for the same data.
        solver = "randomized" if width > 512 else "full"
        pca = PCA(about["components"], svd_solver=solver, random_state=0)
        return pca.fit(np.concatenate(list(map(flat, raw_chunks(sources[0], fitted)))))

    def scores(source: Source) -> Rows:
        def compute(missing: Sequence[str], write: Write) -> None:
            first = 0
            for samples in raw_chunks(source):
                with one_blas_thread():
                    part = model().transform(flat(samples)).astype(np.float32)
                write(first, {"scores": part})
                first += len(samples)

        digest = hashlib.sha256(fitted.numpy().tobytes()).hexdigest()[:16]
        parts = (sources[0].fingerprint, sources[0].shape, digest, source.fingerprint)
        arrays: dict[str, Any] = stored_or_computed(f"pca {parts}" if cache else None, ["scores"], len(source), compute)
        return arrays["scores"]

    return FeatureSet(PIXELS if sources[0].kind == "images" else INPUT, tuple(map(scores, sources)), about)


def represented(sets: Sequence[FeatureSet], samples: Source) -> dict[str, Tensor]:
    """Features of other samples of the same form, by the names of the sets, which have an encoder."""
    tensors = {}
    for encoder in dict.fromkeys(each.encoder for each in sets if each.encoder is not None):
        layer_of = {each.name: each.layer for each in sets if each.encoder is encoder}
        with encoded_by(HERE):  # few samples, which workers do not have
            features = extract(encoder, samples, list(dict.fromkeys(layer_of.values())))
        tensors |= {name: load(features.layers[layer]) for name, layer in layer_of.items()}
    return tensors


def _feature_set(
    name: str,
    parts: Sequence[SampleFeatures],
    encoder: Encoder,
    layer: str,
    about: Mapping[str, Any] = MappingProxyType({}),
) -> FeatureSet:
    return FeatureSet(name, tuple(each.layers[layer] for each in parts), dict(about), encoder=encoder, layer=layer)
