r"""Contrastive covariance: the matrix whose trace a contrastive loss raises, its importance held fixed.

With weights :math:`\alpha_{ij} \ge 0` on pairs of samples, :math:`\beta_i = \sum_{j \ne i} \alpha_{ij}`, and half
squared distances :math:`d_{ij}^2 = |z_i - z_j|^2/2` between samples and :math:`d_i^2 = |z_i - z_i'|^2/2` between views,

.. math:: E_\alpha = \tfrac12 \operatorname{tr} C_\alpha[z] = \sum_{i \ne j} \alpha_{ij} (d_{ij}^2 - d_i^2),

and gradient descent on a pairwise loss is gradient ascent on E with its alpha held fixed (alphacl2022, Theorem 1).
"""

# N anchors, P features of what is covaried

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError


def contrastive_covariance(alpha_NN: Tensor, a_NP: Tensor, a_partner_NP: Tensor) -> Tensor:
    r"""Contrastive covariance of a quantity; X_alpha where that is the network's input.

    .. math:: C_\alpha[a] = \sum_{i \ne j} \alpha_{ij} (a_i - a_j)(a_i - a_j)^\top
        - \sum_i \beta_i (a_i - a_i')(a_i - a_i')^\top

    A sum, not a mean. Symmetric, and indefinite in general: augmentation subtracts. The paper's C[a, b] of two
    quantities is a block of that of both beside each other.

    Source: alphacl2022, Eq. 5.

    Args:
        alpha_NN: importance, >= 0; its diagonal does not count.
        a_NP: a of each anchor.
        a_partner_NP: a of its other view.

    Returns:
        Tensor (p, p) in float64, differentiable.

    Raises:
        ValueError: shapes that do not fit, negative or non-finite weights.

    Unchanged when a of all anchors and other views move together.

    >>> alpha = torch.ones(2, 2)
    >>> contrastive_covariance(alpha, torch.eye(2), torch.eye(2))
    tensor([[ 2., -2.],
            [-2.,  2.]], dtype=torch.float64)
    """
    weight_NN = _checked_weights(alpha_NN, len(a_NP))
    check_features(a_NP, "a", min_rows=1)
    check_features(a_partner_NP, "a_partner", min_rows=1)
    if a_NP.shape != a_partner_NP.shape:
        raise UsageError(
            f"a and its partners must have one shape, got {tuple(a_NP.shape)}, {tuple(a_partner_NP.shape)}"
        )
    # Far from the origin the products of the Laplacian form would cancel. Detached: a shift carries no gradient.
    mean_P = a_NP.detach().double().mean(0)
    a_NP, a_partner_NP = a_NP.double() - mean_P, a_partner_NP.double() - mean_P
    # alpha is not symmetric: i gives beta_i as an anchor and receives the rest as a negative of others.
    beta_N, received_N = weight_NN.sum(1), weight_NN.sum(0)
    # sum_ij alpha_ij (a_i - a_j)(a_i - a_j)^T is a graph Laplacian.
    laplacian_NN = torch.diag(beta_N + received_N) - weight_NN - weight_NN.T
    own_NP = a_NP - a_partner_NP
    return a_NP.T @ laplacian_NN @ a_NP - own_NP.T @ (beta_N[:, None] * own_NP)  # Eq. 5


def _checked_weights(alpha_NN: Tensor, num_anchors: int) -> Tensor:
    """Check the weights on pairs, and return them in float64 with a zero diagonal."""
    check_features(alpha_NN, "alpha", min_rows=1)
    if alpha_NN.shape != (num_anchors, num_anchors):
        raise UsageError(f"alpha must have shape ({num_anchors}, {num_anchors}), got {tuple(alpha_NN.shape)}")
    if bool((alpha_NN < 0).any()):
        raise UsageError(
            f"alpha must be >= 0, got {float(alpha_NN.min()):g}; importance is phi' psi' of growing functions"
        )
    weight_NN = alpha_NN.double()
    # Not in place: double() returns the caller's own tensor if that is float64 already.
    return weight_NN - torch.diag(weight_NN.diagonal())
