"""All measurements of one set of features in one record: what findings are drawn from and reports show."""

# N samples, D features

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from counterpoint.core.one_thread import side_by_side
from counterpoint.diagnostics.alignment import CosineHistogram, alignment, cosine_histogram, mean_cosine, uniformity
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD, class_purity, feature_correlation, is_active, sparsity
from counterpoint.diagnostics.evidence import Measurements
from counterpoint.diagnostics.spectra import covariance_spectrum, effective_rank, isotropic_rank


@dataclass(frozen=True)
class Place:
    """Measurements with the arrays behind them."""

    figures: Measurements
    spectrum: Tensor
    cosines: CosineHistogram | None


def measure_place(
    z_ND: Tensor,
    *,
    views: tuple[Tensor, Tensor] | None = None,
    labels: Tensor | None = None,
    threshold: float = SPARSITY_THRESHOLD,
) -> Place:
    """Measure features, scaled to unit length first (losses see directions only).

    Args:
        z_ND: features of all samples.
        views: features of two views of some samples, for alignment.
        labels: class numbers, for class consistency.
        threshold: above which a feature is active.
    """
    longest: list[Callable[[], Any]] = [
        lambda: covariance_spectrum(z_ND, normalize=True),
        lambda: isotropic_rank(*z_ND.shape, normalize=True),
        lambda: uniformity(z_ND),
        lambda: cosine_histogram(*views) if views is not None else None,
    ]
    spectrum, ceiling, spread, cosines = side_by_side(lambda measure: measure(), longest)
    figures = Measurements(
        num_samples=len(z_ND),
        num_dims=z_ND.shape[1],
        effective_rank=effective_rank(spectrum),
        rank_ceiling=ceiling,
        uniformity=spread,
        sparsity=sparsity(z_ND, threshold=threshold),
        feature_correlation=_or_none(feature_correlation(z_ND)),
        dead_dims=int((~is_active(z_ND, threshold).any(dim=0)).sum()),
        alignment=alignment(*views) if views is not None else None,
        positive_cosine=cosines.positive_mean if cosines else None,
        negative_cosine=mean_cosine(z_ND),
        class_consistency=None
        if labels is None
        else _or_none(class_purity(z_ND, labels, threshold=threshold).consistency),
    )
    return Place(figures, spectrum, cosines)


def _or_none(value: float) -> float | None:
    """NaN says that a figure does not exist."""
    return None if math.isnan(value) else value
