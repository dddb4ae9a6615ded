"""The embedding's log spectrum, without a floor, and how many of its dimensions are alive."""

# N samples, D dimensions, K = min(N, D) singular values

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.errors import UsageError

MARGIN = 5.0  # e^-5 = 0.7 %: live spectra of the toys span less than 1, and collapsed values lie more than 6 below


def log_spectrum(z_ND: Tensor) -> Tensor:
    r"""Natural logarithms (min(n, d),) of the covariance matrix's singular values, descending.

    .. math:: C = \frac{1}{N-1} \sum_i (z_i - \bar z)(z_i - \bar z)^\top

    Source: directclr2022, Eq. 1; N - 1 as in the released code. The singular values of the centred samples are squared,
    which keeps values down to 1e-30 of the largest apart from rounding; -inf for exact zeros. Differs from
    ``diagnostics.covariance_spectrum``, which says 0 below the rounding error of C.

    >>> log_spectrum(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))  # variance 2 along the first axis, none along the second
    tensor([0.6931, -inf], dtype=torch.float64)
    """
    check_features(z_ND, "z")
    z_ND = z_ND.double()
    sigma_K = torch.linalg.svdvals(z_ND - z_ND.mean(dim=0))
    return 2 * sigma_K.log() - math.log(len(z_ND) - 1)


def live_dimensions(log_spectrum_K: Tensor, *, margin: float = MARGIN) -> int:
    """Number of dimensions whose log variance is within ``margin`` of the largest.

    Args:
        log_spectrum_K: natural logarithms of covariance singular values, in any order; -inf for zeros.
        margin: > 0, in natural logarithms; the default counts variances above 0.7 % of the largest.

    Returns:
        0 to k; 0 only if every variance is 0. Unchanged by scaling the embeddings.

    >>> live_dimensions(torch.tensor([-1.6, -1.9, -10.5, -torch.inf]))
    2
    """
    check_positive(margin, "margin", hint="5 counts variances above 0.7 % of the largest")
    if log_spectrum_K.ndim != 1 or len(log_spectrum_K) < 1 or bool(log_spectrum_K.isnan().any()):
        raise UsageError(f"log spectrum must be a vector without NaN, got shape {tuple(log_spectrum_K.shape)}")
    largest = log_spectrum_K.max()
    return 0 if largest == -torch.inf else int((log_spectrum_K >= largest - margin).sum())
