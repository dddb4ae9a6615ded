"""Do a few directions carry nearly all variance, and is that a matter of the scales of single dimensions?"""

# N samples, D features, L dimensions that vary

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from counterpoint.core.metric import Metric
from counterpoint.diagnostics.spectra import participation_ratio, without_rounding
from counterpoint.diagnostics.vanished import vanished_directions

FEWEST_VARIED = 10  # samples on which a dimension differs from its commonest value; fewer are no scale
MOST_LOOKED_AT = 2048  # samples whose commonest values are counted
ROUNDING = 1e-6  # of the mean of a dimension: smaller deviations are rounding of float32
LOST = 1e-9  # of the largest deviation: rounding of a rotation
FEWEST_DIMS = 8  # whose order says anything


@dataclass(frozen=True)
class Scales:
    """The spectrum of raw features, and what is left of it where every dimension has variance 1.

    Attributes:
        first_share: share of the variance of raw features that its first direction has.
        participation: participation ratio of the raw features.
        largest: standard deviation of the largest dimension over that of the median one.
        spread: over that of the smallest one that is not silent.
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


def measure_scales(z_ND: Tensor, num_distinct: int) -> Scales:
    """Compare raw features with standardised ones.

    Dimensions that differ from their commonest value on fewer than 10 samples, or whose deviation is at the level of
    rounding, are silent in standardised features.

    Args:
        z_ND: features as they are.
        num_distinct: samples without copies.

    >>> z = torch.randn(1000, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> z[:, 12:] *= 1e-4
    >>> measure_scales(z, 1000).standard_vanished
    0
    """
    mean_D = z_ND.double().mean(dim=0)
    centred_ND = z_ND.double() - mean_D
    covariance_DD = centred_ND.T @ centred_ND / (len(z_ND) - 1)
    deviation_D = covariance_DD.diagonal().sqrt()
    some_ND = z_ND[torch.linspace(0, len(z_ND) - 1, min(len(z_ND), MOST_LOOKED_AT)).long()]
    varied_D = (some_ND != some_ND.mode(dim=0).values).sum(dim=0) >= min(FEWEST_VARIED, len(some_ND) - 1)
    varied_D &= deviation_D > ROUNDING * mean_D.abs()
    varied_D &= deviation_D > LOST * deviation_D.max()
    scale_L = deviation_D[varied_D]
    if len(scale_L) == 0:
        return Scales(*(torch.nan,) * 8)
    raw_D = without_rounding(
        torch.linalg.eigvalsh(covariance_DD).flip(0), float(mean_D.square().sum() + deviation_D.square().sum())
    )
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
    """Share of the sum that the first eigenvalue has; NaN of constant features.

    >>> first_share(torch.tensor([3.0, 1.0]))
    0.75
    """
    return float(spectrum_D[0] / spectrum_D.sum())


METRICS = (
    Metric(
        name="first_share",
        title="Share of the first direction",
        short="share of the first direction",
        definition="Share of the variance of the unit-length features that their first direction has.",
        source="gao2017",
        measure=lambda subject: first_share(subject.spectrum_D),
        low=0.0,
        high=1.0,
        unit="share",
        is_shown=False,
    ),
    Metric(
        name="raw_first_share",
        title="Share of the first direction, raw",
        short="share of the first direction, raw",
        definition="The same of features that are not scaled to unit length.",
        source="gao2017",
        measure=lambda subject: subject.scales.first_share,
        low=0.0,
        high=1.0,
        unit="share",
        is_shown=False,
    ),
    Metric(
        name="raw_participation_ratio",
        title="Participation ratio, raw",
        short="participation ratio, raw",
        definition="The participation ratio of features that are not scaled to unit length.",
        source="gao2017",
        measure=lambda subject: subject.scales.participation,
        low=0.0,
        is_shown=False,
    ),
    Metric(
        name="largest_scale",
        title="Largest scale",
        short="largest scale",
        definition="Standard deviation of the dimension that varies most, over that of the median dimension.",
        source="gao2017",
        measure=lambda subject: subject.scales.largest,
        low=0.0,
        is_shown=False,
    ),
    Metric(
        name="scale_spread",
        title="Spread of scales",
        short="spread of scales",
        definition="Standard deviation of the dimension that varies most, over that of the one that varies least, "
        "silent ones left out.",
        source="gao2017",
        measure=lambda subject: subject.scales.spread,
        low=0.0,
        is_shown=False,
    ),
    Metric(
        name="standard_first_share",
        title="Share of the first direction, standardised",
        short="share of the first direction, standardised",
        definition="Share of the first direction where every dimension has variance 1.",
        source="gao2017",
        measure=lambda subject: subject.scales.standard_first_share,
        low=0.0,
        high=1.0,
        unit="share",
        is_shown=False,
    ),
    Metric(
        name="standard_participation_ratio",
        title="Participation ratio, standardised",
        short="participation ratio, standardised",
        definition="The participation ratio where every dimension has variance 1.",
        source="gao2017",
        measure=lambda subject: subject.scales.standard_participation,
        low=0.0,
        is_shown=False,
    ),
    Metric(
        name="standard_vanished",
        title="Vanished directions, standardised",
        short="vanished directions, standardised",
        definition="The vanished directions where every dimension has variance 1.",
        source="directclr2022",
        measure=lambda subject: subject.scales.standard_vanished,
        low=0.0,
        is_shown=False,
    ),
    Metric(
        name="scale_order",
        title="Order of scales",
        short="order of scales",
        definition="Rank correlation between the place of a dimension and its standard deviation; -1 of principal "
        "components.",
        source="gao2017",
        measure=lambda subject: subject.scales.order,
        low=-1.0,
        high=1.0,
        is_shown=False,
    ),
)
