"""Measure the held-out part of a run beside the samples of training."""

# N samples, M of both parts, D features

import math

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.paired_shares import Z_95
from counterpoint.diagnostics.alignment import view_cosines
from counterpoint.diagnostics.evidence import EMBEDDING, HELD_OUT, RAW_INPUT, TRAINING, HeldOutRecord, ToldApart
from counterpoint.diagnostics.measure import measure_place
from counterpoint.diagnostics.sample_shift import matched_parts, picture_moments, told_apart
from counterpoint.evaluation.features import SampleFeatures, content_hashes
from counterpoint.evaluation.metric_types import wilson
from counterpoint.evaluation.subject import Subject

Pair = tuple[Tensor, Tensor]
SMALL, AT_ONCE = 16, 128  # pixels of a side of pictures that are compared raw; samples that are read at once
FEWEST = 20  # smallest number of held-out samples, and of training samples
HELD_OUT_FIGURES = (
    "effective_rank", "rank_ceiling", "vanished", "resolved", "alignment", "positive_cosine", "negative_cosine",
    "uniformity", "sparsity", "dead_dims",
)  # fmt: skip


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
    if size < FEWEST:
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
    return HeldOutRecord(parts=parts, told=told, **_gap(pairs[TRAINING], pairs[HELD_OUT]), **_copies(subject, features))


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
            small = adaptive_avg_pool2d(raw, (min(raw.shape[2], SMALL), min(raw.shape[3], SMALL)))
            raw = torch.cat([small.flatten(1), picture_moments(raw).float()], dim=1)
        rows.append(raw)
    return torch.cat(rows)


def _gap(training: Pair | None, held_out: Pair | None) -> dict[str, float]:
    """Difference of the mean cosines of two views with its interval, as fields of the record."""
    if training is None or held_out is None:
        return {}
    cosines = [view_cosines(*pair) for pair in (training, held_out)]
    gap = float(cosines[0].mean() - cosines[1].mean())
    # welch1947, with enough degrees of freedom that the normal quantile serves.
    error = Z_95 * math.sqrt(sum(float(cosine_M.var()) / len(cosine_M) for cosine_M in cosines))
    return {"gap": gap, "low": gap - error, "high": gap + error}


def _copies(subject: Subject, features: SampleFeatures) -> dict[str, float]:
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
