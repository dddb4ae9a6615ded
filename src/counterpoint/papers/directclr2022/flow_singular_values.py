"""How singular values and vectors of moving matrices move: of one matrix, and of two layers of a linear network."""

# D width of square matrices, K = D singular values

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError
from counterpoint.papers.directclr2022.two_layer_flow import LayerRates


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
    a_DD = second.v_DD.T @ first.u_DD
    f_DD = second.sigma_D[:, None] * (second.u_DD.T @ gradient_DD @ first.v_DD) * first.sigma_D
    below_DD, above_DD = a_DD.T @ f_DD, f_DD @ a_DD.T
    turn_below_DD = _inverse_gaps(first.sigma_D) * (below_DD + below_DD.T)
    turn_above_DD = _inverse_gaps(second.sigma_D) * (above_DD + above_DD.T)
    return -a_DD @ turn_below_DD + turn_above_DD @ a_DD


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
    first_D = -(a_DD * second.sigma_D[:, None] * seen_DD).sum(dim=0)
    second_D = -(a_DD * first.sigma_D * seen_DD).sum(dim=1)
    return LayerRates(first_D, second_D)


def _inverse_gaps(sigma_D: Tensor) -> Tensor:
    """H: 1 / (sigma_k'^2 - sigma_k^2) in row k and column k', 0 on the diagonal."""
    gap_DD = sigma_D.square()[None, :] - sigma_D.square()[:, None]
    is_equal_DD = gap_DD == 0
    if int(is_equal_DD.sum()) > len(sigma_D):
        raise UsageError("singular values must differ, or their vectors have no derivative; two are equal")
    return torch.where(is_equal_DD, 0.0, 1 / torch.where(is_equal_DD, 1.0, gap_DD))
