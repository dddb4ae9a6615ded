"""Whether an embedding is Gaussian in every direction, where its loss makes it so or theory says that it tends there.

Limits were chosen by ``calibrate_diagnosis.py --set choosing`` (docs/diagnosis-reference.md).
"""

import math

from counterpoint.diagnostics.checks.collapse_checks import is_full_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence, Measurements
from counterpoint.diagnostics.finding import Finding, Level

FAR, VERY_FAR = 0.02, 0.03  # distance of the worst slice; Laplace's law has 0.019, two points 0.11
TWO_GROUPS = 5 / 9  # of Sarle's coefficient, (skewness^2 + 1) / kurtosis: that of a uniform distribution
HEAVY, LIGHT = 4.0, 2.5  # kurtosis


def check_gaussian_slices(evidence: Evidence) -> Finding | None:
    """Is the embedding Gaussian in random directions, principal ones and single dimensions, where its loss wants it?"""
    embedding = evidence.places[EMBEDDING]
    worst, limit = embedding.figures.get("slice_worst"), embedding.figures.get("slice_limit")
    # Sparse, non-negative and supervised features have another shape by design.
    if worst is None or limit is None or evidence.is_nonnegative or evidence.is_supervised:
        return None
    level = _level(evidence, embedding, worst, limit)
    if level is None:
        return None
    is_fine = level == "good"
    return Finding(
        level=level,
        title=f"No slice is far from a Gaussian: of {embedding.slice_count:,.0f} the worst is at {worst:.2g}"
        if is_fine
        else "Not Gaussian in every direction: "
        + ("a direction " if math.isnan(_dim(embedding)) else f"dimension {_dim(embedding):.0f} ")
        + _kind(embedding),
        measured=worst,
        reference=limit,
        reference_name="the worst slice of Gaussian features of this size, at most",
        text=f"Beyond chance are {embedding.slice_random:.0f} random slices, {embedding.slice_principal:.0f} principal "
        f"directions and {embedding.slice_dims:.0f} single dimensions, of {embedding.slice_count:,.0f} slices. "
        + {
            "loss": "The loss is the distance of such slices from a Gaussian: it has not been brought down.",
            "theory": "InfoNCE tends to a Gaussian in every direction once views agree and there are many dimensions "
            "(betser2026); classes that are learned well leave groups, one dimension that differs does not come of it.",
            "": "A dimension with a shape of its own decides many distances (timkey2021).",
        }[evidence.gaussian_by],
        confirm="look at the named samples, which lie at both ends of that slice",
        remedy=""
        if is_fine
        else "standardise the dimension or leave it out, and compare kNN"
        if not math.isnan(_dim(embedding))
        else "train longer, or give the term on slices more weight"
        if evidence.gaussian_by == "loss"
        else "remove damaged samples among the named ones; groups that are classes need nothing",
        cannot_tell="whether the shape is one of the data: random slices of many dimensions look Gaussian whatever the "
        "features are, and only the worst slice is shown",
        samples=evidence.suspects.get("gaussian-slices", ()),
    )


def _level(evidence: Evidence, embedding: Measurements, worst: float, limit: float) -> Level | None:
    """How bad the worst slice is; None where nothing is to be said."""
    is_far, is_very_far = worst > max(limit, FAR), worst > max(limit, VERY_FAR)
    is_dimension = not math.isnan(_dim(embedding)) and embedding.slice_dims <= embedding.num_dims / 4
    if is_full_collapse(embedding):
        return None
    if evidence.gaussian_by == "loss":
        return "warning" if is_very_far else "note" if is_far else "good"
    if evidence.gaussian_by == "theory":
        return "warning" if is_very_far and is_dimension else "note" if is_far else "good"
    return "note" if is_very_far and is_dimension else None


def _dim(embedding: Measurements) -> float:
    dim = embedding.figures.get("slice_dim")
    return math.nan if dim is None else dim


def _kind(embedding: Measurements) -> str:
    """How the worst slice departs."""
    skewness, kurtosis = embedding.slice_skewness, embedding.slice_kurtosis
    if (skewness**2 + 1) / kurtosis > TWO_GROUPS:
        return "falls into groups"
    if kurtosis > HEAVY:
        return "has heavy tails"
    return "has short tails" if kurtosis < LIGHT else "is lopsided" if abs(skewness) > 1 / 2 else "has another shape"
