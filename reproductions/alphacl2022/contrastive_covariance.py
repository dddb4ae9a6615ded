r"""Contrastive covariance: the matrix whose trace a contrastive loss raises, its importance held fixed.

With weights :math:`\alpha_{ij} \ge 0` on pairs of samples, :math:`\beta_i = \sum_{j \ne i} \alpha_{ij}`, and half
squared distances :math:`d_{ij}^2 = |z_i - z_j|^2/2` between samples and :math:`d_i^2 = |z_i - z_i'|^2/2` between views,

.. math:: E_\alpha = \tfrac12 \operatorname{tr} C_\alpha[z] = \sum_{i \ne j} \alpha_{ij} (d_{ij}^2 - d_i^2),

and gradient descent on a pairwise loss is gradient ascent on E with its alpha held fixed (alphacl2022, Theorem 1).
"""

# N anchors, P and Q features of what is covaried, D features of z, V = 2n vectors of a batch of n samples

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError
from counterpoint.losses.importance import AlphaCL
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.pair_loss import PairLoss


@dataclass(frozen=True)
class ViewGradients:
    """The derivative of a loss by both views' vectors.

    Attributes:
        anchors_ND: by the anchors z_i.
        partners_ND: by their other views z_i'.
    """

    anchors_ND: Tensor
    partners_ND: Tensor


@dataclass(frozen=True)
class WeighedPairs:
    """A batch as a loss sees it: who is compared with whom, and with which importance.

    Attributes:
        alpha_VV: importance, rows are anchors; first view before second.
        z_VD: all vectors, first view before second (unit vectors where the loss normalises).
        partner_VD: the other view of each.
        scale: the loss changes as ``-scale * energy`` does; 1 / number of anchors for a mean over anchors.
    """

    alpha_VV: Tensor
    z_VD: Tensor
    partner_VD: Tensor
    scale: float

    def energy(self) -> Tensor:
        """E_alpha with alpha held fixed, differentiable in the vectors."""
        return energy(self.alpha_VV, self.z_VD, self.partner_VD)


def contrastive_covariance(
    alpha_NN: Tensor,
    a_NP: Tensor,
    a_partner_NP: Tensor,
    b_NQ: Tensor | None = None,
    b_partner_NQ: Tensor | None = None,
) -> Tensor:
    r"""Contrastive covariance of two quantities; X_alpha where both are the network's input.

    .. math:: C_\alpha[a, b] = \sum_{i \ne j} \alpha_{ij} (a_i - a_j)(b_i - b_j)^\top
        - \sum_i \beta_i (a_i - a_i')(b_i - b_i')^\top

    A sum, not a mean. Symmetric where a = b, and then indefinite in general: augmentation subtracts.

    Source: alphacl2022, Eq. 5.

    Args:
        alpha_NN: importance, >= 0; its diagonal does not count.
        a_NP: a of each anchor.
        a_partner_NP: a of its other view.
        b_NQ: b of each anchor; None for a itself.
        b_partner_NQ: b of its other view; given with ``b_NQ``.

    Returns:
        Tensor (p, q) in float64, differentiable.

    Raises:
        ValueError: shapes that do not fit, negative or non-finite weights, or one of the two b without the other.

    Unchanged when a, or b, of all anchors and other views move together.

    >>> alpha = torch.ones(2, 2)
    >>> contrastive_covariance(alpha, torch.eye(2), torch.eye(2))
    tensor([[ 2., -2.],
            [-2.,  2.]], dtype=torch.float64)
    """
    if (b_NQ is None) != (b_partner_NQ is None):
        raise UsageError("b and b_partner must be given together, or neither for the covariance of a with itself")
    weight_NN = _off_diagonal(alpha_NN, len(a_NP))
    a_NP, a_partner_NP = _both_views(a_NP, a_partner_NP, "a")
    b_NQ, b_partner_NQ = (
        (a_NP, a_partner_NP) if b_NQ is None or b_partner_NQ is None else _both_views(b_NQ, b_partner_NQ, "b")
    )
    if len(b_NQ) != len(a_NP):
        raise UsageError(f"a and b must have the same number of rows, got {len(a_NP)} and {len(b_NQ)}")
    # alpha is not symmetric: i gives beta_i as an anchor and receives the rest as a negative of others.
    beta_N, received_N = weight_NN.sum(1), weight_NN.sum(0)
    # sum_ij alpha_ij (a_i - a_j)(b_i - b_j)^T is a graph Laplacian between a and b.
    laplacian_NN = torch.diag(beta_N + received_N) - weight_NN - weight_NN.T
    own_NQ = beta_N[:, None] * (b_NQ - b_partner_NQ)
    return a_NP.T @ laplacian_NN @ b_NQ - (a_NP - a_partner_NP).T @ own_NQ  # Eq. 5


def energy(alpha_NN: Tensor, z_ND: Tensor, partner_ND: Tensor) -> Tensor:
    r"""The energy that the max player of alpha-CL raises.

    .. math:: E_\alpha = \sum_{i \ne j} \alpha_{ij} (d_{ij}^2 - d_i^2) = \tfrac12 \operatorname{tr} C_\alpha[z, z]

    Both forms agree because distances are *half* squared ones; with full squared distances the temperature doubles.

    Source: alphacl2022, Theorem 1 and Eq. 20.

    Args:
        alpha_NN: importance, >= 0; its diagonal does not count.
        z_ND: anchors.
        partner_ND: their other views.

    Returns:
        A float64 scalar, differentiable in the vectors and linear in alpha.

    Raises:
        ValueError: as in ``contrastive_covariance``.

    >>> energy(torch.ones(2, 2), torch.eye(2), torch.eye(2))  # two ordered pairs at d^2 = 1, both views equal
    tensor(2., dtype=torch.float64)
    """
    weight_NN = _off_diagonal(alpha_NN, len(z_ND))
    z_ND, partner_ND = _both_views(z_ND, partner_ND, "z")
    return (weight_NN * gap_costs(z_ND, partner_ND)).sum()  # Eq. 20


def gap_costs(z_ND: Tensor, partner_ND: Tensor) -> Tensor:
    """The cost d_ij^2 - d_i^2 of each pair, half squared distances, from differences (never from squares).

    >>> gap_costs(torch.eye(2), torch.eye(2))
    tensor([[0., 1.],
            [1., 0.]])
    """
    # |a|^2 + |b|^2 - 2 a.b would lose the digits of close pairs.
    pair_NN = 0.5 * (z_ND[:, None] - z_ND).square().sum(2)
    own_N = 0.5 * (z_ND - partner_ND).square().sum(1)
    return pair_NN - own_N[:, None]


def loss_gradients(alpha_NN: Tensor, z_ND: Tensor, partner_ND: Tensor) -> ViewGradients:
    r"""The derivative of the loss with importance alpha, which is minus that of the energy.

    .. math:: \frac{\partial L}{\partial z_i} = \sum_{j \ne i} \alpha_{ij} (z_j - z_i')
        + \sum_{j \ne i} \alpha_{ji} (z_j - z_i), \qquad
        \frac{\partial L}{\partial z_i'} = \beta_i (z_i' - z_i)

    L is the paper's sum over anchors. For any A, :math:`\sum_i \partial_{z_i} L\, A_i^\top + \partial_{z_i'} L\,
    A_i'^\top = -C_\alpha[z, A]` (Lemma 4): the minus sign is missing in the paper's Eq. 27.

    Source: alphacl2022, Eq. 50 and 51.

    Args:
        alpha_NN: importance, >= 0; its diagonal does not count.
        z_ND: anchors.
        partner_ND: their other views.

    Raises:
        ValueError: as in ``contrastive_covariance``.

    >>> made = loss_gradients(torch.ones(2, 2), torch.eye(2), torch.eye(2))
    >>> made.anchors_ND
    tensor([[-2.,  2.],
            [ 2., -2.]], dtype=torch.float64)
    """
    weight_NN = _off_diagonal(alpha_NN, len(z_ND))
    z_ND, partner_ND = _both_views(z_ND, partner_ND, "z")
    # Where j is an anchor, it repels z_i too: hence the transposed weights.
    beta_N1, received_N1 = weight_NN.sum(1)[:, None], weight_NN.sum(0)[:, None]
    away_ND = weight_NN @ z_ND - beta_N1 * partner_ND + weight_NN.T @ z_ND - received_N1 * z_ND  # Eq. 50
    return ViewGradients(away_ND, beta_N1 * (partner_ND - z_ND))  # Eq. 51


def weigh(loss: PairLoss | AlphaCL, z0: Tensor, z1: Tensor) -> WeighedPairs:
    r"""The pairs of a batch with the importance that a loss of ours gives them.

    The gradient of ``loss(z0, z1)`` by both views is that of ``-scale * energy`` with alpha held fixed (Theorem 1).

    Source: alphacl2022, Theorem 1. Differs from the paper in the general pairing: all 2n vectors may be anchors, each
        with the other view of its sample as partner.

    Args:
        loss: a pairwise loss or ``AlphaCL``; of a user's rule the alpha that it gives.
        z0: first view (n, d), n >= 2.
        z1: second view.

    Returns:
        The pairs in float64; vectors are those of the caller's graph, alpha is detached.

    Raises:
        TypeError: another kind of loss: its positive pairs do not enter through the gap d_i^2 - d_ij^2.
        ValueError: views that do not fit, a zero vector where the loss normalises, or an ``AlphaCL`` that lets the
            gradient through its alpha.

    >>> from counterpoint.losses import LinearTriplet
    >>> pairs = weigh(LinearTriplet(), torch.eye(2), torch.eye(2))
    >>> float(-pairs.scale * pairs.energy()), float(LinearTriplet()(torch.eye(2), torch.eye(2)))
    (-2.0, -2.0)
    """
    if not isinstance(loss, PairLoss | AlphaCL):
        kind = getattr(loss, "__name__", type(loss).__name__)
        raise TypeError(f"loss must be a pairwise loss or AlphaCL, got {kind}; Theorem 1 needs sum phi(sum psi(gap))")
    if isinstance(loss, AlphaCL) and loss.backpropagate_alpha:
        raise UsageError("backpropagate_alpha must be False: Theorem 1 holds for alpha held fixed")
    z0, z1 = prepare_views(z0.double(), z1.double(), normalize=loss.pairing.normalize)
    z_VD, partner_VD = torch.cat([z0, z1]), torch.cat([z1, z0])
    # Normalising keeps a zero vector at zero, where the loss has no gradient to compare with.
    if loss.pairing.normalize and bool((z_VD == 0).all(dim=1).any()):
        raise UsageError("a zero vector has no direction; leave the sample out, or use a loss with normalize=False")
    is_first_only = isinstance(loss, PairLoss) and loss.pairing.anchors == "first"
    num_anchors = len(z0) if is_first_only else 2 * len(z0)
    is_sum = isinstance(loss, PairLoss) and loss.reduction == "sum"
    alpha_VV = loss.importance(z0, z1).detach()  # sg(alpha) of Theorem 1
    return WeighedPairs(alpha_VV, z_VD, partner_VD, 1.0 if is_sum else 1.0 / num_anchors)


def _off_diagonal(alpha_NN: Tensor, num_anchors: int) -> Tensor:
    """Checked weights with a zero diagonal."""
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


def _both_views(z_ND: Tensor, partner_ND: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Checked views in float64 without their common mean, which cancels in every difference."""
    check_features(z_ND, name, min_rows=1)
    check_features(partner_ND, f"{name}_partner", min_rows=1)
    if z_ND.shape != partner_ND.shape:
        raise UsageError(
            f"{name} and its partners must have one shape, got {tuple(z_ND.shape)}, {tuple(partner_ND.shape)}"
        )
    # Far from the origin the products of Eq. 5's Laplacian form would cancel. Detached: a shift carries no gradient.
    mean_D = z_ND.detach().double().mean(0)
    return z_ND.double() - mean_D, partner_ND.double() - mean_D
