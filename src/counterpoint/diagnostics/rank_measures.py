"""How many dimensions features use, by the measures of the literature: one function each, with its definition."""

# N samples, D features, K = min(N, D) singular values

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.metric import Metric

RANKME_EPS = 1e-7  # garrido2023, for float32
FIRST, LAST = 11, 100  # eigenvalues that the power law is fitted to, counted from 1


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
    is_resolved_K = lambda_K > len(lambda_K) * torch.finfo(torch.float64).eps * lambda_K[0]
    return torch.where(is_resolved_K, lambda_K, 0.0).sqrt()


def rankme(z_ND: Tensor, *, eps: float = RANKME_EPS) -> float:
    r"""Exponential of the entropy of the normalised singular values of features that are not centred.

    .. math:: \exp\Big(-\sum_{k=1}^{\min(N, D)} p_k \log p_k\Big), \qquad
        p_k = \frac{\sigma_k}{\sum_l |\sigma_l|} + \epsilon

    Source: garrido2023, with their eps for float32, which is added after dividing. Other programs write
    the same name over other definitions: for Gaussian features of 1,000 samples and 1,024 dimensions this one gives
    814, eps = 1e-5 gives 866 and eigenvalues of the covariance 614. So compare figures of one definition only.

    Args:
        z_ND: features, n >= 2, scaled to unit length or not as the caller wants: lengths matter.
        eps: added to each p, > 0. Larger ones lift small singular values; the sum of p is then above 1.

    Returns:
        About 1 to min(n, d), to within eps; 0 where all singular values are 0. Unchanged by rotating and scaling z.

    Raises:
        ValueError: eps is not > 0.

    >>> round(rankme(torch.eye(4)), 4)
    4.0
    """
    return entropy_rank(singular_values(z_ND), eps)


def entropy_rank(values_K: Tensor, eps: float = RANKME_EPS) -> float:
    r"""Exponential of the entropy of any values >= 0, normalised: RankMe of singular values that are known already.

    Source: garrido2023.

    >>> round(entropy_rank(torch.tensor([2.0, 2.0, 2.0])), 4), entropy_rank(torch.zeros(2))
    (3.0, 0.0)
    """
    check_positive(eps, "eps", hint=f"RankMe's is {RANKME_EPS:g}")
    total = float(values_K.sum())
    if total == 0:
        return 0.0
    p_K = values_K.double() / total + eps
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
    share_D = _over_largest(spectrum_D)
    return float(share_D.sum().square() / share_D.square().sum()) if len(share_D) else 0.0


def stable_rank(sigma_K: Tensor) -> float:
    r"""Squared Frobenius norm over squared spectral norm.

    .. math:: \frac{\|Z\|_F^2}{\|Z\|_2^2} = \frac{\sum_k \sigma_k^2}{\sigma_1^2}

    Source: rudelson2007, where it is called numerical rank. Of centred features it is ``nesum``; the metric takes
    features that are not centred, in which a common offset counts as the strongest direction.

    Args:
        sigma_K: singular values of a matrix, from ``singular_values``.

    Returns:
        A number in [1, rank]; 0 of a matrix of zeros. Unchanged by scaling.

    >>> stable_rank(torch.tensor([2.0, 1.0, 1.0]))
    1.5
    """
    return float(_over_largest(sigma_K).square().sum())


def nesum(spectrum_D: Tensor) -> float:
    r"""Sum of the eigenvalues over the largest.

    .. math:: \sum_k \frac{\lambda_k}{\lambda_1}

    Source: he2022, with the eigenvalues of the centred covariance, 0 / 0 = 0. Some programs do not centre, or divide by
    the first of eigenvalues that are not sorted.

    Args:
        spectrum_D: eigenvalues of the covariance, from ``spectra.covariance_spectrum``.

    Returns:
        A number in [1, number of non-zero values]; 0 if all features are constant. Unchanged by scaling.

    >>> nesum(torch.tensor([4.0, 2.0, 2.0]))
    2.0
    """
    return float(_over_largest(spectrum_D).sum())


def alpha_req(spectrum_D: Tensor) -> float:
    r"""Exponent of the power law that the eigenvalues fall by from the 11th to the 100th.

    .. math:: \lambda_k \propto k^{-\alpha}, \qquad \min_{\alpha, c} \sum_{k=11}^{100}
        w_k \big(\log \lambda_k - c + \alpha \log k\big)^2, \quad w_k = 1 / k

    Source: agrawal2022, for the eigenvalues of the centred covariance; range and weights as in its authors' library
    (reptrix), which has them from code for neural recordings. Other scripts of theirs begin at 4. 0 is isotropic,
    above 1 a fast fall; near 1 is what the paper found to go with good features.

    Args:
        spectrum_D: eigenvalues of the covariance, descending, from ``spectra.covariance_spectrum``. Where fewer than
            100 are positive, the fit ends with the last positive one: few dimensions, or few samples, give an alpha of
            another part of the spectrum.

    Returns:
        alpha >= 0; NaN where fewer than two positive eigenvalues are in the range. Unchanged by scaling.

    >>> round(alpha_req(torch.arange(1, 200.0) ** -1.5), 5)
    1.5
    >>> alpha_req(torch.ones(11))
    nan
    """
    fitted_K = spectrum_D[FIRST - 1 : min(LAST, int((spectrum_D > 0).sum()))].double()
    if len(fitted_K) < 2:
        return math.nan
    k_K = torch.arange(FIRST, FIRST + len(fitted_K), dtype=torch.float64)
    w_K = 1 / k_K  # each octave counts alike
    w_K = w_K / w_K.sum()
    # The slope of weighted least squares; relative to the largest, so that equal eigenvalues have the logarithm 0.
    log_k_K, log_lambda_K = k_K.log(), (fitted_K / fitted_K[0]).log()
    from_mean_K = log_k_K - (w_K * log_k_K).sum()
    return 0.0 - float((w_K * from_mean_K * log_lambda_K).sum() / (w_K * from_mean_K.square()).sum())


def _over_largest(values_K: Tensor) -> Tensor:
    """Values over the largest, so that their squares neither overflow nor vanish; none where all are 0."""
    largest = float(values_K.max())
    return values_K.double() / largest if largest > 0 else values_K[:0].double()


METRICS = (
    Metric(
        name="rankme",
        title="RankMe",
        short="RankMe",
        definition="Exponential of the entropy of the singular values of the unit-length features, not centred, as the "
        "paper has it: a common offset counts as a direction.",
        source="garrido2023",
        measure=lambda subject: entropy_rank(subject.sigma_K),
        low=0.0,
        wording="dimensions",
        is_shown=False,
    ),
    Metric(
        name="participation_ratio",
        title="Participation ratio",
        short="participation ratio",
        definition="Square of the sum of the eigenvalues of the covariance over the sum of their squares: few strong "
        "directions count more than in the effective rank.",
        source="gao2017",
        measure=lambda subject: participation_ratio(subject.spectrum_D),
        low=0.0,
        wording="dimensions",
        is_shown=False,
    ),
    Metric(
        name="stable_rank",
        title="Stable rank",
        short="stable rank",
        definition="Sum of the squared singular values of the unit-length features, not centred, over the largest. "
        "Near 1 where all samples point nearly the same way.",
        source="rudelson2007",
        measure=lambda subject: stable_rank(subject.sigma_K),
        low=0.0,
        wording="dimensions",
        is_shown=False,
    ),
    Metric(
        name="nesum",
        title="NESum",
        short="NESum",
        definition="Sum of the eigenvalues of the covariance over the largest.",
        source="he2022",
        measure=lambda subject: nesum(subject.spectrum_D),
        low=0.0,
        wording="dimensions",
        is_shown=False,
    ),
    Metric(
        name="alpha_req",
        title="Decay of the spectrum (alpha-ReQ)",
        short="alpha-ReQ",
        definition="Exponent of the power law that the eigenvalues of the covariance fall by from the 11th to the "
        "100th: 0 if isotropic. Does not exist for fewer than 12 positive eigenvalues.",
        source="agrawal2022",
        measure=lambda subject: alpha_req(subject.spectrum_D),
        low=0.0,
        is_shown=False,
    ),
)
