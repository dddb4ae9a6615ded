"""How many dimensions features really use: spectra, also of features batch by batch, and the literature's ranks."""

# N samples, M of them in a batch, D features, K = min(N, D) singular values, Q views, M = Q N rows

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import Metric, unshown_metric
from counterpoint.core.numerics import row_dots, rowwise, unit_rows
from counterpoint.core.stored_rows import row_slices

RANKME_EPS = 1e-7  # garrido2023, for float32
LIDAR_DELTA, LIDAR_EPS = 1e-4, 1e-8  # of stable-pretraining
ROUNDING = torch.finfo(torch.float64).eps
SUMMED = 1 << 14  # samples of which products are made at once
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
    z_ND = z_ND.double()
    z_ND = unit_rows(z_ND) if normalize else z_ND
    centred_ND = z_ND - z_ND.mean(dim=0)
    # Differs from directclr2022, Eq. 1, which divides by N: the authors' code takes numpy.cov, with N - 1.
    covariance_DD = centred_ND.T @ centred_ND / (len(z_ND) - 1)
    lambda_D = torch.linalg.eigvalsh(covariance_DD).flip(0)  # symmetric and >= 0: eigenvalues are singular values
    return without_rounding(lambda_D, float(row_dots(z_ND, z_ND).mean()))


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


def isotropic_rank(num_samples: int, num_dims: int, *, normalize: bool = False) -> float:
    """Effective rank of isotropic Gaussian features of the same shape: the ceiling a finite sample can show.

    Drawn once with a fixed seed, from at most ``REFERENCE_SAMPLES`` samples.
    """
    generator = torch.Generator().manual_seed(0)
    # More for many dimensions: a reference of fewer samples than dimensions would be too low.
    rows = min(num_samples, max(REFERENCE_SAMPLES, 2 * num_dims))
    z_ND = torch.randn(rows, num_dims, generator=generator)
    return effective_rank(covariance_spectrum(z_ND, normalize=normalize))


def rank_ceiling(z_ND: Tensor) -> float:
    """The effective rank that isotropic Gaussian features of the same shape reach, at unit length."""
    return isotropic_rank(*z_ND.shape, normalize=True)


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


def lidar(*views_ND: Tensor) -> float:
    r"""Effective rank of what tells samples apart beyond what views of one sample differ in, at unit length.

    .. math:: \Sigma_b = \frac{1}{N-1} \sum_i (\mu_i - \mu)(\mu_i - \mu)^\top, \qquad
        \Sigma_w = \frac{1}{N(Q-1)} \sum_{i,q} (\hat z_{iq} - \mu_i)(\hat z_{iq} - \mu_i)^\top + \delta I
    .. math:: \exp\Big(-\sum_k p_k \log p_k\Big), \qquad p_k = \lambda_k / \|\lambda\|_1 + \epsilon, \quad
        \lambda = \lambda(\Sigma_w^{-1/2} \Sigma_b \Sigma_w^{-1/2})

    Source: thilak2024. Each sample is a class, its views are the members. The paper takes expectations; here they are
    the unbiased means, as in other programs, which matters with two views: without, Sigma_w would be half. delta and
    eps are those of stable-pretraining. The paper has many views of each sample (tens), of which Sigma_w is
    known far better than of two.

    Args:
        views_ND: features of two views or more, row i of each from sample i; n >= 2.

    Returns:
        About 1 to min(n - 1, d), to within eps; 0 where all samples have the same mean. Unchanged by rotating.

    Raises:
        ValueError: features that are not finite, or of other shapes.

    >>> corners = torch.eye(4)
    >>> round(lidar(corners, corners), 4)
    3.0
    """
    for number, view_ND in enumerate(views_ND):
        check_features(view_ND, f"view {number}")

    def unit(*views_ND: Tensor) -> Tensor:
        return torch.stack([unit_rows(view_ND.double()) for view_ND in views_ND])

    num_views, (num_samples, num_dims) = len(views_ND), views_ND[0].shape
    mu_ND = rowwise(lambda *part: unit(*part).mean(dim=0), *views_ND)
    between_ND = mu_ND - mu_ND.mean(dim=0)
    size = float(row_dots(mu_ND, mu_ND).mean())
    # Means that differ by rounding only: their directions say nothing.
    if float(between_ND.square().sum(dim=1).mean()) <= num_dims * (8 * ROUNDING) ** 2 * size:
        return 0.0
    sigma_w_DD = mu_ND.new_zeros(num_dims, num_dims)
    for part in row_slices(num_samples, SUMMED):
        within_MD = (unit(*(view_ND[part] for view_ND in views_ND)) - mu_ND[part]).flatten(0, 1)
        sigma_w_DD += within_MD.T @ within_MD
    sigma_w_DD /= num_samples * (num_views - 1)
    sigma_w_DD.diagonal().add_(LIDAR_DELTA)
    # With Sigma_w = L L^T the matrix L^-1 Sigma_b L^-T has the same eigenvalues, at a fraction of the time.
    white_DN = torch.linalg.solve_triangular(torch.linalg.cholesky(sigma_w_DD), between_ND.T, upper=False)
    lambda_K = singular_values(white_DN.T).square()
    return rankme(torch.nn.functional.pad(lambda_K, (0, num_dims - len(lambda_K))), LIDAR_EPS)


class StreamingCovariance:
    r"""The covariance of rows that come batch by batch, in float64.

    .. math:: (N - 1)\, C = \sum_i r_i r_i^\top - N \bar r \bar r^\top, \qquad r_i = z_i - c

    with c the mean of the first batch: near the mean of all, so that an offset costs no digits. Memory: one matrix of
    D x D numbers, whatever N is.

    >>> stream = StreamingCovariance()
    >>> for batch in torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]).split(3):
    ...     stream.update(batch)
    >>> stream.spectrum()
    tensor([1.3333, 0.0000], dtype=torch.float64)
    """

    def __init__(self) -> None:
        self.num_samples = 0
        self._squares = 0.0
        self._sums: tuple[Tensor, Tensor, Tensor] | None = None  # c, sum of r, sum of r r'

    @property
    def mean_square(self) -> float:
        """Mean squared length of the rows, not centred."""
        return self._squares / max(self.num_samples, 1)

    def update(self, batch_MD: Tensor) -> None:
        """Add rows.

        Args:
            batch_MD: features, m >= 1, of as many dimensions as those before.

        Raises:
            TypeError: not a dense floating tensor.
            ValueError: rows that are not finite.
        """
        check_features(batch_MD, "batch", min_rows=1)
        batch_MD = batch_MD.double()
        centre_D = batch_MD.mean(dim=0) if self._sums is None else self._sums[0]
        rows_MD = batch_MD - centre_D
        sum_D, products_DD = rows_MD.sum(dim=0), rows_MD.T @ rows_MD
        if self._sums is not None:
            sum_D, products_DD = sum_D + self._sums[1], products_DD + self._sums[2]
        self._sums = centre_D, sum_D, products_DD
        self._squares += float(batch_MD.square().sum())
        self.num_samples += len(batch_MD)

    def spectrum(self) -> Tensor:
        """Eigenvalues of the covariance of all rows so far, with N - 1, descending.

        Returns:
            float64 tensor (d,), non-negative; those at the level of rounding are 0. Unchanged by rotating or shifting
            the rows.

        Raises:
            ValueError: fewer than 2 rows.
        """
        if self._sums is None or self.num_samples < 2:
            raise ValueError(f"a covariance needs at least 2 rows, got {self.num_samples}")
        _, sum_D, products_DD = self._sums
        scatter_DD = products_DD - torch.outer(sum_D, sum_D) / self.num_samples
        lambda_D = torch.linalg.eigvalsh(scatter_DD / (self.num_samples - 1)).flip(0)
        return without_rounding(lambda_D, self.mean_square)

    def floor(self, largest: float, *, dtype: torch.dtype = torch.float32) -> float:
        r"""The level below which the spectrum is not known: rounding of features, or of their covariance.

        .. math:: \max\Big( D\, \epsilon_{64}\, \lambda_1,\; \frac{\ln 2}{18} \epsilon^2 \,
            \frac{\overline{|z|^2}}{D} \Big)

        An entry :math:`z = m 2^e` is rounded to a multiple of :math:`\epsilon 2^e`, with an error of variance
        :math:`\epsilon^2 4^e / 12`; with a mantissa m whose logarithm is uniform, :math:`E[m^2] = 3 / (2 \ln 2)`.
        What a network computes in float32 errs by more: its products add their own errors.

        Args:
            largest: eigenvalue.
            dtype: in which the features were held, an offset included.
        """
        assert self._sums is not None
        num_dims = len(self._sums[0])
        stored = math.log(2) / 18 * torch.finfo(dtype).eps ** 2 * self.mean_square / num_dims
        return max(num_dims * torch.finfo(torch.float64).eps * largest, stored)


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
    unshown_metric(name="lidar", of=lidar, at="views", source="thilak2024"),
    unshown_metric(name="rankme", of=rankme, at="sigma_K", source="garrido2023"),
    unshown_metric(name="participation_ratio", of=participation_ratio, at="spectrum_D", source="gao2017"),
)
