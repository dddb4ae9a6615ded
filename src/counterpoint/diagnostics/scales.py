"""The values of single dimensions: have they very different scales, are they few, do they pile up at an end?"""

# N samples, D features, L dimensions that vary, S samples whose values are looked at

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from counterpoint.core.metric import unshown_metric
from counterpoint.diagnostics.spectra import mean_and_covariance, participation_ratio, spectrum_of, without_rounding
from counterpoint.diagnostics.vanished import vanished_directions

FEWEST_VARIED = 10  # samples on which a dimension differs from its commonest value; fewer are not a scale
MOST_LOOKED_AT = 2048  # samples whose values are counted
ROUNDING = 1e-6  # of the mean of a dimension: smaller deviations are rounding of float32
LOST = 1e-9  # of the largest deviation: rounding of a rotation
FEWEST_DIMS = 8  # whose order says anything
AT_END = 1e-3  # of the interquartile range, from the largest or least value
MANY_VALUES = 32


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
        standard_vanished: directions that have vanished in standardised features.
        order: rank correlation between the place of a dimension and its scale; -1 of principal components.
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
        ordered_DS: from ``ordered_values``.
        num_distinct: samples without copies.

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
        first_share=float(raw_D[0] / raw_D.sum()),
        participation=participation_ratio(raw_D),
        largest=float(scale_L.max() / scale_L.median()),
        spread=float(scale_L.max() / scale_L.min()),
        standard_first_share=float(standard_D[0] / standard_D.sum()),
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
    """On how many samples each dimension differs from its commonest value, (D,).

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
        ordered_DS: from ``ordered_values``.

    >>> distinct_values(ordered_values(torch.randn(100, 3).sign())), distinct_values(torch.ones(3, 100))
    (2.0, nan)
    """
    some_DS = ordered_DS[((ordered_DS < 0) | (ordered_DS != ordered_DS.round())).any(dim=1)]
    num_D = _num_values(some_DS)
    if len(num_D) == 0:
        return math.nan
    is_sparse_D = 2 * (num_D - 1) > num_uncommon(some_DS)
    num_D = torch.where(is_sparse_D, some_DS.shape[1], num_D)[num_D > 1]
    return float(num_D.median()) if len(num_D) else math.nan


def saturated_share(ordered_DS: Tensor) -> float:
    """Share of entries at the largest or the least value of their dimension, to a thousandth of its quartiles' gap.

    Of dimensions with more than 32 distinct values. The lower end counts only below 0, and where the upper one has a
    quarter as many entries: many at the least value alone are what a rectified map leaves, also after a constant was
    added. NaN without such dimensions.

    Args:
        ordered_DS: from ``ordered_values``.

    >>> z = ordered_values(torch.randn(2000, 4, generator=torch.Generator().manual_seed(0)))
    >>> round(saturated_share(z), 2), round(saturated_share(z.clamp(-1, 1)), 2)
    (0.0, 0.32)
    """
    some_DS = ordered_DS[_num_values(ordered_DS) > MANY_VALUES].double()
    num = some_DS.shape[1]
    if len(some_DS) == 0:
        return math.nan
    near_D1 = AT_END * (some_DS[:, [3 * num // 4]] - some_DS[:, [num // 4]])
    low_D1, high_D1 = some_DS[:, :1], some_DS[:, -1:]
    is_low_DS = (some_DS <= low_D1 + near_D1) & (low_D1 < 0)
    is_high_DS = (some_DS >= high_D1 - near_D1) & (near_D1 > 0)
    is_cut_D1 = 4 * is_high_DS.sum(dim=1, keepdim=True) > is_low_DS.sum(dim=1, keepdim=True)
    return max(float(((is_low_DS & is_cut_D1) | is_high_DS).double().mean()) - 2 / num, 0.0)


def _num_values(ordered_DS: Tensor) -> Tensor:
    return 1 + (ordered_DS[:, 1:] != ordered_DS[:, :-1]).sum(dim=1)


METRICS = (
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
