"""Measures of values: samples far from all others, tails, and dimensions by their scales, distinct values and ends."""

# N samples, D features, L dimensions that vary, S samples whose values are looked at

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import rowwise, unit_doubles
from counterpoint.diagnostics.spectra import (
    covariance_spectrum,
    effective_rank,
    mean_and_covariance,
    participation_ratio,
    rankme,
    singular_values,
    spectrum_of,
    vanished_directions,
    without_rounding,
)

# Chosen on drawn features of 40 kinds (20 to 3,000 samples, 2 to 512 dimensions), of which none has outliers.
MOST = 0.05  # of the samples: more are a group, or a heavy tail
FEWEST_SAMPLES = 20
FAR = 3.0  # median distances from the median
SPREAD_OUT = 3.0  # times the logarithm of the 90 % quantile of distances over their median
GAP = 1.5  # from the nearest outlier to the farthest other sample
COLUMNS = 64  # whose entries are sorted at once
MOST_DISTANT = 0.01  # of the samples, or of the entries, whose weight is reported
FEWEST_VARIED = 10  # samples on which a dimension differs from its commonest value; fewer are not a scale
MOST_LOOKED_AT = 2048  # samples whose values are counted
ROUNDING = 1e-6  # of the mean of a dimension: smaller deviations are rounding of float32
LOST = 1e-9  # of the largest deviation: rounding of a rotation
FEWEST_DIMS = 8  # whose order says anything
AT_END = 1e-3  # of the interquartile range, from the largest or least value
MANY_VALUES = 32


@dataclass(frozen=True)
class OutlierSamples:
    """Samples that are left out of all other figures, and the ranks with them.

    Attributes:
        rows_R: samples so far from all others that every other figure is measured without them, the farthest first.
        variance: share of the mean squared distance from the median that outliers have.
        effective_rank: effective rank of all samples, outliers included; NaN if there are none.
        rankme: RankMe of all samples, outliers included.
        participation_ratio: participation ratio of all samples, outliers included.
        vanished: number of vanished directions of all samples, outliers included.
    """

    rows_R: Tensor
    variance: float = 0.0
    effective_rank: float = torch.nan
    rankme: float = torch.nan
    participation_ratio: float = torch.nan
    vanished: float = torch.nan


def median_distances(z_ND: Tensor) -> Tensor:
    """Distance (N,) of each sample from the median of each dimension, float64.

    >>> median_distances(torch.tensor([[0.0], [1.0], [5.0]])).tolist()
    [1.0, 0.0, 4.0]
    """
    median_D = z_ND.median(dim=0).values
    return rowwise(lambda rows: torch.linalg.vector_norm(rows.double() - median_D, dim=1), z_ND)


def outlier_rows(z_ND: Tensor, labels_N: Tensor | None = None) -> Tensor:
    r"""Positions of samples far from all others, the farthest first.

    .. math:: r_i = |z_i - \mathrm{med}\,z|, \qquad r_i \ge m \max(3, (q_{0.9} / m)^3), \quad m = \mathrm{med}\,r

    and the nearest of them is 1.5 times as far as the farthest other sample. At most 5 % of the samples; a tail that
    falls without such a gap has no outliers. A class of which half would be named is a class of its own.

    Args:
        z_ND: features as they are, not scaled.
        labels_N: class numbers, -1 for a sample without a label.

    Returns:
        Positions (R,). Unchanged by shifting z, and by scaling all of it; none for fewer than 20 samples.

    >>> z = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> z[7] += 50
    >>> outlier_rows(z)
    tensor([7])
    """
    check_features(z_ND, "z")
    distance_N = median_distances(z_ND)
    median, high = float(distance_N.median()), float(distance_N.quantile(0.9))
    far_N, order_N = distance_N.sort(descending=True, stable=True)
    no_rows = order_N[:0]
    if len(z_ND) < FEWEST_SAMPLES or median == 0:
        return no_rows
    most = int(MOST * len(z_ND))
    limit = median * max(FAR, (high / median) ** SPREAD_OUT)
    is_end_M = (far_N[:most] >= limit) & (far_N[:most] >= GAP * far_N[1 : most + 1])
    if not is_end_M.any():
        return no_rows
    far_R = order_N[: int(is_end_M.nonzero().max()) + 1]
    if labels_N is not None:
        label_R = labels_N[far_R]
        share_R = (label_R[:, None] == label_R).sum(1) / (labels_N == label_R[:, None]).sum(1)
        far_R = far_R[(label_R < 0) | (share_R < 1 / 2)]
    return far_R


def look_for_outliers(z_ND: Tensor, labels_N: Tensor | None = None) -> OutlierSamples:
    """Find outliers, and measure the main ranks with them, of the unit-length features."""
    rows_R = outlier_rows(z_ND, labels_N)
    if len(rows_R) == 0:
        return OutlierSamples(rows_R)
    square_N = median_distances(z_ND).square()
    unit_ND = unit_doubles(z_ND)
    spectrum_D = covariance_spectrum(unit_ND)
    return OutlierSamples(
        rows_R,
        variance=float(square_N[rows_R].sum() / square_N.sum()),
        effective_rank=effective_rank(spectrum_D),
        rankme=rankme(singular_values(unit_ND)),
        participation_ratio=participation_ratio(spectrum_D),
        vanished=vanished_directions(spectrum_D, len(z_ND)).count,
    )


def tail_share(z_ND: Tensor) -> float:
    r"""Share of all squared distances from the median that the most distant 1 % of the samples have.

    A little above 1 % where samples lie about equally far, 1 where single ones carry all.

    >>> round(tail_share(torch.randn(5000, 64, generator=torch.Generator().manual_seed(0))), 3)
    0.015
    """
    return _median(_top_shares(median_distances(z_ND).square()[:, None]))


def entry_tail_share(z_ND: Tensor) -> float:
    """Share of all squared deviations from the median that the largest 1 % of the entries of a dimension have.

    In the median dimension; entries of 0 of a rectified map are left out. 8 % of a Gaussian, 25 % of Laplace's law,
    30 % of Student's with 3 degrees of freedom.
    """
    if float(z_ND.min()) >= 0:  # a dimension that is 0 on most samples has no tail for that
        entries = z_ND[z_ND > 0].double()
        return _median(_top_shares((entries - entries.median()).square()[:, None])) if len(entries) else torch.nan
    parts = (_top_shares((part.double() - part.median(dim=0).values).square()) for part in z_ND.split(COLUMNS, dim=1))
    return _median(torch.cat(list(parts)))


def _median(share_D: Tensor) -> float:
    return float(share_D.median()) if len(share_D) else torch.nan


def _top_shares(square_ND: Tensor) -> Tensor:
    """Return the share of the largest hundredth in the sum of each column that is not 0."""
    top_KD = square_ND.topk(max(round(MOST_DISTANT * len(square_ND)), 1), dim=0).values
    total_D = square_ND.sum(dim=0)
    return (top_KD.sum(dim=0) / total_D)[total_D > 0]


@dataclass(frozen=True)
class Scales:
    """The spectrum of raw features, and what is left of it where every dimension has variance 1.

    Attributes:
        first_share: share of the variance of raw features that their first direction has.
        participation: participation ratio of the raw features.
        largest: standard deviation of the largest dimension over that of the median one.
        spread: standard deviation of the largest dimension over that of the smallest one that is not silent.
        standard_first_share: share of the first direction of standardised features.
        standard_participation: participation ratio of standardised features.
        standard_vanished: number of directions that have vanished in standardised features.
        order: rank correlation between the place of a dimension and its scale; -1 for principal components.
    """

    first_share: float
    participation: float
    largest: float
    spread: float
    standard_first_share: float
    standard_participation: float
    standard_vanished: float
    order: float


def measure_scales(z_ND: Tensor, ordered_DS: Tensor, num_distinct: int) -> Scales:
    """Compare raw features with standardised ones.

    Dimensions that differ from their commonest value on fewer than 10 samples, or whose deviation is at the level of
    rounding, are silent in standardised features.

    Args:
        z_ND: features as they are.
        ordered_DS: values of each dimension, ascending, from ``ordered_values``.
        num_distinct: number of samples without copies.

    >>> z = torch.randn(1000, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> z[:, 12:] *= 1e-4
    >>> measure_scales(z, ordered_values(z), 1000).standard_vanished
    0
    """
    mean_D, covariance_DD = mean_and_covariance(z_ND)
    deviation_D = covariance_DD.diagonal().sqrt()
    varied_D = num_uncommon(ordered_DS) >= min(FEWEST_VARIED, ordered_DS.shape[1] - 1)
    varied_D &= deviation_D > ROUNDING * mean_D.abs()
    varied_D &= deviation_D > LOST * deviation_D.max()
    scale_L = deviation_D[varied_D]
    if len(scale_L) == 0:
        return Scales(*(torch.nan,) * 8)
    raw_D = spectrum_of(mean_D, covariance_DD)
    unit_LL = covariance_DD[varied_D][:, varied_D] / torch.outer(scale_L, scale_L)
    standard_D = torch.zeros_like(raw_D)
    standard_D[: len(unit_LL)] = without_rounding(torch.linalg.eigvalsh(unit_LL).flip(0), 1.0)
    place_L = torch.arange(len(scale_L))
    return Scales(
        first_share=first_share(raw_D),
        participation=participation_ratio(raw_D),
        largest=float(scale_L.max() / scale_L.median()),
        spread=float(scale_L.max() / scale_L.min()),
        standard_first_share=first_share(standard_D),
        standard_participation=participation_ratio(standard_D),
        standard_vanished=vanished_directions(standard_D, num_distinct).count,
        order=float(np.asarray(spearmanr(place_L, scale_L))[0]) if len(scale_L) >= FEWEST_DIMS else torch.nan,
    )


def first_share(spectrum_D: Tensor) -> float:
    """Share of the variance that the first direction has; NaN of constant features.

    >>> first_share(torch.tensor([3.0, 1.0]))
    0.75
    """
    return float(spectrum_D[0] / spectrum_D.sum())


def ordered_values(z_ND: Tensor, most: int = MOST_LOOKED_AT) -> Tensor:
    """Values of each dimension in ascending order, (D, S), over a limited number of samples, evenly spaced.

    >>> ordered_values(torch.tensor([[2.0, 0.0], [1.0, 5.0]])).tolist()
    [[1.0, 2.0], [0.0, 5.0]]
    """
    chosen = torch.linspace(0, len(z_ND) - 1, min(len(z_ND), most), dtype=torch.float64).long()
    # NumPy sorts rows of numbers several times as fast as torch sorts columns.
    return torch.from_numpy(np.sort(z_ND[chosen].T.contiguous().numpy(), axis=1))


def num_uncommon(ordered_DS: Tensor) -> Tensor:
    """Number of samples on which each dimension differs from its commonest value, (D,).

    >>> num_uncommon(torch.tensor([[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]])).tolist()
    [1, 2]
    """
    place_S = torch.arange(ordered_DS.shape[1], dtype=torch.int32)
    is_new_DS = torch.nn.functional.pad(ordered_DS[:, 1:] != ordered_DS[:, :-1], (1, 0))
    first_DS = torch.where(is_new_DS, place_S, 0).cummax(dim=1).values
    return len(place_S) - 1 - (place_S - first_DS).amax(dim=1)


def distinct_values(ordered_DS: Tensor) -> float:
    """Distinct values of a dimension, in the median dimension that may be continuous.

    Left out are dimensions of counts (whole numbers from 0 on, as in tables and pictures) and constant ones; one that
    is nearly always 0 and differs otherwise counts as one that never repeats a value. NaN where none is left.

    Args:
        ordered_DS: values of each dimension, ascending, from ``ordered_values``.

    >>> distinct_values(ordered_values(torch.randn(100, 3).sign())), distinct_values(torch.ones(3, 100))
    (2.0, nan)
    """
    continuous_DS = ordered_DS[((ordered_DS < 0) | (ordered_DS != ordered_DS.round())).any(dim=1)]
    num_D = _num_values(continuous_DS)
    if len(num_D) == 0:
        return math.nan
    is_sparse_D = 2 * (num_D - 1) > num_uncommon(continuous_DS)
    num_D = torch.where(is_sparse_D, continuous_DS.shape[1], num_D)[num_D > 1]
    return float(num_D.median()) if len(num_D) else math.nan


def saturated_share(ordered_DS: Tensor) -> float:
    """Share of entries at the largest or the least value of their dimension, to a thousandth of its quartiles' gap.

    Of dimensions with more than 32 distinct values. The lower end counts only below 0, and where the upper one has a
    quarter as many entries: many at the least value alone are what a rectified map leaves, also after a constant was
    added. NaN without such dimensions.

    Args:
        ordered_DS: values of each dimension, ascending, from ``ordered_values``.

    >>> z = ordered_values(torch.randn(2000, 4, generator=torch.Generator().manual_seed(0)))
    >>> round(saturated_share(z), 2), round(saturated_share(z.clamp(-1, 1)), 2)
    (0.0, 0.32)
    """
    varied_DS = ordered_DS[_num_values(ordered_DS) > MANY_VALUES].double()
    num = varied_DS.shape[1]
    if len(varied_DS) == 0:
        return math.nan
    near_D1 = AT_END * (varied_DS[:, [3 * num // 4]] - varied_DS[:, [num // 4]])
    low_D1, high_D1 = varied_DS[:, :1], varied_DS[:, -1:]
    is_low_DS = (varied_DS <= low_D1 + near_D1) & (low_D1 < 0)
    is_high_DS = (varied_DS >= high_D1 - near_D1) & (near_D1 > 0)
    is_cut_D1 = 4 * is_high_DS.sum(dim=1, keepdim=True) > is_low_DS.sum(dim=1, keepdim=True)
    return max(float(((is_low_DS & is_cut_D1) | is_high_DS).double().mean()) - 2 / num, 0.0)


def _num_values(ordered_DS: Tensor) -> Tensor:
    return 1 + (ordered_DS[:, 1:] != ordered_DS[:, :-1]).sum(dim=1)


METRICS = (
    unshown_metric(name="outliers", of=OutlierSamples, at="outliers.rows_R", source="roy2007"),
    unshown_metric(name="outlier_variance", of=OutlierSamples, at="outliers.variance", source="roy2007", unit="share"),
    unshown_metric(
        name="effective_rank_with_outliers", of=OutlierSamples, at="outliers.effective_rank", source="roy2007"
    ),
    unshown_metric(name="rankme_with_outliers", of=OutlierSamples, at="outliers.rankme", source="garrido2023"),
    unshown_metric(
        name="participation_ratio_with_outliers", of=OutlierSamples, at="outliers.participation_ratio", source="gao2017"
    ),
    unshown_metric(name="vanished_with_outliers", of=OutlierSamples, at="outliers.vanished", source="directclr2022"),
    unshown_metric(name="tail_share", of=tail_share, at="z_ND", source="gao2017", unit="share"),
    unshown_metric(name="entry_tail_share", of=entry_tail_share, at="z_ND", source="gao2017", unit="share"),
    unshown_metric(name="first_share", of=first_share, at="spectrum_D", source="gao2017", unit="share"),
    unshown_metric(name="raw_first_share", of=Scales, at="scales.first_share", source="gao2017", unit="share"),
    unshown_metric(name="raw_participation_ratio", of=Scales, at="scales.participation", source="gao2017"),
    unshown_metric(name="largest_scale", of=Scales, at="scales.largest", source="gao2017"),
    unshown_metric(name="scale_spread", of=Scales, at="scales.spread", source="gao2017"),
    unshown_metric(
        name="standard_first_share", of=Scales, at="scales.standard_first_share", source="gao2017", unit="share"
    ),
    unshown_metric(
        name="standard_participation_ratio", of=Scales, at="scales.standard_participation", source="gao2017"
    ),
    unshown_metric(name="standard_vanished", of=Scales, at="scales.standard_vanished", source="directclr2022"),
    unshown_metric(name="scale_order", of=Scales, at="scales.order", source="gao2017"),
    unshown_metric(name="distinct_values", of=distinct_values, at="ordered_DS", source="ncl2024"),
    unshown_metric(name="saturated", of=saturated_share, at="ordered_DS", source="ncl2024", unit="share"),
)
