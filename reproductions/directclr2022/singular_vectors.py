"""Neighbouring layers: whether they agree on singular vectors, what their flow conserves, and how many are alive."""

# N samples, D width of a layer, H width between layers, K singular values or live directions

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError

SEPARATION = 0.1  # of the blocks of singular values, relative to the larger one
MARGIN = 5.0  # of log variances: live spectra of the toys span less than 1, and collapsed values lie more than 6 below


@dataclass(frozen=True)
class AlignmentBlock:
    """Neighbouring singular values that are too close to name their vectors one by one.

    Attributes:
        first: index of the largest, from 0.
        last: index after the smallest.
        share: of the block's squared alignment that lies inside it, 1 when both layers span the same directions.
    """

    first: int
    last: int
    share: float


def alignment_blocks(below_HD: Tensor, above_KH: Tensor) -> tuple[AlignmentBlock, ...]:
    """Find the blocks of the alignment matrix, and the share of each that lies inside it.

    A block ends where the singular values of both layers fall by more than a tenth of the larger one.
    directclr2022, section 5.3, expects a block-diagonal alignment matrix, one block per group of equal singular values.

    Args:
        below_HD: W1.
        above_KH: W2.

    >>> blocks = alignment_blocks(torch.diag(torch.tensor([3.0, 2.9, 1.0])), torch.diag(torch.tensor([2.9, 3.0, 1.0])))
    >>> [(block.first, block.last, round(block.share, 6)) for block in blocks]
    [(0, 2, 1.0), (2, 3, 1.0)]
    """
    squared_HH = signed_alignment(below_HD, above_KH).square()
    below_H, above_H = (torch.linalg.svdvals(w.double())[: len(squared_HH)] for w in (below_HD, above_KH))
    # In both: where one layer's values are nearly equal, its vectors can be turned, and so A is no longer diagonal.
    is_apart = (_relative_falls(below_H) > SEPARATION) & (_relative_falls(above_H) > SEPARATION)
    edges = [0, *(int(place) + 1 for place in is_apart.nonzero()[:, 0]), len(squared_HH)]
    # A is orthogonal, so the rows of a block have a squared length of 1 each.
    return tuple(
        AlignmentBlock(first, last, float(squared_HH[first:last, first:last].sum()) / (last - first))
        for first, last in pairwise(edges)
    )


def _relative_falls(sigma_H: Tensor) -> Tensor:
    """Relative fall from each singular value to the next; 0 between zeros."""
    return torch.where(sigma_H[:-1] > 0, 1 - sigma_H[1:] / sigma_H[:-1], 0.0)


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
    # sigma^2 / (N - 1) in logarithms, as the squares of small values would underflow.
    return 2 * sigma_K.log() - math.log(len(z_ND) - 1)


def live_dimensions(log_spectrum_K: Tensor) -> int:
    """Number of dimensions whose variance is above e^-5 = 0.7 % of the largest.

    Args:
        log_spectrum_K: natural logarithms of covariance singular values, in any order; -inf for zeros.

    Returns:
        0 to k; 0 only if every variance is 0. Unchanged by scaling the embeddings.

    >>> live_dimensions(torch.tensor([-1.6, -1.9, -10.5, -torch.inf]))
    2
    """
    if log_spectrum_K.ndim != 1 or len(log_spectrum_K) < 1 or bool(log_spectrum_K.isnan().any()):
        raise UsageError(f"log spectrum must be a vector without NaN, got shape {tuple(log_spectrum_K.shape)}")
    largest = log_spectrum_K.max()
    return 0 if largest == -torch.inf else int((log_spectrum_K >= largest - MARGIN).sum())


def signed_alignment(below_HD: Tensor, above_KH: Tensor) -> Tensor:
    """``alignment_matrix`` with the signs of the singular vectors, which are arbitrary."""
    check_features(below_HD, "below", min_rows=1)
    check_features(above_KH, "above", min_rows=1)
    if above_KH.shape[1] != below_HD.shape[0]:
        raise UsageError(f"above takes {above_KH.shape[1]} inputs, but below gives {below_HD.shape[0]}")
    # Full where a side has fewer vectors than the width: A is square for any number of inputs and outputs.
    width = len(below_HD)
    u1_HH = torch.linalg.svd(below_HD.double(), full_matrices=below_HD.shape[1] < width).U
    v2h_HH = torch.linalg.svd(above_KH.double(), full_matrices=len(above_KH) < width).Vh
    return v2h_HH @ u1_HH


def alignment_matrix(below_HD: Tensor, above_KH: Tensor) -> Tensor:
    r""":math:`|A|` (h, h) with :math:`A = V_2^\top U_1`: how W2's right singular vectors meet W1's left ones.

    Source: directclr2022, section 5.3 and Fig. 4. Signs of singular vectors are arbitrary, hence absolute values. Both
    sides are in descending order of singular values. Unchanged by scaling either matrix.

    Args:
        below_HD: W1, weights of the layer that comes first, with h outputs.
        above_KH: W2, of the layer behind it, with h inputs.

    >>> alignment_matrix(torch.diag(torch.tensor([3.0, 1.0])), torch.diag(torch.tensor([1.0, 2.0])))
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    return signed_alignment(below_HD, above_KH).abs()


def live_alignment(below_HD: Tensor, above_KH: Tensor, num_live: int) -> Tensor:
    """Principal cosines (l,) between both sides' leading singular subspaces, descending; all 1 if they are the same.

    The test to use where live singular values are nearly equal, since their vectors are then arbitrary within the
    subspace (remark after Theorem 2 of directclr2022).

    Source: bjorck1973 (cosines of principal angles).

    Args:
        below_HD: W1.
        above_KH: W2.
        num_live: l, number of leading directions, 1 ... h.

    >>> live_alignment(torch.diag(torch.tensor([3.0, 2.0, 0.0])), torch.diag(torch.tensor([2.0, 3.0, 0.0])), 2)
    tensor([1., 1.], dtype=torch.float64)
    """
    a_HH = signed_alignment(below_HD, above_KH)
    if not 1 <= num_live <= len(a_HH):
        raise UsageError(f"num_live must be between 1 and {len(a_HH)}, got {num_live}")
    # Rounding may take them above 1.
    return torch.linalg.svdvals(a_HH[:num_live, :num_live]).clamp(max=1.0)


def conserved(weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    r"""Constants of the flow of any loss: :math:`W_l W_l^\top - W_{l+1}^\top W_{l+1}` for each two neighbouring layers.

    Source: directclr2022, appendix B.5, for two layers. The constant is rarely 0: the layers agree only as far as they
    have outgrown it, so directions with small singular values need not align.

    >>> conserved([torch.tensor([[2.0]]), torch.tensor([[1.0]])])[0]
    tensor([[3.]])
    """
    return tuple(below @ below.T - above.T @ above for below, above in pairwise(weights))


def conservation_drift(start: Sequence[Tensor], later: Sequence[Tensor]) -> float:
    """Largest change of an entry of the matrices that the flow conserves."""
    pairs = zip(conserved(start), conserved(later), strict=True)
    return max((float((after - before).abs().max()) for before, after in pairs), default=0.0)
