"""How many dimensions features really use: spectra, and the literature's ranks."""

# N samples, D features, K = min(N, D) singular values

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


def covariance_spectrum(z_ND: Tensor, *, normalize: bool = False) -> Tensor:
    r"""Singular values of the covariance matrix, descending.

    .. math:: C = \frac{1}{N-1} \sum_i (z_i - \bar z)(z_i - \bar z)^\top

    Source: directclr2022, Eq. 1, with N - 1 as in the authors' code, which scales rows to unit length first
    (``normalize=True``).

    Args:
        z_ND: features, n >= 2.
        normalize: scale each row to unit length before.

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
        lambda_D: descending.
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
        spectrum_K: lambda, from ``covariance_spectrum``.

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
        sigma_K: values >= 0, from ``singular_values``.
        eps: added to each p, > 0. Larger ones lift small singular values; the sum of p is then above 1.

    Returns:
        About 1 to the number of values, to within eps; 0 where all are 0. Unchanged by scaling.

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
)
