"""Measures of how many dimensions features really use: spectra, the literature's ranks, and vanished directions."""

# N samples, D features, K singular values or directions that N samples can show, R of them resolved

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import Metric, unshown_metric
from counterpoint.core.numerics import unit_rows
from counterpoint.core.stored_rows import row_slices

RANKME_EPS = 1e-7  # garrido2023, for float32
ROUNDING = torch.finfo(torch.float64).eps
ROWS = 4096  # at once
REFERENCE_SAMPLES = 2000  # for the isotropic reference, enough for its effective rank to within a percent
NUM_ANGLES = 4096  # at which the null's distribution is integrated
LEAST_NULL = 0.01  # of the null's mean: below, single eigenvalues of isotropic features scatter by decades
STEP, SLOPE = 1.0, 2.0  # decades: from one direction to the next, and within a 32nd of all
SMALL = 1e-2  # of the mean variance: what lies below a step is no more
NOTHING = 1e-6  # of the mean variance: vanished without any step
BAND, EDGE = 2.0, 1.5  # places, and widths of the edge, by which eigenvalues of isotropic features scatter
FLOOR = 1e-16  # of the largest variance, for logarithms of what rounding has left


def covariance_spectrum(z_ND: Tensor, *, normalize: bool = False) -> Tensor:
    r"""Singular values of the covariance matrix, descending.

    .. math:: C = \frac{1}{N-1} \sum_i (z_i - \bar z)(z_i - \bar z)^\top

    Source: directclr2022, Eq. 1, with N - 1 as in the authors' code, which scales rows to unit length first
    (``normalize=True``).

    Args:
        z_ND: features, n >= 2.
        normalize: whether each row is scaled to unit length first.

    Returns:
        float64 tensor (d,), non-negative. Unchanged by rotating or shifting z (shifting: without normalize).

    >>> z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> covariance_spectrum(z)
    tensor([1.3333, 0.0000], dtype=torch.float64)
    """
    check_features(z_ND, "z")
    z_ND = unit_rows(z_ND.double()) if normalize else z_ND
    return spectrum_of(*mean_and_covariance(z_ND))


def mean_and_covariance(z_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the rows, and their covariance with N - 1, both in float64; no copy of all rows is made."""
    mean_D = z_ND.mean(dim=0, dtype=torch.float64)
    scatter_DD = mean_D.new_zeros(len(mean_D), len(mean_D))
    for rows in row_slices(len(z_ND), ROWS):
        centred_BD = z_ND[rows].double() - mean_D
        scatter_DD += centred_BD.T @ centred_BD
    # Differs from directclr2022, Eq. 1, which divides by N: the authors' code takes numpy.cov, with N - 1.
    return mean_D, scatter_DD / (len(z_ND) - 1)


def spectrum_of(mean_D: Tensor, covariance_DD: Tensor) -> Tensor:
    """Eigenvalues of a covariance, descending; those at the level of rounding are 0."""
    lambda_D = torch.linalg.eigvalsh(covariance_DD).flip(0)  # symmetric and >= 0: eigenvalues are singular values
    return without_rounding(lambda_D, float(mean_D.square().sum() + covariance_DD.trace()))


def without_rounding(lambda_D: Tensor, mean_square: float) -> Tensor:
    """Eigenvalues of a covariance with those at the level of float64's rounding, some of them negative, set to 0.

    Args:
        lambda_D: eigenvalues, descending.
        mean_square: mean squared length of the rows, not centred.

    >>> without_rounding(torch.tensor([1.0, 1e-17, -1e-17], dtype=torch.float64), 1.0)
    tensor([1., 0., 0.], dtype=torch.float64)
    """
    # Rounding errs by about eps of the largest eigenvalue, and of the squared mean's eps where all samples coincide.
    noise = len(lambda_D) * ROUNDING * max(float(lambda_D[0]), ROUNDING * mean_square)
    # Each would add a little to the effective rank.
    return torch.where(lambda_D > noise, lambda_D, 0.0)


def effective_rank(spectrum_K: Tensor) -> float:
    r"""Exponential of the entropy of the normalised singular values of the centred features.

    .. math:: \exp\Big(-\sum_k p_k \log p_k\Big), \qquad p_k = \sigma_k / \sum_l \sigma_l, \quad
        \sigma_k = \sqrt{\lambda_k}

    Source: roy2007, definition 1, applied to the centred feature matrix. (RankMe, garrido2023, is the same without
    centring; a variant on the eigenvalues themselves gives smaller numbers.)

    Args:
        spectrum_K: eigenvalues lambda of the covariance, from ``covariance_spectrum``.

    Returns:
        A number in [1, number of non-zero values]; 0 if all features are constant. Unchanged by scaling.

    >>> round(effective_rank(torch.tensor([4.0, 4.0, 0.0])), 6)
    2.0
    """
    sigma_K = spectrum_K.clamp(min=0.0).sqrt()
    total = float(sigma_K.sum())
    if total == 0:
        return 0.0
    # roy2007, definition 1.
    p_K = sigma_K / total
    # xlogy: 0 log 0 = 0.
    return float(torch.exp(-torch.special.xlogy(p_K, p_K).sum()))


def rank_ceiling(z_ND: Tensor) -> float:
    """The effective rank that isotropic Gaussian features of the same shape reach, at unit length.

    Drawn once with a fixed seed, from at most ``REFERENCE_SAMPLES`` samples.
    """
    num_samples, num_dims = z_ND.shape
    # More for many dimensions: a reference of fewer samples than dimensions would be too low.
    rows = min(num_samples, max(REFERENCE_SAMPLES, 2 * num_dims))
    drawn_ND = torch.randn(rows, num_dims, generator=torch.Generator().manual_seed(0))
    return effective_rank(covariance_spectrum(drawn_ND, normalize=True))


def singular_values(z_ND: Tensor) -> Tensor:
    r"""Singular values of the feature matrix itself, not centred, descending.

    .. math:: \sigma_k = \sqrt{\lambda_k(Z^\top Z)}, \qquad k = 1 \dots \min(N, D)

    From the smaller of the two products, in which values below about 1e-8 of the largest are lost; those at the level
    of rounding are 0.

    Args:
        z_ND: features, n >= 2.

    Returns:
        float64 tensor (min(n, d),), non-negative. Unchanged by rotating z.

    >>> singular_values(torch.tensor([[3.0, 0.0], [4.0, 0.0]]))
    tensor([5., 0.], dtype=torch.float64)
    """
    check_features(z_ND, "z")
    z_ND = z_ND.double()
    gram = z_ND @ z_ND.T if len(z_ND) < z_ND.shape[1] else z_ND.T @ z_ND
    lambda_K = torch.linalg.eigvalsh(gram).flip(0)
    is_resolved_K = lambda_K > len(lambda_K) * ROUNDING * lambda_K[0]
    return torch.where(is_resolved_K, lambda_K, 0.0).sqrt()


def rankme(sigma_K: Tensor, eps: float = RANKME_EPS) -> float:
    r"""Exponential of the entropy of the normalised singular values of features that are not centred.

    .. math:: \exp\Big(-\sum_{k=1}^{\min(N, D)} p_k \log p_k\Big), \qquad
        p_k = \frac{\sigma_k}{\sum_l |\sigma_l|} + \epsilon

    Source: garrido2023, with their eps for float32, which is added after dividing. Other programs write
    the same name over other definitions: for Gaussian features of 1,000 samples and 1,024 dimensions this one gives
    814, eps = 1e-5 gives 866 and eigenvalues of the covariance 614. So compare figures of one definition only.

    Args:
        sigma_K: singular values >= 0, from ``singular_values``.
        eps: added to each p, > 0. Larger ones lift small singular values; the sum of p is then above 1.

    Returns:
        A number from about 1 to the number of values, to within eps; 0 if all are 0. Unchanged by scaling.

    >>> round(rankme(torch.tensor([2.0, 2.0, 2.0])), 4), rankme(torch.zeros(2))
    (3.0, 0.0)
    """
    total = float(sigma_K.sum())
    if total == 0:
        return 0.0
    p_K = sigma_K.double() / total + eps
    return float(torch.exp(-(p_K * p_K.log()).sum()))


def participation_ratio(spectrum_D: Tensor) -> float:
    r"""Square of the sum of the eigenvalues over the sum of their squares.

    .. math:: \frac{(\sum_k \lambda_k)^2}{\sum_k \lambda_k^2}

    Source: gao2017. The exponential of the Renyi entropy of order 2 of the eigenvalues.

    Args:
        spectrum_D: eigenvalues of the covariance, from ``spectra.covariance_spectrum``.

    Returns:
        A number in [1, number of non-zero values]; 0 if all features are constant. Unchanged by scaling.

    >>> participation_ratio(torch.tensor([2.0, 1.0]))
    1.8
    """
    # Over the largest, so that squares neither overflow nor vanish.
    share_D = spectrum_D.double() / spectrum_D.double().max().clamp(min=torch.finfo(torch.float64).tiny)
    total = float(share_D.sum())
    return total**2 / float(share_D.square().sum()) if total else 0.0


@dataclass(frozen=True)
class Vanished:
    """Directions that carry nothing.

    Attributes:
        count: number of the resolved directions that have vanished.
        resolved: number of directions that N samples tell anything about.
        step: decades of variance between the last direction that is alive and the first that has vanished; 0 where
            none has.
    """

    count: int
    resolved: int
    step: float


def vanished_directions(spectrum_D: Tensor, num_samples: int) -> Vanished:
    """Count the directions whose variance falls away from the others.

    Each singular value of the covariance is divided by the one that isotropic features of the same shape have at its
    place (``isotropic_spectrum``). Counting from the largest, the first direction has vanished that lies a decade
    below the one before it, or two decades below the one a 32nd of all directions before, and has at most a hundredth
    of the mean variance; or that has at most a millionth of it. All behind it have vanished, too. A smooth fall, as of
    a power law, is not collapse, however long it is.

    Source: directclr2022, section 3, whose figures show such steps; the limits are ours (docs/diagnosis-reference.md).

    Args:
        spectrum_D: eigenvalues of the covariance, descending, from ``spectra.covariance_spectrum``.
        num_samples: number of samples that it was estimated from.

    Returns:
        Counts; all directions of constant features have vanished.

    >>> found = vanished_directions(torch.tensor([1.0] * 40 + [1e-8] * 88), 5000)
    >>> found.count, found.resolved, round(found.step)
    (88, 128, 8)
    """
    null_K = isotropic_spectrum(num_samples, len(spectrum_D))
    num_resolved = int((null_K >= LEAST_NULL * null_K.mean()).sum())
    lambda_R = spectrum_D[:num_resolved].double()
    if num_resolved == 0 or float(lambda_R[0]) == 0:
        return Vanished(num_resolved, num_resolved, 0.0)
    decades_R = (lambda_R / null_K[:num_resolved]).clamp(min=FLOOR * float(lambda_R[0])).log10()
    mean = float(lambda_R.mean())
    alive = int((lambda_R > NOTHING * mean).sum())  # or those before the first step
    for reach, limit in ((1, STEP), (max(2, num_resolved // 32), SLOPE)):
        fall = decades_R[:-reach] - decades_R[reach:]
        places = ((fall >= limit) & (lambda_R[reach:] <= SMALL * mean)).nonzero()[:, 0]
        if len(places):
            first = int(places[0])
            within = decades_R[first : first + reach] - decades_R[first + 1 : first + reach + 1]
            alive = min(alive, first + int(within.argmax()) + 1)
    step = float(decades_R[alive - 1] - decades_R[alive]) if alive < num_resolved else 0.0
    return Vanished(num_resolved - alive, num_resolved, step)


@lru_cache(maxsize=64)
def isotropic_spectrum(num_samples: int, num_dims: int) -> Tensor:
    r"""Eigenvalues that the covariance of isotropic features of variance 1 has, descending: Marchenko and Pastur's law.

    .. math:: f(x) = \frac{\sqrt{(b - x)(x - a)}}{2 \pi \gamma x}, \qquad a, b = (1 \mp \sqrt\gamma)^2, \quad
        \gamma = D / (N - 1)

    at the quantiles (k - 1/2) / K. With fewer samples than dimensions those of the N - 1 values that are not zero.

    Source: marchenko1967.

    >>> [round(value, 2) for value in isotropic_spectrum(10**8, 3).tolist()]
    [1.0, 1.0, 1.0]
    """
    count = min(max(num_samples - 1, 1), num_dims)
    return _quantiles(num_samples, num_dims, (torch.arange(count, dtype=torch.float64) + 0.5) / count).flip(0)


def isotropic_band(num_samples: int, num_dims: int) -> tuple[Tensor, Tensor]:
    """Range (k,), (k,) in which single eigenvalues of isotropic features lie, around ``isotropic_spectrum``.

    Eigenvalues repel each other, so the k-th lies within ``BAND`` places of its own; at both ends it may pass the edge
    of the law by the width of Tracy and Widom's. In draws of 20 to 2,000 samples in 2 to 300 dimensions 99 % of the
    values lie inside (the tests ask for 95 %).

    Source: marchenko1967; johnstone2001, whose scale of the largest value is used for both ends.

    >>> low, high = isotropic_band(1000, 1)
    >>> bool(low[0] < 1 < high[0])
    True
    """
    free = max(num_samples - 1, 1)
    count = min(free, num_dims)
    place_K = torch.arange(count, dtype=torch.float64) + 0.5
    ends = [((place_K + shift) / count).clamp(0, 1) for shift in (-BAND, BAND)]
    low_K, high_K = (_quantiles(num_samples, num_dims, level_K).flip(0) for level_K in ends)
    # Johnstone's scale, over the edge that it belongs to; a single direction has a variance of chi squared.
    root, root_dims = free**0.5, num_dims**0.5
    widths = [abs(root + sign * root_dims) * abs(1 / root + sign / root_dims) ** (1 / 3) / free for sign in (1, -1)]
    return (low_K - EDGE * widths[1]).clamp(min=0), high_K + EDGE * widths[0]


def _quantiles(num_samples: int, num_dims: int, level_K: Tensor) -> Tensor:
    """Quantiles of Marchenko and Pastur's law, of the values that are not zero."""
    ratio = num_dims / max(num_samples - 1, 1)
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    # x = middle - half cos(angle): the density is then smooth at both ends.
    angle_A = torch.linspace(0, torch.pi, NUM_ANGLES + 1, dtype=torch.float64)
    x_A = (low + high) / 2 - (high - low) / 2 * angle_A.cos()
    density_A = angle_A.sin().square() / x_A.clamp(min=1e-300)
    mass_A = torch.cumulative_trapezoid(density_A, angle_A)
    share_A = torch.cat([torch.zeros(1, dtype=torch.float64), mass_A / mass_A[-1]])
    place_K = torch.searchsorted(share_A, level_K).clamp(1, NUM_ANGLES)
    before_K, after_K = share_A[place_K - 1], share_A[place_K]
    part_K = (level_K - before_K) / (after_K - before_K)
    return x_A[place_K - 1] + part_K * (x_A[place_K] - x_A[place_K - 1])


METRICS = (
    Metric(
        name="effective_rank",
        title="Effective rank",
        short="effective rank",
        definition="The number of equally strong dimensions that would have the same entropy of singular values. Far "
        "below what isotropic noise of the same shape reaches means dimensional collapse.",
        source="roy2007",
        measure=lambda subject: effective_rank(subject.spectrum_D),
        low=0.0,
        reference="rank_ceiling",
        wording="dimensions",
        headline="representation",
        leads="uses the most dimensions",
    ),
    unshown_metric(name="rank_ceiling", of=rank_ceiling, at="z_ND", source="roy2007"),
    unshown_metric(name="rankme", of=rankme, at="sigma_K", source="garrido2023"),
    unshown_metric(name="participation_ratio", of=participation_ratio, at="spectrum_D", source="gao2017"),
    Metric(
        name="vanished",
        title="Vanished directions",
        short="vanished directions",
        definition="How many of the directions that the samples resolve carry nothing: their variance lies a "
        "decade or more below the direction before, against isotropic features of the same shape, and below a "
        "hundredth of the mean. Any such direction is dimensional collapse.",
        source="directclr2022",
        measure=lambda subject: subject.vanished.count,
        low=0.0,
        is_higher_better=False,
        reference="resolved",
        wording="directions",
        leads="has the most directions alive",
    ),
    unshown_metric(name="vanished_step", of=Vanished, at="vanished.step", source="directclr2022"),
    unshown_metric(name="resolved", of=Vanished, at="vanished.resolved", source="marchenko1967"),
)
