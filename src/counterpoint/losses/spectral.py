"""The spectral contrastive losses: squared similarities of all pairs from two small matrices, in linear memory."""

# N samples per view, D features

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.core.numerics import into_ball, product
from counterpoint.kernels.contract import SQUARE
from counterpoint.losses.class_level import ClassLevel, Separable, not_covered
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part, shown_by_call


class SpectralContrastive(Loss):
    r"""Spectral contrastive loss: positives are similar, other pairs orthogonal.

    .. math::
        L = -\frac{2}{n} \sum_i \langle z_i, z_i' \rangle
            + \frac{1}{n (n - 1)} \sum_i \sum_{j \ne i} \langle z_i, z_j' \rangle^2

    Cross-view pairs only. The sum over all pairs is the inner product of two D x D matrices,
    :math:`\sum_{ij} \langle z_i, z_j' \rangle^2 = \langle Z^T Z, Z'^T Z' \rangle`, so that time is O(n D^2) and memory
    O(n D + D^2), for the value and for both derivatives.

    Use it where features should factor the matrix of co-occurring views, as theory has it (method ``spectral``).

    Source: ncl2024, Eq. 2, after haochen2021; the ball and the mean over j != i are those of haochen2021's code.
        Differs from that code: no division by mu (the same at mu = 1).

    Args:
        mu: vectors longer than sqrt(mu) are first shortened to that length, mu > 0; None takes them as they are.
        nonnegative: apply a ReLU to the inputs first.

    Raises:
        ValueError: mu <= 0 or not finite.

    Unchanged by permuting samples, swapping views and, except for the ReLU, by rotating all vectors. Takes the whole
    batch in every process.

    >>> loss = SpectralContrastive()
    >>> float(loss(torch.eye(2), torch.eye(2))), float(loss(torch.ones(2, 1), torch.ones(2, 1)))
    (-2.0, -1.0)
    """

    card = LossCard(
        name="SpectralContrastive",
        phi="x",
        psi="<z_i, z_j'>^2",
        alpha="2 <z_i, z_j'> / (n - 1)",
        negatives="the other view of every other sample",
        normalization="into the ball of radius sqrt(mu), or inputs as they are; mean over pairs",
        source="ncl2024, Eq. 2; haochen2021",
    )

    def __init__(self, mu: float | None = 1.0, *, nonnegative: bool = False) -> None:
        super().__init__()
        if mu is not None and not 0 < mu < math.inf:
            raise ValueError(f"mu must be > 0 and finite, got {mu}; haochen2021 uses 1, None takes vectors as they are")
        self.mu, self.nonnegative = mu, nonnegative

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Loss of the whole batch; see ``Loss.forward``. Labels are only checked, ``part`` is ignored."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=False)
        if self.nonnegative:
            z0, z1 = torch.relu(z0), torch.relu(z1)
        if self.mu is not None:
            # Without the ball orthogonal vectors could lower the loss for ever by growing.
            z0, z1 = into_ball(z0, math.sqrt(self.mu)), into_ball(z1, math.sqrt(self.mu))
        # Eq. 2, its second term as the mean over i != j.
        own_N = (z0 * z1).sum(dim=1)
        num_pairs = len(z0) * (len(z0) - 1)
        return -2 * own_N.mean() + _square_sum_of_others(z0, z1, own_N) / num_pairs

    def chance(self, n: int) -> float:
        """Least loss of vectors that are all alike: r^4 - 2 r^2 at the best length r, which is 1 where allowed."""
        squared_length = 1.0 if self.mu is None else min(1.0, self.mu)
        return squared_length**2 - 2 * squared_length

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Minus 2 mu: no product exceeds mu, no square is negative. Attained by n orthogonal vectors if D >= n.

        Without the ball orthogonal vectors may be of any length and there is no floor. Orthogonal vectors need no
        negative entry.
        """
        return -math.inf if self.mu is None else -2 * self.mu

    def class_level(self) -> ClassLevel:
        """See ``Loss.class_level``; class means are in units of the ball's radius sqrt(mu).

        -2 s is decreasing and no inner product exceeds mu, so that positives cost at least -2 mu; the square is convex,
        and Jensen's inequality puts the product of two class means into it. Orthogonal classes are optimal.
        """
        if self.mu is None:
            raise not_covered(self.card.name, "its vectors have no fixed length (mu=None)")
        # Cosines s of class means: a positive costs -2 mu s, with slope -2 mu.
        return Separable(
            self.card.name, SQUARE, self.mu, attract=-2 * self.mu, attract_slope=-2 * self.mu, is_mean=True
        )


@shown_by_call
def CrossModalSpectral(nonnegative: bool = False, mu: float | None = 1.0) -> SpectralContrastive:
    r"""Spectral contrastive loss between two kinds of data, whose optimum factors their co-occurrence matrix.

    .. math:: L = -\frac{2}{n} \sum_i \langle x_i, y_i\rangle
        + \frac{1}{n(n-1)} \sum_i \sum_{j \ne i} \langle x_i, y_j\rangle^2

    z0 holds x (images), z1 holds y (texts). Non-negative features make it an asymmetric non-negative matrix
    factorisation, whose features are identifiable up to order and scale. Computed through two D x D matrices, never
    pairs: ``SpectralContrastive`` after an optional ReLU.

    Use it in place of ``CrossModal`` where features should be identifiable.

    Source: ncl2024, appendix C, Eq. 11, and Eq. 12 for the non-negative version. Differs from the paper in the ball of
        radius sqrt(mu), without which long orthogonal vectors have no least loss; mu=None is the paper's.

    Args:
        nonnegative: apply a ReLU to the inputs first.
        mu: vectors longer than sqrt(mu) are first shortened to that length, mu > 0; None takes them as they are.

    Raises:
        ValueError: mu <= 0 or not finite.

    Unchanged by permuting samples, swapping views and, except for the ReLU, by rotating all vectors. Takes the whole
    batch in every process.

    >>> loss = CrossModalSpectral(nonnegative=True)
    >>> float(loss(torch.eye(2), torch.eye(2))), float(loss(-torch.eye(2), torch.eye(2)))
    (-2.0, 0.0)
    """
    loss = SpectralContrastive(mu, nonnegative=nonnegative)
    loss.card = replace(
        loss.card,
        name="CrossModalSpectral",
        psi="<x_i, y_j>^2",
        alpha="2 <x_i, y_j> / (n - 1)",
        negatives="the other kind's vector of every other sample",
        normalization="ReLU if asked, then into the ball of radius sqrt(mu), or as they are; mean over pairs",
        source="ncl2024, appendix C, Eq. 11 and 12",
    )
    return loss


def _square_sum_of_others(z0: Tensor, z1: Tensor, own_N: Tensor) -> Tensor:
    """Sum of <z_i, z_j'>^2 over i != j.

    With p_i = <z_i, z_i'>, Cauchy-Schwarz on P = Z Z'^T, whose rank is at most D, gives sum_ij P_ij^2 >= (sum_i p_i)^2
    / D. From 2 D samples on (p_i about equal) the own terms are therefore at most half of the sum, and taking them off
    costs one digit at most. Below, they may be nearly all of it; there the n x n products, no more numbers than
    two inputs hold, are squared without them. What stays lossy: no ball, and one vector far longer than all others
    together (1e3 against 8 features of size 1, n = 100: the value is right to 2e-3 in float32).
    """
    num_samples, num_features = z0.shape
    # Sums of rows first: the bits of a sum over a whole matrix depend on the number of threads.
    if num_samples > 2 * num_features:
        return (product(z0.T, z0) * product(z1.T, z1)).sum(1).sum() - own_N.square().sum()
    products_NN = product(z0, z1.T)
    # An entry less itself is exactly 0: nothing of the diagonal stays.
    return (products_NN - torch.diag(products_NN.diagonal())).square().sum(1).sum()


CATALOGUE: Mapping[str, Callable[..., SpectralContrastive]] = {
    "spectral": SpectralContrastive,
    "cross-modal-spectral": CrossModalSpectral,
}
