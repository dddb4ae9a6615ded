"""Singular values and vectors of layers: how they move, whether neighbours agree on them, and how many are alive."""

# N samples, D width of a layer, H width between layers, K singular values or live directions

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.errors import UsageError
from reproductions.directclr2022.linear_flow import LayerRates

MARGIN = 5.0  # e^-5 = 0.7 %: live spectra of the toys span less than 1, and collapsed values lie more than 6 below


@dataclass(frozen=True)
class Factors:
    r"""Singular value decomposition :math:`W = U\, \mathrm{diag}(\sigma)\, V^\top` of a square matrix.

    Attributes:
        u_DD: left singular vectors as columns.
        sigma_D: singular values, descending.
        v_DD: right singular vectors as columns.
    """

    u_DD: Tensor
    sigma_D: Tensor
    v_DD: Tensor


def factors(weight_DD: Tensor) -> Factors:
    """Decompose a square matrix; signs of the vectors are arbitrary, in pairs.

    >>> factors(torch.diag(torch.tensor([1.0, 3.0]))).sigma_D
    tensor([3., 1.], dtype=torch.float64)
    """
    check_features(weight_DD, "weight", min_rows=1)
    if weight_DD.shape[0] != weight_DD.shape[1]:
        raise UsageError(f"weight must be square, got shape {tuple(weight_DD.shape)}")
    u_DD, sigma_D, vh_DD = torch.linalg.svd(weight_DD.double())
    return Factors(u_DD, sigma_D, vh_DD.T)


def factor_rates(at: Factors, velocity_DD: Tensor) -> Factors:
    r"""Time derivatives of a matrix's factors while the matrix moves at :math:`\dot W`.

    .. math:: \dot\sigma_k = u_k^\top \dot W v_k, \qquad
        \dot U = U\,(H \odot (U^\top \dot W V S + S V^\top \dot W^\top U)), \qquad
        \dot V = V\,(H \odot (V^\top \dot W^\top U S + S U^\top \dot W V))

    with :math:`H_{kk'} = 1/(\sigma_{k'}^2 - \sigma_k^2)` off the diagonal.

    Source: directclr2022, Lemmas 4 and 5 (Eq. 12 to 15). Differs from Eq. 15, whose sign is flipped.

    Args:
        at: factors with singular values that differ.
        velocity_DD: :math:`\dot W`.

    Returns:
        The derivative of each factor.
    """
    h_DD = _inverse_gaps(at.sigma_D)
    inner_DD = at.u_DD.T @ velocity_DD.double() @ at.v_DD
    right_DD = inner_DD * at.sigma_D  # U^T Wdot V S
    left_DD = at.sigma_D[:, None] * inner_DD  # S U^T Wdot V
    return Factors(
        at.u_DD @ (h_DD * (right_DD + right_DD.T)),  # Eq. 13
        inner_DD.diagonal(),  # Eq. 12
        at.v_DD @ (h_DD * (left_DD.T + left_DD)),  # Eq. 14
    )


def alignment_rate(first: Factors, second: Factors, gradient_DD: Tensor) -> Tensor:
    r"""Time derivative of the alignment matrix :math:`A = V_2^\top U_1` under the two-layer flow.

    .. math:: \dot A = -A\,(H_1 \odot (A^\top F + F^\top A)) + (H_2 \odot (A F^\top + F A^\top))\,A, \qquad
        F = S_2 U_2^\top G V_1 S_1

    Source: directclr2022, Lemma 6 (Eq. 18 to 20), with the sign of H put right as in ``factor_rates``.

    Args:
        first: factors of W1.
        second: factors of W2.
        gradient_DD: G, gradient of the loss in W2 W1.
    """
    a_DD = second.v_DD.T @ first.u_DD  # A = V2^T U1
    f_DD = second.sigma_D[:, None] * (second.u_DD.T @ gradient_DD @ first.v_DD) * first.sigma_D  # Eq. 20
    below_DD, above_DD = a_DD.T @ f_DD, f_DD @ a_DD.T
    turn_below_DD = _inverse_gaps(first.sigma_D) * (below_DD + below_DD.T)
    turn_above_DD = _inverse_gaps(second.sigma_D) * (above_DD + above_DD.T)
    return -a_DD @ turn_below_DD + turn_above_DD @ a_DD  # Eq. 18


def singular_value_rates(first: Factors, second: Factors, gradient_DD: Tensor) -> LayerRates:
    r"""Time derivatives of both layers' singular values, aligned or not.

    .. math:: \dot\sigma_1^k = -\sum_{k'} (v_2^{k'\top} u_1^k)\, \sigma_2^{k'} (u_2^{k'\top} G v_1^k), \qquad
        \dot\sigma_2^k = -\sum_{k'} (u_1^{k'\top} v_2^k)\, \sigma_1^{k'} (u_2^{k\top} G v_1^{k'})

    Source: directclr2022, Lemma 7 (Eq. 21, 22).

    Args:
        first: factors of W1.
        second: factors of W2.
        gradient_DD: G, gradient of the loss in W2 W1.
    """
    a_DD = second.v_DD.T @ first.u_DD
    seen_DD = second.u_DD.T @ gradient_DD @ first.v_DD
    first_D = -(a_DD * second.sigma_D[:, None] * seen_DD).sum(dim=0)  # Eq. 21: k' are rows
    second_D = -(a_DD * first.sigma_D * seen_DD).sum(dim=1)  # Eq. 22: k' are columns
    return LayerRates(first_D, second_D)


def _inverse_gaps(sigma_D: Tensor) -> Tensor:
    """H: 1 / (sigma_k'^2 - sigma_k^2) in row k and column k', 0 on the diagonal."""
    # Differs from Eq. 15 and 19, which print sigma_k^2 - sigma_k'^2: finite differences have the other sign.
    gap_DD = sigma_D.square()[None, :] - sigma_D.square()[:, None]
    is_equal_DD = gap_DD == 0
    # On the diagonal a gap is always 0.
    if int(is_equal_DD.sum()) > len(sigma_D):
        raise UsageError("singular values must differ, or their vectors have no derivative; two are equal")
    return torch.where(is_equal_DD, 0.0, 1 / torch.where(is_equal_DD, 1.0, gap_DD))


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


def alignment_blocks(below_HD: Tensor, above_KH: Tensor, *, separation: float = 0.1) -> tuple[AlignmentBlock, ...]:
    """Blocks of the alignment matrix, and how much of each stays inside.

    A block ends where the singular values of both layers fall by more than ``separation``, relative to the larger one.
    directclr2022, section 5.3, expects a block-diagonal alignment matrix, one block per group of equal singular values.

    Args:
        below_HD: W1.
        above_KH: W2.
        separation: > 0, below 1.

    >>> blocks = alignment_blocks(torch.diag(torch.tensor([3.0, 2.9, 1.0])), torch.diag(torch.tensor([2.9, 3.0, 1.0])))
    >>> [(block.first, block.last, round(block.share, 6)) for block in blocks]
    [(0, 2, 1.0), (2, 3, 1.0)]
    """
    check_positive(separation, "separation", hint="0.1 is common")
    squared_HH = signed_alignment(below_HD, above_KH).square()
    below_H, above_H = (torch.linalg.svdvals(w.double())[: len(squared_HH)] for w in (below_HD, above_KH))
    # In both: where one layer's values are nearly equal, its vectors can be turned, and so A is no longer diagonal.
    is_apart = (_falls(below_H) > separation) & (_falls(above_H) > separation)
    edges = [0, *(int(place) + 1 for place in is_apart.nonzero()[:, 0]), len(squared_HH)]
    # A is orthogonal, so the rows of a block have a squared length of 1 each.
    return tuple(
        AlignmentBlock(first, last, float(squared_HH[first:last, first:last].sum()) / (last - first))
        for first, last in pairwise(edges)
    )


def _falls(sigma_H: Tensor) -> Tensor:
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


def live_alignment(below_HD: Tensor, above_KH: Tensor, num_live: int, num_above: int | None = None) -> Tensor:
    """Principal cosines (l,) between both sides' leading singular subspaces, descending; all 1 if one holds the other.

    The test to use where live singular values are nearly equal, since their vectors are then arbitrary within the
    subspace (remark after Theorem 2 of directclr2022).

    Source: bjorck1973 (cosines of principal angles).

    Args:
        below_HD: W1.
        above_KH: W2.
        num_live: number of leading directions, 1 ... h.
        num_above: of W2, where it is another number; l is the smaller of both.

    >>> live_alignment(torch.diag(torch.tensor([3.0, 2.0, 0.0])), torch.diag(torch.tensor([2.0, 3.0, 0.0])), 2)
    tensor([1., 1.], dtype=torch.float64)
    """
    a_HH = signed_alignment(below_HD, above_KH)
    for count in (num_live, num_above or num_live):
        if not 1 <= count <= len(a_HH):
            raise UsageError(f"num_live must be between 1 and {len(a_HH)}, got {count}")
    # Rounding may take them above 1.
    return torch.linalg.svdvals(a_HH[: num_above or num_live, :num_live]).clamp(max=1.0)
