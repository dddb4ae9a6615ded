"""Evidence for findings about a run: places, votes, its loss and settings, its held-out samples beside the others."""

# N samples, M of both parts of the split, D features

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.paired_shares import Z_95
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import flat
from counterpoint.diagnostics.alignment import colour_statistics, shortcut, view_cosines
from counterpoint.diagnostics.concepts import consistency_interval
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    HELD_OUT,
    RAW_INPUT,
    REPRESENTATION,
    TRAINING,
    UNTRAINED,
    Evidence,
    HeldOutRecord,
    ToldApart,
)
from counterpoint.diagnostics.measure import Place, measure_place
from counterpoint.diagnostics.sample_shift import matched_parts, picture_moments, told_apart
from counterpoint.evaluation.features import (
    SampleFeatures,
    altered_pictures,
    blank_encoder,
    content_hashes,
    extract,
    view_pairs,
    with_norms_of,
)
from counterpoint.evaluation.metric_types import wilson
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.heads import SparseCode
from counterpoint.runs.active_settings import levers_of
from counterpoint.runs.class_comparison import judged_classes
from counterpoint.runs.code_figures import explained_by
from counterpoint.runs.feature_evidence import accuracies_of_subject, is_rectified, with_clusters
from counterpoint.runs.pair_inspection import pairs_of_run

COLOURS = "colours"  # of the views
FEWEST_COLOURED = 50
NUM_VIEW_SAMPLES = 2048  # samples whose two views are compared, at most
Pair = tuple[Tensor, Tensor]
SMALL_SIDE, AT_ONCE = 16, 128  # pixels of a side of pictures that are compared raw; samples that are read at once
FEWEST_HELD_OUT = 20  # smallest number of held-out samples, and of training samples
HELD_OUT_FIGURES = (
    "effective_rank", "rank_ceiling", "vanished", "resolved", "alignment", "positive_cosine", "negative_cosine",
    "uniformity", "sparsity", "dead_dims",
)  # fmt: skip


@dataclass(frozen=True)
class GatheredEvidence:
    """The evidence about an encoder, with the arrays behind it.

    Attributes:
        evidence: the evidence from which findings are drawn.
        places: measurements with the arrays behind them.
        embedding_ND: embeddings of all samples.
        representation_ND: representations of all samples.
    """

    evidence: Evidence
    places: dict[str, Place]
    embedding_ND: Tensor
    representation_ND: Tensor


def gather_evidence(
    judged: Subject, threshold: float, *, checkpoint: str | None = None, cache: bool
) -> GatheredEvidence:
    """Measure representation and embedding beside the untrained encoder, and read the run's folder.

    Args:
        judged: an encoder beside samples.
        threshold: value above which a feature of a unit-length vector counts as active.
        checkpoint: step of the state that is judged; None for the last.
        cache: True reads features from the cache, and keeps them there.
    """
    # Before the backbone is measured, which sets the statistics of its norms.
    backbone = untrained_backbone(judged)
    change = weight_change(judged, backbone)
    source, labels, encoder = judged.source, judged.source.labels, judged.encoder
    chosen_N = evenly_spaced(torch.arange(len(source)), NUM_VIEW_SAMPLES)
    features = extract(encoder, source, cache=cache)
    features_of_places = {REPRESENTATION: features.representation, EMBEDDING: features.embedding}
    further = {COLOURS: colour_statistics} if encoder.card.kind == "images" else {}
    layers = (REPRESENTATION, EMBEDDING)
    views = view_pairs(judged, encoder, layers, chosen_N, further) if judged.has_views else {}
    colours, embedded = views.pop(COLOURS, None), views.get(EMBEDDING)
    colour_shortcut = None
    if colours is not None and embedded is not None and len(colours[0]) >= FEWEST_COLOURED:
        colour_shortcut = shortcut(colours, embedded[0])
    # Non-negative by design or, if the design is not known, by its values.
    is_known = judged.folder is not None and judged.settings is not None
    is_nonnegative = encoder.card.nonnegative != "none" if is_known else is_rectified(features.embedding)
    if backbone is not None:
        untrained = with_norms_of(blank_encoder(backbone, encoder), source, judged.split.train)
        # An untrained encoder has no embedding: the baseline is a representation.
        features_of_places[UNTRAINED] = extract(untrained, source, [REPRESENTATION], cache=cache).representation
        if views:
            views[UNTRAINED] = view_pairs(judged, untrained, [REPRESENTATION], chosen_N)[REPRESENTATION]
    folder_evidence = from_folder(judged)
    places = {
        name: measure_place(
            all_ND,
            views=views.get(name),
            labels=labels,
            threshold=threshold,
            is_directional=name == EMBEDDING and folder_evidence.gaussian_by == "theory",
        )
        for name, all_ND in features_of_places.items()
    }
    code = encoder.projector
    classes = judged_classes(judged, features.embedding)
    classes = with_clusters(classes, places[EMBEDDING].agreement, source.class_names)
    evidence = replace(
        folder_evidence,
        places={name: place.figures for name, place in places.items()},
        votes=accuracies_of_subject(judged, features_of_places),
        is_nonnegative=is_nonnegative,
        weight_change=change,
        shortcut=colour_shortcut,
        pairs=pairs_of_run(judged, views[EMBEDDING], features.embedding[chosen_N], chosen_N, checkpoint)
        if views
        else None,
        classes=classes,
        held_out=held_out_beside_training(judged, features, embedded, chosen_N, threshold),
        altered=altered_pictures(judged),
        reconstruction=explained_by(code, features.representation) if isinstance(code, SparseCode) else None,
        consistency=consistency_interval(features.embedding, labels, threshold=threshold)
        if isinstance(code, SparseCode) and labels is not None
        else None,
        suspects=places[EMBEDDING].suspect_names(source.sample_names),
    )
    return GatheredEvidence(evidence, places, features.embedding, features.representation)


def from_folder(judged: Subject) -> Evidence:
    """Read the loss, and the settings that can be changed, from the run folder."""
    if judged.folder is None or judged.settings is None:
        return Evidence({})
    metrics = judged.folder.read_metrics()
    last = metrics[-1] if metrics else {}
    return Evidence(
        {},
        loss=last.get("loss"),
        chance=last.get("chance"),
        floor=last.get("floor"),
        is_supervised=METHODS[judged.settings.method].needs_labels,
        gaussian_by=gaussian_by(judged.settings),
        levers=levers_of(judged.settings, judged.source.kind),
        values=flat(TrainSettings, judged.settings.model_dump()),
    )


def gaussian_by(settings: TrainSettings) -> Literal["", "loss", "theory"]:
    """The reason why the embedding of a run should be Gaussian in every direction; see ``Evidence.gaussian_by``."""
    if METHODS[settings.method].wiring not in ("joint", "queue") or settings.output.nonnegative != "none":
        return ""
    # DirectCLR's embedding is a part of the representation, after its ReLU.
    by_theory = settings.loss.name == "infonce" and settings.method != "directclr"
    return "loss" if settings.loss.name in ("sigreg", "visreg") else "theory" if by_theory else ""


def weight_change(judged: Subject, backbone: nn.Module | None) -> float | None:
    """Length of the change of the encoder's weights in training, over their length before; None if it is not known."""
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


def held_out_beside_training(
    subject: Subject, features: SampleFeatures, views: Pair | None, viewed: Tensor, threshold: float
) -> HeldOutRecord | None:
    """Set both parts of a run's own samples side by side; None if nothing or too little was held out.

    Args:
        subject: an encoder beside samples.
        features: features of all samples.
        views: embeddings of two views of some samples; None if there are none.
        viewed: positions of these samples.
        threshold: value above which a feature of a unit-length vector counts as active.
    """
    settings, split = subject.settings, subject.split
    if settings is None or not subject.is_own_data or float(settings.source.holdout) == 0:
        return None
    size = min(len(split.train), len(split.held_out), features.embedding.shape[0])
    if size < FEWEST_HELD_OUT:
        return None
    positions = {TRAINING: split.train, HELD_OUT: split.held_out}
    pairs = {}
    for name, part_N in positions.items():
        is_part_M = torch.isin(viewed, part_N)
        pair = None if views is None else (views[0][is_part_M], views[1][is_part_M])
        pairs[name] = pair if int(is_part_M.sum()) > 1 else None
    # Ranks depend on the number of samples: as many of both.
    samples = {name: features.embedding[evenly_spaced(part_N, size)] for name, part_N in positions.items()}
    parts = {
        name: measure_place(z_ND, views=pairs[name], threshold=threshold, only=HELD_OUT_FIGURES).figures
        for name, z_ND in samples.items()
    }
    told = _test_parts(subject, features)
    return HeldOutRecord(
        parts=parts, told=told, **_view_gap(pairs[TRAINING], pairs[HELD_OUT]), **_held_out_copies(subject, features)
    )


def _test_parts(subject: Subject, features: SampleFeatures) -> dict[str, ToldApart]:
    labels = subject.source.labels
    parts = matched_parts(subject.split.train, subject.split.held_out, labels)
    label_N = None if labels is None or not bool((labels >= 0).any()) else labels[parts[0]]
    inputs = {
        EMBEDDING: [features.embedding[part] for part in parts],
        RAW_INPUT: [_small_input(subject, part) for part in parts],
    }
    tests = {
        place: told_apart(train_MD, held_out_MD, label_N, generator=torch.Generator().manual_seed(0))
        for place, (train_MD, held_out_MD) in inputs.items()
    }
    return {place: test for place, test in tests.items() if test is not None}


def _small_input(subject: Subject, positions: Tensor) -> Tensor:
    """Return raw input as rows; of pictures a small copy, and the moments of their colours."""
    rows = []
    for part in positions.split(AT_ONCE):
        raw = to_unit_float(subject.source.store.fetch(part.tolist()))
        if subject.source.kind == "images":
            small = adaptive_avg_pool2d(raw, (min(raw.shape[2], SMALL_SIDE), min(raw.shape[3], SMALL_SIDE)))
            raw = torch.cat([small.flatten(1), picture_moments(raw).float()], dim=1)
        rows.append(raw)
    return torch.cat(rows)


def _view_gap(training: Pair | None, held_out: Pair | None) -> dict[str, float]:
    """Difference of the mean cosines of two views with its interval, as fields of the record."""
    if training is None or held_out is None:
        return {}
    cosines = [view_cosines(*pair) for pair in (training, held_out)]
    gap = float(cosines[0].mean() - cosines[1].mean())
    # welch1947, with enough degrees of freedom that the normal quantile serves.
    error = Z_95 * math.sqrt(sum(float(cosine_M.var()) / len(cosine_M) for cosine_M in cosines))
    return {"gap": gap, "low": gap - error, "high": gap + error}


def _held_out_copies(subject: Subject, features: SampleFeatures) -> dict[str, float]:
    """Count held-out samples that equal a training sample, as fields of the record."""
    train, held_out = (part.numpy() for part in (subject.split.train, subject.split.held_out))
    is_copy, is_same = (
        [key in train_keys for key in hashes[held_out].tolist()]
        for hashes in (features.content_N, content_hashes(features.representation))
        for train_keys in [set(hashes[train].tolist())]
    )
    num_either = sum(map(max, is_copy, is_same))
    share = wilson(num_either, len(held_out))
    return {
        "num_held_out": len(held_out),
        "num_copies": sum(is_copy),
        "num_same_features": sum(is_same),
        "num_either": num_either,
        "copies_low": share.low,
        "copies_high": share.high,
    }
