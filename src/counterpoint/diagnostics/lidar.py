"""LiDAR: how many directions tell samples apart beyond what views of one sample differ in."""

# N samples, D features, K = min(N, D) singular values, Q views, M = Q N rows

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.rank_measures import entropy_rank, singular_values

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
)
