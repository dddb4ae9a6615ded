"""Samples that lie far from all others, and what the most distant ones weigh: before any mean or spectrum is taken."""

# N samples, D features

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import rowwise, unit_doubles
from counterpoint.diagnostics.spectra import (
    covariance_spectrum,
    effective_rank,
    participation_ratio,
    rankme,
    singular_values,
)
from counterpoint.diagnostics.vanished import vanished_directions

# Chosen on drawn features of 40 kinds (20 to 3,000 samples, 2 to 512 dimensions), of which none has outliers.
MOST = 0.05  # of the samples: more are a group, or a heavy tail
FEWEST_SAMPLES = 20
FAR = 3.0  # median distances from the median
SPREAD_OUT = 3.0  # times the logarithm of the 90 % quantile of distances over their median
GAP = 1.5  # from the nearest outlier to the farthest other sample
COLUMNS = 64  # whose entries are sorted at once
MOST_DISTANT = 0.01  # of the samples, or of the entries, whose weight is reported


@dataclass(frozen=True)
class OutlierSamples:
    """Samples that are left out of all other figures, and the ranks with them.

    Attributes:
        rows_R: samples so far from all others that every other figure is measured without them, the farthest first.
        variance: share of the mean squared distance from the median that outliers have.
        effective_rank: that of all samples, outliers included; NaN where there are none, as the next three.
        rankme: RankMe of all samples, outliers included.
        participation_ratio: that of all samples, outliers included.
        vanished: directions that have vanished of all samples, outliers included.
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
        Positions (R,). Unchanged by shifting z, and by scaling all of it; none of fewer than 20 samples.

    >>> z = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> z[7] += 50
    >>> outlier_rows(z)
    tensor([7])
    """
    check_features(z_ND, "z")
    distance_N = median_distances(z_ND)
    median, high = float(distance_N.median()), float(distance_N.quantile(0.9))
    far_N, order_N = distance_N.sort(descending=True, stable=True)
    most = int(MOST * len(z_ND))
    none = order_N[:0]
    if len(z_ND) < FEWEST_SAMPLES or median == 0 or most == 0:
        return none
    limit = median * max(FAR, (high / median) ** SPREAD_OUT)
    is_end_M = (far_N[:most] >= limit) & (far_N[:most] >= GAP * far_N[1 : most + 1])
    if not is_end_M.any():
        return none
    found = order_N[: int(is_end_M.nonzero().max()) + 1]
    if labels_N is not None:
        own_R = labels_N[found]
        share_R = (own_R[:, None] == own_R).sum(1) / (labels_N == own_R[:, None]).sum(1)
        found = found[(own_R < 0) | (share_R < 1 / 2)]
    return found


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
    """Share of the largest hundredth in the sum of each column that is not 0."""
    top_KD = square_ND.topk(max(round(MOST_DISTANT * len(square_ND)), 1), dim=0).values
    total_D = square_ND.sum(dim=0)
    return (top_KD.sum(dim=0) / total_D)[total_D > 0]


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
)
