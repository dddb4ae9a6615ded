"""How many dimensions features use, by the measures of the literature: one function each, with its definition."""

# N samples, D features, K = min(N, D) singular values, Q views, M = Q N rows

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows

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


DELTA = 1e-4  # as stable-pretraining has it
EPS = 1e-8  # of stable-pretraining
ROUNDING = torch.finfo(torch.float64).eps


def lidar(*views_ND: Tensor, normalize: bool = False, delta: float = DELTA, eps: float = EPS) -> float:
    r"""Effective rank of what tells samples apart beyond what views of one sample differ in.

    .. math:: \Sigma_b = \frac{1}{N-1} \sum_i (\mu_i - \mu)(\mu_i - \mu)^\top, \qquad
        \Sigma_w = \frac{1}{N(Q-1)} \sum_{i,q} (z_{iq} - \mu_i)(z_{iq} - \mu_i)^\top + \delta I
    .. math:: \exp\Big(-\sum_k p_k \log p_k\Big), \qquad p_k = \lambda_k / \|\lambda\|_1 + \epsilon, \quad
        \lambda = \lambda(\Sigma_w^{-1/2} \Sigma_b \Sigma_w^{-1/2})

    Source: thilak2024. Each sample is a class, its views are the members. The paper takes expectations; here they are
    the unbiased means, as in other programs, which matters with two views: without, Sigma_w would be half. delta and
    eps are those of stable-pretraining. The paper has many views of each sample (tens), of which Sigma_w is
    known far better than of two.

    Args:
        views_ND: features of two views or more, row i of each from sample i; n >= 2.
        normalize: scale each row to unit length before.
        delta: added to the diagonal of Sigma_w, > 0: a variance below which differences of views do not count. It has
            the unit of squared features, so that scaling features matters.
        eps: added to each p, > 0.

    Returns:
        About 1 to min(n - 1, d), to within eps; 0 where all samples have the same mean. Unchanged by rotating.

    Raises:
        ValueError: fewer than two views, shapes that differ, or delta below the rounding of Sigma_w.

    >>> corners = torch.eye(4)
    >>> round(lidar(corners, corners), 4)
    3.0
    """
    unit_QND = _stacked(views_ND, normalize)
    check_positive(delta, "delta", hint=f"{DELTA:g} is usual")
    num_views, num_samples, num_dims = unit_QND.shape
    mu_ND = unit_QND.mean(dim=0)
    between_ND = mu_ND - mu_ND.mean(dim=0)
    size = float(mu_ND.square().sum(dim=1).mean())
    # Means that differ by rounding only: their directions say nothing.
    if float(between_ND.square().sum(dim=1).mean()) <= num_dims * (8 * ROUNDING) ** 2 * size:
        return 0.0
    within_MD = (unit_QND - mu_ND).flatten(0, 1)
    sigma_w_DD = within_MD.T @ within_MD / (num_samples * (num_views - 1))
    noise = num_dims * ROUNDING * float(sigma_w_DD.trace())
    if not delta > noise:
        raise ValueError(f"delta must be > {noise:.3g} for views this far apart, got {delta}; use normalize=True")
    sigma_w_DD.diagonal().add_(delta)
    # With Sigma_w = L L^T the matrix L^-1 Sigma_b L^-T has the same eigenvalues, at a fraction of the time.
    white_DN = torch.linalg.solve_triangular(torch.linalg.cholesky(sigma_w_DD), between_ND.T, upper=False)
    lambda_K = singular_values(white_DN.T).square()
    return entropy_rank(torch.nn.functional.pad(lambda_K, (0, num_dims - len(lambda_K))), eps)


def _stacked(views_ND: tuple[Tensor, ...], normalize: bool) -> Tensor:
    """Checked views in float64, one behind the other."""
    if len(views_ND) < 2:
        raise ValueError(f"LiDAR needs at least 2 views of each sample, got {len(views_ND)}")
    for number, view_ND in enumerate(views_ND):
        check_features(view_ND, f"view {number}")
        if view_ND.shape != views_ND[0].shape:
            raise ValueError(
                f"views must have the same shape, got {tuple(views_ND[0].shape)} and {tuple(view_ND.shape)}"
            )
    return torch.stack([unit_rows(view_ND.double()) if normalize else view_ND.double() for view_ND in views_ND])


METRICS = (
    Metric(
        name="lidar",
        title="LiDAR",
        short="LiDAR",
        definition="Effective rank of the directions in which samples differ, measured against how far two views of "
        "one sample differ in them.",
        source="thilak2024",
        measure=lambda subject: math.nan if subject.views is None else lidar(*subject.views, normalize=True),
        low=0.0,
        wording="dimensions",
        is_shown=False,
    ),
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
