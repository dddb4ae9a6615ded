"""All metrics of one set of features in one record, with intervals: what findings are drawn from and reports show."""

# N samples, D features, K = min(N, D) singular values, G groups of samples

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from counterpoint.core.metric import loaded_metrics
from counterpoint.core.numerics import unit_doubles
from counterpoint.core.paired_shares import Z_95, jackknife_half_width
from counterpoint.core.process_setup import give_back_memory
from counterpoint.core.thread_parts import side_by_side
from counterpoint.diagnostics import crowding
from counterpoint.diagnostics.alignment import CosineHistogram, cosine_histogram, view_cosines
from counterpoint.diagnostics.class_geometry import class_geometry
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD
from counterpoint.diagnostics.evidence import Measurements
from counterpoint.diagnostics.feature_values import OutlierSamples, look_for_outliers, measure_scales, ordered_values
from counterpoint.diagnostics.gaussian_slices import gaussian_slices
from counterpoint.diagnostics.label_agreement import LabelAgreement, label_agreement
from counterpoint.diagnostics.spectra import covariance_spectrum, effective_rank, singular_values, vanished_directions

CATALOGUE = loaded_metrics("diagnostics")
# Samples that a check is about, by its name: positions in ``MeasuredFeatures.z_ND``.
SUSPECTS: Mapping[str, Callable[["MeasuredFeatures"], Tensor]] = {
    "label-noise": lambda subject: subject.agreement.suspects if subject.agreement else torch.empty(0).long(),
    "near-copies": lambda subject: subject.near.rows_R,
    "hubs": lambda subject: (
        torch.tensor([subject.near.hub_row])
        if subject.near.hub > crowding.largest_hub(subject.neighbours_N)
        else crowding.hub_rows(subject.z_ND, subject.neighbours_N)
    ),
    "gaussian-slices": lambda subject: subject.slices.rows,
}


@dataclass(frozen=True)
class MeasuredFeatures:
    """The input of metrics; shared results are computed once, when the first metric needs them.

    Attributes:
        z_ND: features of all samples but outliers.
        views: features of two views of some samples; None if there are none.
        labels_N: class numbers, -1 for a sample without a label; None for data without labels.
        threshold: absolute value above which a feature of a unit-length vector is active.
        outliers: samples far from all others, which are in no other figure.
        is_directional: whether only directions count, as in losses of cosines; else slices are of features as given.
        unit_ND: unit-length features, float64.
        spectrum_D: singular values of the covariance of the unit-length features, descending.
        sigma_K: singular values of the unit-length features, not centred, descending.
        near: shares and positions of the samples with near-copies.
        num_distinct: number of samples without copies, which span no direction of their own.
        vanished: counts of the directions that carry nothing.
        cosines: histogram of the cosines of two views, and of different samples among them; None without views.
        classes: class means and samples around them; None without labels.
        agreement: agreement of the labels with the features; None without labels.
        neighbours_N: number of times that each of some samples is among the nearest of others.
        ordered_DS: values of each dimension over some samples, ascending.
        scales: figures of the raw features beside those of standardised ones.
        slices: distances of random slices, principal ones and single dimensions from a Gaussian.
    """

    z_ND: Tensor
    views: tuple[Tensor, Tensor] | None
    labels_N: Tensor | None
    threshold: float
    outliers: OutlierSamples
    is_directional: bool
    unit_ND = cached_property(lambda my: unit_doubles(my.z_ND))
    spectrum_D = cached_property(lambda my: covariance_spectrum(my.unit_ND))
    sigma_K = cached_property(lambda my: singular_values(my.unit_ND))
    num_rows = property(lambda my: len(my.z_ND))
    first_N = cached_property(lambda my: crowding.distinct_rows(my.z_ND))
    near = cached_property(lambda my: crowding.near_copies(my.z_ND, my.first_N))
    num_distinct = property(lambda my: max(round(len(my.first_N) * my.near.distinct), 2))
    vanished = cached_property(lambda my: vanished_directions(my.spectrum_D, my.num_distinct))
    cosines = cached_property(lambda my: cosine_histogram(*my.views) if my.views is not None else None)
    classes = cached_property(lambda my: class_geometry(my.z_ND, my.labels_N) if my.labels_N is not None else None)
    agreement = cached_property(lambda my: label_agreement(my.z_ND, my.labels_N) if my.labels_N is not None else None)
    neighbours_N = cached_property(lambda my: crowding.neighbour_counts(my.z_ND))
    ordered_DS = cached_property(lambda my: ordered_values(my.z_ND))
    scales = cached_property(lambda my: measure_scales(my.z_ND, my.ordered_DS, my.num_distinct))
    slices = cached_property(lambda my: gaussian_slices(my.unit_ND if my.is_directional else my.z_ND, my.first_N))


# The order is the one in which two threads wait for each other least.
SHARED = (
    "near",
    "unit_ND",
    "ordered_DS",
    "spectrum_D",
    "sigma_K",
    "classes",
    "agreement",
    "neighbours_N",
    "scales",
    "slices",
)


@dataclass(frozen=True)
class Place:
    """Measurements with the arrays behind them.

    Attributes:
        figures: the figures, by metric.
        spectrum: singular values of the covariance of the unit-length features, descending.
        cosines: histogram of the cosines of two views, and of different samples among them; None without views.
        suspects: positions of the samples that a check is about, by the name of the check, the clearest first.
        agreement: agreement of the labels with the features; None without labels.
    """

    figures: Measurements
    spectrum: Tensor
    cosines: CosineHistogram | None
    suspects: Mapping[str, Tensor] = field(default_factory=dict)
    agreement: LabelAgreement | None = None

    def suspect_names(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Names of the first suspects, by check."""
        return {
            check: tuple(names[int(place)] for place in places.tolist()[:MOST_NAMED])
            for check, places in self.suspects.items()
            if len(places)
        }


GROUPS = 10
MOST_NAMED = 10  # samples of a finding
LARGE = 32 << 20  # bytes of features; glibc maps no smaller block on its own
MOST_DIMS = 1024  # beyond, ten spectra would take longer than all else

Intervals = dict[str, tuple[float, float]]


def figure_intervals(unit_ND: Tensor, views: tuple[Tensor, Tensor] | None) -> Intervals:
    """Intervals of spread, effective rank and vanished directions, and of the cosine of views.

    Those of spectra by leaving out each of ten interleaved groups of samples (see ``jackknife_half_width``).

    Args:
        unit_ND: unit-length features, float64.
        views: features of two views of some samples.
    """
    intervals: Intervals = {}
    if unit_ND.shape[1] <= MOST_DIMS and len(unit_ND) >= 2 * GROUPS:
        groups = [unit_ND[first::GROUPS] for first in range(GROUPS)]
        sums = side_by_side(lambda rows: (len(rows), rows.sum(dim=0), rows.T @ rows), groups)
        count, total_D, gram_DD = len(unit_ND), sum(s for _, s, _ in sums), sum(g for _, _, g in sums)
        left_out = [(count, total_D, gram_DD), *((count - n, total_D - s, gram_DD - g) for n, s, g in sums)]
        spectra = side_by_side(lambda part: (part[0], _spectrum(*part)), left_out)
        measures: dict[str, Callable[[int, Tensor], float]] = {
            "spread": lambda num, lambda_D: crowding.spread(lambda_D, num),
            "effective_rank": lambda _, lambda_D: effective_rank(lambda_D),
            "vanished": lambda num, lambda_D: float(vanished_directions(lambda_D, num).count),
        }
        for name, measure in measures.items():
            value, *parts = (measure(num, lambda_D) for num, lambda_D in spectra)
            half = jackknife_half_width(parts)
            intervals[name] = (max(value - half, 0.0), value + half)
    if views is not None and len(views[0]) > 1:
        cosines_N = view_cosines(*views)
        mean, error = float(cosines_N.mean()), float(cosines_N.std()) / math.sqrt(len(cosines_N))
        intervals["positive_cosine"] = (max(mean - Z_95 * error, -1.0), min(mean + Z_95 * error, 1.0))
    return intervals


def _spectrum(count: int, total_D: Tensor, gram_DD: Tensor) -> Tensor:
    """Return eigenvalues of a covariance from sums, descending, without those at the level of rounding."""
    mean_D = total_D / count
    lambda_D = torch.linalg.eigvalsh((gram_DD - count * torch.outer(mean_D, mean_D)) / (count - 1)).flip(0)
    noise = len(lambda_D) * torch.finfo(torch.float64).eps * max(float(gram_DD.trace()) / count, 0.0)
    return torch.where(lambda_D > noise, lambda_D, 0.0)


def measure_place(
    z_ND: Tensor,
    *,
    views: tuple[Tensor, Tensor] | None = None,
    labels: Tensor | None = None,
    threshold: float = SPARSITY_THRESHOLD,
    is_directional: bool = False,
    only: Collection[str] = CATALOGUE,
) -> Place:
    """Measure features, scaled to unit length first (losses see directions only).

    Args:
        z_ND: features of all samples.
        views: features of two views of some samples, for alignment.
        labels: class numbers, -1 for a sample without a label, for class consistency and class means.
        threshold: absolute value above which a feature of a unit-length vector is active.
        is_directional: whether the loss sees directions only, so that slices are those of unit-length features.
        only: names of the metrics that are measured; all by default.
    """
    num_samples, outliers = len(z_ND), look_for_outliers(z_ND, labels)
    is_kept_N = torch.ones(num_samples, dtype=torch.bool).index_fill(0, outliers.rows_R, False)
    if len(outliers.rows_R):
        z_ND, labels = z_ND[is_kept_N], None if labels is None else labels[is_kept_N]
    subject = MeasuredFeatures(z_ND, views, labels, threshold, outliers, is_directional)
    chosen = {name: metric for name, metric in CATALOGUE.items() if name in only}
    is_all = len(chosen) == len(CATALOGUE)
    if is_all:
        side_by_side(partial(_compute_shared, subject), SHARED)
    values = side_by_side(lambda metric: metric.measure(subject), chosen.values())
    # JSON has no NaN, and None is what a reader checks for.
    figures = {name: value if math.isfinite(value) else None for name, value in zip(chosen, values, strict=True)}
    intervals = figure_intervals(subject.unit_ND, views)
    agreement = subject.agreement if is_all else None
    if agreement is not None and agreement.noise.low is not None and agreement.noise.high is not None:
        intervals["label_noise"] = (agreement.noise.low, agreement.noise.high)
    record = {"num_samples": num_samples, "num_dims": z_ND.shape[1], **figures, "intervals": intervals}
    suspects: dict[str, Tensor] = {}
    if is_all:
        inlier_N = is_kept_N.nonzero()[:, 0]
        suspects = {check: inlier_N[rows(subject)] for check, rows in SUSPECTS.items()}
        suspects["outliers"] = outliers.rows_R
    return Place(Measurements.model_validate(record), subject.spectrum_D, subject.cosines, suspects, agreement)


def _compute_shared(subject: MeasuredFeatures, name: str) -> None:
    """Compute a result that several metrics read; the pieces that it frees would not fit the next large arrays."""
    getattr(subject, name)
    if subject.z_ND.nbytes > LARGE:  # a fifth of the time of 1,000 x 64
        give_back_memory()
