"""What findings about an encoder are drawn from: measurements of its places, votes, its loss, settings, and parts."""

# N samples, D features

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from counterpoint.core.array_layout import fit_images, to_unit_float
from counterpoint.core.numerics import unit_rows
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields
from counterpoint.data.formats.labels import Labels
from counterpoint.diagnostics.alignment import colour_statistics, shortcut
from counterpoint.diagnostics.class_geometry import Z_95
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    HELD_OUT,
    RAW_INPUT,
    REPRESENTATION,
    TRAINING,
    UNTRAINED,
    Evidence,
    HeldOutRecord,
)
from counterpoint.diagnostics.measure import Place, measure_place
from counterpoint.diagnostics.sample_shift import altered_input, matched_parts, picture_moments, told_apart
from counterpoint.diagnostics.shift_record import AlteredInput, ToldApart
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import (
    SampleFeatures,
    blank_encoder,
    content_hashes,
    evenly_spaced,
    extract,
    view_pairs,
    with_norms_of,
)
from counterpoint.evaluation.metric_types import wilson
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.trained import Encoder
from counterpoint.runs.accuracies import accuracies_of_subject
from counterpoint.runs.active_settings import levers_of
from counterpoint.runs.class_comparison import judged_classes, labels_of
from counterpoint.runs.curvature_record import run_sharpness
from counterpoint.runs.feature_evidence import is_rectified, with_clusters
from counterpoint.runs.pair_inspection import pairs_of_run

Pair = tuple[Tensor, Tensor]
COLOURS = "colours"  # of the views
FEWEST_COLOURED = 50
NUM_VIEW_SAMPLES = 2048  # samples whose two views are compared, at most
SMALL, AT_ONCE = 16, 128  # pixels of a side of pictures that are compared raw; samples that are read at once
MOST_PICTURES = 512  # whose channels are compared with those of training
FEWEST = 20  # samples of those that were held out, and of the others
HELD_OUT_FIGURES = (
    "effective_rank", "rank_ceiling", "vanished", "resolved", "alignment", "positive_cosine", "negative_cosine",
    "uniformity", "sparsity", "dead_dims",
)  # fmt: skip


@dataclass(frozen=True)
class GatheredEvidence:
    """What is known of an encoder.

    Attributes:
        evidence: what findings are drawn from.
        places: measurements with the arrays behind them.
        embedding_ND: of all samples.
        representation_ND: of all samples.
        labels: of all samples; None without any.
    """

    evidence: Evidence
    places: dict[str, Place]
    embedding_ND: Tensor
    representation_ND: Tensor
    labels: Labels | None


def gather_evidence(
    judged: Subject, threshold: float, *, checkpoint: str | None = None, cache: bool
) -> GatheredEvidence:
    """Measure representation and embedding beside the untrained encoder, and read what the run's folder knows.

    Args:
        judged: an encoder beside samples.
        threshold: above which a feature of a unit-length vector counts as active.
        checkpoint: step of the state that is judged; None for the last.
        cache: whether features are kept, and taken from the cache.
    """
    # Before it is measured, which sets the statistics of its norms.
    backbone = untrained_backbone(judged)
    moved = weight_change(judged, backbone)
    source, labels, encoder, chosen_N = judged.source, judged.source.labels, judged.encoder, _chosen(judged)
    features = extract(encoder, source, key=key_of(encoder) if cache else None)
    seen = {REPRESENTATION: features.representation, EMBEDDING: features.embedding}
    views = _views(judged, encoder, (REPRESENTATION, EMBEDDING))
    colours, embedded = views.pop(COLOURS, None), views.get(EMBEDDING)
    told = None
    if colours is not None and embedded is not None and len(colours[0]) >= FEWEST_COLOURED:
        told = shortcut(colours, embedded[0])
    # By design, or by its looks where the design is not known.
    is_known = judged.folder is not None and judged.settings is not None
    is_nonnegative = encoder.card.nonnegative != "none" if is_known else is_rectified(features.embedding)
    if backbone is not None:
        untrained = with_norms_of(blank_encoder(backbone, encoder), source, judged.split.train)
        # Its embedding is none: the baseline is a representation.
        own = extract(untrained, source, [REPRESENTATION], key=key_of(untrained) if cache else None)
        seen[UNTRAINED] = own.representation
        if views:
            views[UNTRAINED] = _views(judged, untrained, [REPRESENTATION])[REPRESENTATION]
    places = {
        name: measure_place(all_ND, views=views.get(name), labels=labels, threshold=threshold)
        for name, all_ND in seen.items()
    }
    classes, agreement = judged_classes(judged, features.embedding), places[EMBEDDING].agreement
    if classes is not None and agreement is not None:
        classes = with_clusters(classes, agreement, source.class_names)
    evidence = replace(
        from_folder(judged),
        places={name: place.figures for name, place in places.items()},
        votes=accuracies_of_subject(judged, seen),
        is_nonnegative=is_nonnegative,
        weight_change=moved,
        shortcut=told,
        pairs=pairs_of_run(judged, views[EMBEDDING], features.embedding[chosen_N], chosen_N, checkpoint)
        if views
        else None,
        classes=classes,
        held_out=_held_out(judged, features, embedded, threshold),
        altered=_altered(judged),
        suspects=places[EMBEDDING].suspect_names(source.sample_names),
    )
    return GatheredEvidence(evidence, places, features.embedding, features.representation, labels_of(judged))


def _views(judged: Subject, encoder: Encoder, layers: Sequence[str]) -> dict[str, Pair]:
    """Layers for two views of evenly spaced samples, and the colours of the views; none without the views."""
    if not judged.has_views:
        return {}
    also = {COLOURS: colour_statistics} if encoder.card.kind == "images" else {}
    return {**view_pairs(judged, encoder, layers, _chosen(judged), also)}


def _chosen(judged: Subject) -> Tensor:
    """Samples whose two views are taken."""
    return evenly_spaced(torch.arange(len(judged.source)), NUM_VIEW_SAMPLES)


def from_folder(judged: Subject) -> Evidence:
    """What the run folder knows: the loss, and the settings that can be changed."""
    if judged.folder is None or judged.settings is None:
        return Evidence({})
    metrics = judged.folder.read_metrics()
    last = metrics[-1] if metrics else {}
    return Evidence(
        {},
        loss=last.get("loss"),
        chance=last.get("chance"),
        floor=last.get("floor"),
        sharpness=run_sharpness(judged.folder, judged.settings),
        is_supervised=METHODS[judged.settings.method].needs_labels,
        levers=levers_of(judged.settings, judged.source.kind),
        values=values_of(judged.settings),
    )


def values_of(settings: TrainSettings) -> dict[str, Any]:
    """Every setting by its path."""
    return {path: attrgetter(path)(settings) for path, _ in leaf_fields(TrainSettings)}


def weight_change(judged: Subject, backbone: nn.Module | None) -> float | None:
    """How far training has moved the encoder's weights, over their length before; None where that is not known."""
    is_known = judged.settings.init is None if judged.settings else not (judged.facts or {}).get("weights")
    if backbone is None or not is_known:
        return None
    before = {name: value.detach().double() for name, value in backbone.named_parameters()}
    now = {name: value.detach().double().cpu() for name, value in judged.encoder.backbone.named_parameters()}
    if before.keys() != now.keys():
        return None
    moved = sum(float((now[name] - value).square().sum()) for name, value in before.items())
    length = sum(float(value.square().sum()) for value in before.values())
    return (moved / length) ** 0.5 if length else None


def _held_out(subject: Subject, features: SampleFeatures, views: Pair | None, threshold: float) -> HeldOutRecord | None:
    """Set both parts of a run's own samples side by side; None where nothing was held out, or too little."""
    settings, split = subject.settings, subject.split
    if settings is None or not subject.is_own_data or float(settings.source.holdout) == 0:
        return None
    size = min(len(split.train), len(split.held_out), features.embedding.shape[0])
    if size < FEWEST:
        return None
    positions = {TRAINING: split.train, HELD_OUT: split.held_out}
    pairs = {}
    for name, part_N in positions.items():
        is_part_M = torch.isin(_chosen(subject), part_N)
        has_pairs = views is not None and int(is_part_M.sum()) > 1
        pairs[name] = (views[0][is_part_M], views[1][is_part_M]) if views is not None and has_pairs else None
    # Ranks depend on the number of samples: as many of both.
    samples = {name: features.embedding[evenly_spaced(part_N, size)] for name, part_N in positions.items()}
    parts = {
        name: measure_place(z_ND, views=pairs[name], threshold=threshold, only=HELD_OUT_FIGURES).figures
        for name, z_ND in samples.items()
    }
    told = _told(subject, features)
    return HeldOutRecord(parts=parts, told=told, **_gap(pairs[TRAINING], pairs[HELD_OUT]), **_copies(subject, features))


def _told(subject: Subject, features: SampleFeatures) -> dict[str, ToldApart]:
    """How well both parts are told apart, by the embedding and by raw input."""
    labels = subject.source.labels
    parts = matched_parts(subject.split.train, subject.split.held_out, labels)
    label_N = None if labels is None or not bool((labels >= 0).any()) else labels[parts[0]]
    seen = {
        EMBEDDING: [features.embedding[part] for part in parts],
        RAW_INPUT: [_small_input(subject, part) for part in parts],
    }
    found = {
        place: told_apart(train_MD, held_MD, label_N, generator=torch.Generator().manual_seed(0))
        for place, (train_MD, held_MD) in seen.items()
    }
    return {place: told for place, told in found.items() if told is not None}


def _small_input(subject: Subject, positions: Tensor) -> Tensor:
    """Raw input as rows; of pictures a small copy, and the moments of their colours."""
    rows = []
    for part in positions.split(AT_ONCE):
        raw = to_unit_float(subject.source.store.fetch(part.tolist()))
        if subject.source.kind == "images":
            small = adaptive_avg_pool2d(raw, (min(raw.shape[2], SMALL), min(raw.shape[3], SMALL)))
            raw = torch.cat([small.flatten(1), picture_moments(raw).float()], dim=1)
        rows.append(raw)
    return torch.cat(rows)


def _altered(subject: Subject) -> AlteredInput | None:
    """What was done to other pictures than those of the run; None where its card does not have the means of these."""
    card, settings = subject.encoder.card, subject.settings
    if settings is None or settings.init is not None or subject.is_own_data or card.kind != "images":
        return None
    asked = evenly_spaced(torch.arange(len(subject.source)), MOST_PICTURES)
    moments = [
        picture_moments(fit_images(to_unit_float(subject.source.store.fetch(part.tolist())), card.in_shape))
        for part in asked.split(AT_ONCE)
    ]
    return altered_input(torch.cat(moments), torch.tensor(card.mean), torch.tensor(card.std))


def _gap(training: Pair | None, held_out: Pair | None) -> dict[str, float]:
    """Difference of the mean cosines of two views with its interval, as fields of the record."""
    if training is None or held_out is None:
        return {}
    cosines = [
        (unit_rows(first.double()) * unit_rows(second.double())).sum(dim=1) for first, second in (training, held_out)
    ]
    gap = float(cosines[0].mean() - cosines[1].mean())
    # welch1947, with so many degrees of freedom that the normal quantile serves.
    error = Z_95 * math.sqrt(sum(float(each.var()) / len(each) for each in cosines))
    return {"gap": gap, "low": gap - error, "high": gap + error}


def _copies(subject: Subject, features: SampleFeatures) -> dict[str, float]:
    """Held-out samples that a training sample equals, as fields of the record."""
    train, held = (part.numpy() for part in (subject.split.train, subject.split.held_out))
    is_copy, is_same = (
        [key in known for key in hashes[held].tolist()]
        for hashes in (features.content_N, content_hashes(features.representation))
        for known in [set(hashes[train].tolist())]
    )
    num_either = sum(map(max, is_copy, is_same))
    share = wilson(num_either, len(held))
    return {
        "num_held_out": len(held),
        "num_copies": sum(is_copy),
        "num_same_features": sum(is_same),
        "num_either": num_either,
        "copies_low": share.low,
        "copies_high": share.high,
    }
