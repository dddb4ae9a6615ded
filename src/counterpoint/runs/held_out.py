"""Samples that a run trained on beside those that were held out: the same figures, and copies in both parts."""

# N samples, D features

import math

import torch
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.class_geometry import Z_95
from counterpoint.diagnostics.evidence import HELD_OUT, TRAINING, HeldOutRecord
from counterpoint.diagnostics.measure import measure_place
from counterpoint.evaluation.features import SampleFeatures, content_hashes, evenly_spaced
from counterpoint.evaluation.metric_types import wilson
from counterpoint.evaluation.subject import Subject

NUM_VIEW_SAMPLES = 2048  # samples whose two views are compared, at most
FEWEST = 20  # samples of either part
FIGURES = (
    "effective_rank", "rank_ceiling", "vanished", "resolved", "alignment", "positive_cosine", "negative_cosine",
    "uniformity", "sparsity", "dead_dims",
)  # fmt: skip


def held_out_record(
    subject: Subject, features: SampleFeatures, views: tuple[Tensor, Tensor] | None, threshold: float
) -> HeldOutRecord | None:
    """Set both parts of a run's own samples side by side; None where nothing was held out, or too little.

    Args:
        subject: of a run.
        features: of all samples.
        views: embedding of two views of evenly spaced samples, at most ``NUM_VIEW_SAMPLES``; None without views.
        threshold: above which a feature of a unit-length vector is active.
    """
    settings, split = subject.settings, subject.split
    if settings is None or not subject.is_own_data or float(settings.source.holdout) == 0:
        return None
    size = min(len(split.train), len(split.held_out), features.embedding.shape[0])
    if size < FEWEST:
        return None
    positions = {TRAINING: split.train, HELD_OUT: split.held_out}
    pairs = {name: _of(views, part_N, len(subject.source)) for name, part_N in positions.items()}
    # Ranks depend on the number of samples: as many of both.
    parts = {
        name: measure_place(
            features.embedding[evenly_spaced(part_N, size)], views=pairs[name], threshold=threshold, only=FIGURES
        ).figures
        for name, part_N in positions.items()
    }
    return HeldOutRecord(parts=parts, **_gap(pairs[TRAINING], pairs[HELD_OUT]), **_copies(subject, features))


def _of(views: tuple[Tensor, Tensor] | None, part_N: Tensor, num_samples: int) -> tuple[Tensor, Tensor] | None:
    """Of the views, those of some samples; None of fewer than two."""
    if views is None:
        return None
    chosen_M = evenly_spaced(torch.arange(num_samples), NUM_VIEW_SAMPLES)
    is_part_M = torch.isin(chosen_M, part_N)
    return (views[0][is_part_M], views[1][is_part_M]) if int(is_part_M.sum()) > 1 else None


def _gap(training: tuple[Tensor, Tensor] | None, held_out: tuple[Tensor, Tensor] | None) -> dict[str, float]:
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
