"""A test whether slices of features look Gaussian: random directions, principal ones and single dimensions."""

# N samples, D features, R whitened directions, M slices, S samples that are looked at

import math
from dataclasses import dataclass, field
from functools import cache

import torch
from scipy.stats import chi2
from torch import Tensor

from counterpoint.core.counter_random import epps_pulley, knots, slice_directions
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.thread_parts import side_by_side

NUM_RANDOM = 128
MOST_AXES = 1024  # dimensions that are looked at one by one
MOST_PRINCIPAL = 64  # directions of most variance
MOST_LOOKED_AT = 4096  # samples
FEWEST_SAMPLES = 200  # of which a slice shows its shape
ROWS_PER_DIRECTION = 10  # that are whitened: as many directions as samples look the same, whatever the features are
NOTHING = 1e-6  # of the mean variance: a direction that carries nothing has no shape
LEVEL = 0.05  # chance that one of all slices of Gaussian features is outside the band
FEWEST_DIMS = 8  # of a sphere, whose slices are far from Gaussian in few
EQUAL_LENGTHS = 1e-3  # relative deviation of lengths: the features lie on a sphere
ONE_DIMENSION = 0.5  # of a direction's squared length that one dimension has
NUM_ENDS = 5  # samples at either end
COLUMNS = 64  # slices that a thread takes at once


@dataclass(frozen=True)
class GaussianSlices:
    r"""Distances of standardised slices from normal ones: Epps and Pulley's statistic over the number of samples.

    Distances are :math:`T / n = \int |\phi_n(t) - e^{-t^2/2}|^2 e^{-t^2/2} dt`, which estimates a squared distance of
    characteristic functions that does not depend on n: 0.011 of Laplace's law, 0.11 of two points. NaN where
    there are too few samples or no direction that varies.

    Attributes:
        worst: distance of the slice that departs most.
        limit: distance that no slice of Gaussian features has, with 95 % probability for all slices together.
        typical: distance of the median random slice.
        num_slices: number of slices of all kinds.
        num_random: number of random slices beyond the limit.
        num_principal: number of principal directions beyond the limit.
        num_dims: number of single dimensions beyond the limit.
        dim: number of the dimension that the worst slice is, or mostly is; NaN for a mixture of dimensions.
        skewness: skewness of the worst slice.
        kurtosis: kurtosis of the worst slice; 3 for a Gaussian.
        rows: positions of the samples at both ends of the worst slice, the farther end first.
    """

    worst: float = math.nan
    limit: float = math.nan
    typical: float = math.nan
    num_slices: float = math.nan
    num_random: float = math.nan
    num_principal: float = math.nan
    num_dims: float = math.nan
    dim: float = math.nan
    skewness: float = math.nan
    kurtosis: float = math.nan
    rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))


def gaussian_slices(z_ND: Tensor, first_N: Tensor) -> GaussianSlices:
    """Compare slices with a Gaussian, or with those of a uniform sphere where all features have one length.

    Slices are standardised. Random ones are uniform on the sphere of the whitened features. A projection of a uniform
    sphere in d dimensions is Gaussian for large d only; ``from_sphere`` makes it so for any d.

    Source: balestriero2025 (slices); epps1983; betser2026 (which features should be Gaussian); timkey2021 (single
        dimensions).

    Args:
        z_ND: features.
        first_N: positions of the samples that are no copies.

    Returns:
        Distances; unchanged by shifting z and scaling all of it.

    >>> z = torch.randn(2000, 16, generator=torch.Generator().manual_seed(0))
    >>> z[:, 3] = z[:, 3].sign() + 0.3 * z[:, 3]
    >>> slices = gaussian_slices(z, torch.arange(2000))
    >>> slices.worst > 10 * slices.limit, slices.dim, slices.kurtosis < 2
    (True, 3.0, True)
    """
    chosen_S = evenly_spaced(first_N, MOST_LOOKED_AT)
    z_SD = z_ND[chosen_S].double()
    if len(z_SD) < FEWEST_SAMPLES:
        return GaussianSlices()
    length_S = z_SD.norm(dim=1)
    is_sphere = bool(length_S.std() <= EQUAL_LENGTHS * length_S.mean())
    if is_sphere and z_SD.shape[1] < FEWEST_DIMS:
        return GaussianSlices()
    z_SD = z_SD - z_SD.mean(dim=0)
    # Features have unit length if they lie on a sphere around 0, and are shorter around another point.
    z_SD = z_SD / z_SD.square().sum(dim=1).mean().sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    directions_DM, num_each = _directions(z_SD)
    if directions_DM.shape[1] == 0:
        return GaussianSlices()
    z_SD, parts = z_SD.float(), directions_DM.float().split(COLUMNS, dim=1)
    slices_SM = torch.cat(side_by_side(lambda part_DM: _standardised(z_SD @ part_DM, is_sphere), parts), dim=1)
    distance_M = torch.cat(side_by_side(epps_pulley, slices_SM.split(COLUMNS, dim=1))) / len(z_SD)
    limit = critical_value(len(distance_M)) / len(z_SD)
    random_M, principal_M, dims_M = distance_M.split(num_each)
    worst = int(distance_M.argmax())
    slice_S, share_D = slices_SM[:, worst].double(), directions_DM[:, worst].square()
    order_S = slice_S.argsort()
    ends = [order_S[:NUM_ENDS], order_S.flip(0)[:NUM_ENDS]]
    ends.sort(key=lambda rows: -float(slice_S[rows].abs().mean()))
    return GaussianSlices(
        worst=float(distance_M[worst]),
        limit=limit,
        typical=float((random_M if len(random_M) else distance_M).median()),
        num_slices=len(distance_M),
        num_random=int((random_M > limit).sum()),
        num_principal=int((principal_M > limit).sum()),
        num_dims=int((dims_M > limit).sum()),
        dim=float(share_D.argmax()) if float(share_D.max()) > ONE_DIMENSION else math.nan,
        skewness=float(slice_S.pow(3).mean()),
        kurtosis=float(slice_S.pow(4).mean()),
        rows=chosen_S[torch.cat(ends)],
    )


def _directions(z_SD: Tensor) -> tuple[Tensor, list[int]]:
    """Unit vectors (d, m) of the slices, and how many are random, principal and single dimensions."""
    num, width = z_SD.shape
    covariance_DD = z_SD.T @ z_SD / num
    value_D, vector_DD = torch.linalg.eigh(covariance_DD)
    least = NOTHING * float(value_D.mean())
    first = max(width - max(num // ROWS_PER_DIRECTION, 1), int((value_D <= least).sum()))
    value_R, vector_DR = value_D[first:].flip(0), vector_DD[:, first:].flip(1)
    random_DM = vector_DR / value_R.sqrt() @ slice_directions(NUM_RANDOM, vector_DR, seed=0, step=0)
    axes = (covariance_DD.diagonal() > least).nonzero()[:MOST_AXES, 0]
    kinds = [random_DM / random_DM.norm(dim=0), vector_DR[:, :MOST_PRINCIPAL], torch.eye(width).double()[:, axes]]
    kinds = kinds if len(value_R) else [part[:, :0] for part in kinds]
    return torch.cat(kinds, dim=1), [part.shape[1] for part in kinds]


def _standardised(slice_SM: Tensor, is_sphere: bool) -> Tensor:
    slice_SM = from_sphere(slice_SM) if is_sphere else slice_SM
    centred_SM = slice_SM - slice_SM.mean(dim=0)
    return centred_SM / centred_SM.square().mean(dim=0).sqrt()


def from_sphere(cosine: Tensor) -> Tensor:
    r"""Values that are Gaussian where cosines are those of a uniform sphere with any direction, but for a factor.

    With :math:`w = \langle a, u \rangle` and u uniform in d dimensions,
    :math:`w \sqrt{d - 1} / \sqrt{1 - w^2}` has Student's distribution with d - 1 degrees of freedom, which Wallace's
    :math:`\mathrm{sign}(w) \sqrt{-(d - 1) \log(1 - w^2)}` maps to a normal one, but for a factor (nearly: the
    more nearly the larger d).

    Source: wallace1959.

    >>> z = torch.randn(20000, 4, generator=torch.Generator().manual_seed(0))
    >>> cosine = z[:, 0] / z.norm(dim=1)
    >>> kurtosis = lambda x: round(float(x.pow(4).mean() / x.square().mean() ** 2), 1)
    >>> kurtosis(cosine), kurtosis(from_sphere(cosine))
    (2.0, 3.0)
    """
    return cosine.sign() * (-torch.log1p(-cosine.square().clamp(max=1 - 1e-6))).sqrt()


@cache
def null_weights() -> tuple[float, ...]:
    r"""Weights of the squared normals that the statistic of a standardised Gaussian slice is the sum of, descending.

    Eigenvalues of the limit process of :math:`\sqrt n (\phi_n(t) - e^{-t^2 / 2})` at the knots, whose covariance is
    :math:`e^{-(s^2 + t^2) / 2} (\cosh st - 1 - (st)^2 / 2)` in its real part and
    :math:`e^{-(s^2 + t^2) / 2} (\sinh st - st)` in its imaginary one: what the estimated mean and variance explain is
    taken off.

    Source: baringhaus1988, theorem 2.1.
    """
    knot_K, normal_K, weight_K = torch.tensor(knots(), dtype=torch.float64).T
    product_KK = torch.outer(knot_K, knot_K)
    real_KK, imaginary_KK = product_KK.cosh() - 1 - product_KK.square() / 2, product_KK.sinh() - product_KK
    scale_K = normal_K * weight_K.sqrt()
    parts = [torch.linalg.eigvalsh(torch.outer(scale_K, scale_K) * part) for part in (real_KK, imaginary_KK)]
    return tuple(torch.cat(parts).sort(descending=True).values.clamp(min=0).tolist())


def critical_value(num_slices: int, level: float = LEVEL) -> float:
    """The value that the largest statistic of Gaussian slices exceeds with a probability of at most ``level``.

    By Bonferroni's bound and Zolotarev's tail of a sum of weighted squares, which the largest weight rules.

    Source: zolotarev1961; baringhaus1988.

    Args:
        num_slices: number of slices, M >= 1; they may depend on each other.
        level: largest probability that the value is exceeded, in (0, 1).
    """
    first, *others = null_weights()
    factor = math.prod((1 - other / first) ** -0.5 for other in others)
    return first * float(chi2.isf(level / num_slices / factor, 1))


METRICS = (
    unshown_metric(name="slice_worst", of=GaussianSlices, at="slices.worst", source="epps1983"),
    unshown_metric(name="slice_limit", of=GaussianSlices, at="slices.limit", source="baringhaus1988"),
    unshown_metric(name="slice_typical", of=GaussianSlices, at="slices.typical", source="balestriero2025"),
    unshown_metric(name="slice_count", of=GaussianSlices, at="slices.num_slices", source="balestriero2025"),
    unshown_metric(name="slice_random", of=GaussianSlices, at="slices.num_random", source="balestriero2025"),
    unshown_metric(name="slice_principal", of=GaussianSlices, at="slices.num_principal", source="epps1983"),
    unshown_metric(name="slice_dims", of=GaussianSlices, at="slices.num_dims", source="timkey2021"),
    unshown_metric(name="slice_dim", of=GaussianSlices, at="slices.dim", source="timkey2021"),
    unshown_metric(name="slice_skewness", of=GaussianSlices, at="slices.skewness", source="epps1983"),
    unshown_metric(name="slice_kurtosis", of=GaussianSlices, at="slices.kurtosis", source="epps1983"),
)
