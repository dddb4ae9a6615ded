r"""Contrast as matrix factorisation: the spectral loss is the squared error of factorising the co-occurrence matrix.

.. math::
    \|\bar A - F G^\top\|^2 = L_{\mathrm{sp}}(f, g) + \|\bar A\|^2, \qquad
    F_x = \sqrt{P(x)}\, f(x), \quad G_y = \sqrt{P(y)}\, g(y)

for all features, signed or not, of one kind of view (g = f) or two. Least errors, and features that attain them, follow
from the spectrum of A-bar without the sign constraint, and from the sources themselves with it.
"""

# X views, Y views of the second kind, K features, M sources, R = min(X, Y) singular values

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from reproductions.ncl2024.latent_classes import Cooccurrence, LatentModel


@dataclass(frozen=True)
class Factorisation:
    r"""Features of every view, the error they leave, and an error that no features of their number can beat.

    Attributes:
        first_XK: f(x), (x, k).
        second_YK: g(y), (y, k); the first's own where views are of one kind.
        error: :math:`\|\bar A - F G^\top\|^2`, the matrix factorisation loss.
        lower_bound: ``least_error`` of as many encoders, below which no k signed features, and so no k non-negative
            ones, can go.
        loss: the spectral contrastive loss.
    """

    first_XK: Tensor
    second_YK: Tensor
    error: float
    lower_bound: float
    loss: float

    @property
    def gap(self) -> float:
        """The error less its lower bound, >= 0 but for rounding: 0 certifies a global optimum."""
        return self.error - self.lower_bound


def spectral_loss(pairs: Cooccurrence, first_XK: Tensor, second_YK: Tensor | None = None) -> Tensor:
    r"""Population value of the spectral contrastive loss.

    .. math:: L_{\mathrm{sp}} = -2 \sum_{xy} P(x, y) \langle f(x), g(y) \rangle
        + \sum_{xy} P(x) P(y) \langle f(x), g(y) \rangle^2

    Source: ncl2024, Eq. 2 (signed) and Eq. 5 (non-negative f); Eq. 11 and 12 for two kinds of views. Negatives are
        independent draws, which may be of the anchor's own source; ``losses.SpectralContrastive`` estimates this from
        a batch, there without the anchor's own positive.

    Args:
        pairs: co-occurrence of x and y.
        first_XK: f, one row per view.
        second_YK: g; None is f.

    Returns:
        Scalar tensor, differentiable in the features.

    Raises:
        UsageError: rows of features that do not match the views, or one encoder for two kinds of views.

    Unchanged by one rotation of all features (ncl2024, Theorem 1).

    >>> pairs = Cooccurrence(torch.eye(2).double() / 2, torch.full((2,), 0.5), torch.full((2,), 0.5), True)
    >>> round(float(spectral_loss(pairs, 2**0.5 * torch.eye(2).double())), 12)  # minus the rank of A-bar
    -2.0
    """
    first_XK, second_YK = _checked_features(pairs, first_XK, second_YK)
    score_XY = first_XK @ second_YK.T
    chance_XY = pairs.first_X.double()[:, None] * pairs.second_Y.double()
    # Eq. 2; Eq. 11 for two encoders
    return -2 * (pairs.joint_XY * score_XY).sum() + (chance_XY * score_XY.square()).sum()


def factorisation_error(pairs: Cooccurrence, first_XK: Tensor, second_YK: Tensor | None = None) -> Tensor:
    r"""Squared error with which scaled features reproduce the normalised co-occurrence matrix.

    .. math:: \|\bar A - F G^\top\|^2, \qquad F_x = \sqrt{P(x)} f(x), \quad G_y = \sqrt{P(y)} g(y)

    Equals ``spectral_loss`` plus ``constant``.

    Source: ncl2024, Eq. 3 and 4 (Theorem 2, proof in B.1); Eq. 13 for two kinds of views.

    Args:
        pairs: co-occurrence of x and y.
        first_XK: f, one row per view.
        second_YK: g; None is f.

    Returns:
        Scalar tensor, differentiable in the features.

    Raises:
        UsageError: as ``spectral_loss``.

    >>> pairs = Cooccurrence(torch.eye(2).double() / 2, torch.full((2,), 0.5), torch.full((2,), 0.5), True)
    >>> float(factorisation_error(pairs, torch.zeros(2, 1)))
    2.0
    """
    first_XK, second_YK = _checked_features(pairs, first_XK, second_YK)
    scaled_XK = pairs.first_X.double().sqrt()[:, None] * first_XK
    scaled_YK = pairs.second_Y.double().sqrt()[:, None] * second_YK
    # Eq. 3; Eq. 4 where f has no negative entry, Eq. 13 for two encoders
    return (pairs.normalised - scaled_XK @ scaled_YK.T).square().sum()


def constant(pairs: Cooccurrence) -> float:
    r"""The difference of the two losses, :math:`\|\bar A\|^2 = \sum_{xy} P(x, y)^2 / (P(x) P(y))`.

    One more than the chi-square divergence of the pairs from independence: 1 where views tell nothing of each other.
    Minus this is the least spectral loss that any number of features can reach.

    Source: ncl2024, B.1.

    >>> constant(Cooccurrence(torch.full((2, 2), 0.25), torch.full((2,), 0.5), torch.full((2,), 0.5), True))
    1.0
    """
    # B.1: what is left of the square where no feature enters
    return float(pairs.normalised.square().sum())


def least_error(pairs: Cooccurrence, num_features: int, *, num_encoders: int | None = None) -> float:
    r"""Least error of k signed features; a lower bound for non-negative ones.

    .. math:: \min_{F, G} \|\bar A - F G^\top\|^2 = \sum_{i > k} \sigma_i^2, \qquad
        \min_F \|\bar A - F F^\top\|^2 = \sum_i \lambda_i^2 - \sum_{i \le k} \max(\lambda_i, 0)^2

    with singular values, and eigenvalues of a symmetric A-bar, in descending order. The two agree where A-bar is
    positive semi-definite, as that of a ``LatentModel`` is; one encoder cannot make a negative eigenvalue.

    Source: the Eckart-Young theorem; haochen2021. Differs from both in the second bound, for pairs of any kind.

    Args:
        pairs: co-occurrence of x and y.
        num_features: k.
        num_encoders: 1, F F^T, or 2, F G^T; None is 1 for symmetric pairs and else 2.

    Raises:
        UsageError: fewer than one feature; another number of encoders, or one for two kinds of views.

    >>> always_other = Cooccurrence(torch.eye(2).double().flip(0) / 2, torch.ones(2) / 2, torch.ones(2) / 2, True)
    >>> [round(least_error(always_other, 2, num_encoders=n), 12) for n in (1, 2)]  # eigenvalues 1 and -1
    [1.0, 0.0]

    >>> pairs = Cooccurrence(torch.eye(2).double() / 2, torch.full((2,), 0.5), torch.full((2,), 0.5), True)
    >>> round(least_error(pairs, 1), 12)
    1.0
    """
    check_num_features(num_features)
    num_encoders = (1 if pairs.is_symmetric else 2) if num_encoders is None else num_encoders
    if num_encoders not in ((1, 2) if pairs.is_symmetric else (2,)):
        raise UsageError(f"num_encoders must be 2, or 1 where views are of one kind, got {num_encoders!r}")
    if num_encoders == 2:
        # Eckart-Young: the best F G^T of rank k keeps the k largest singular values
        return float(torch.linalg.svdvals(pairs.normalised)[num_features:].square().sum())
    lambda_X = torch.linalg.eigvalsh(pairs.normalised).flip(0)
    # F F^T has no negative eigenvalue: those of A-bar stay in the error
    kept_X = lambda_X.clamp(min=0.0)
    kept_X[num_features:] = 0.0
    return float((lambda_X - kept_X).square().sum())


def spectral_features(pairs: Cooccurrence, num_features: int) -> Factorisation:
    r"""Features that minimise the spectral loss: eigenvectors, or for two encoders singular vectors, of A-bar.

    .. math:: f_i(x) = \sqrt{\sigma_i / P(x)}\, U_{xi}, \qquad g_i(y) = \sqrt{\sigma_i / P(y)}\, V_{yi},
        \qquad \bar A = U \operatorname{diag}(\sigma) V^\top

    For one kind of views V = U and sigma_i is the i-th eigenvalue, or 0 where that is negative.

    Source: haochen2021; ncl2024, section 4.2. One answer of many: any rotation of the features is as good.

    Args:
        pairs: co-occurrence of x and y.
        num_features: k; beyond the rank, or the positive eigenvalues, further features are zero.

    Returns:
        The features, by descending sigma, with a gap of 0.

    Raises:
        UsageError: fewer than one feature.

    >>> pairs = Cooccurrence(torch.eye(2).double() / 2, torch.full((2,), 0.5), torch.full((2,), 0.5), True)
    >>> round(spectral_features(pairs, 2).loss, 12)
    -2.0
    """
    check_num_features(num_features)
    left_XR, sigma_R, right_YR = _singular_factors(pairs)
    root_R = sigma_R.sqrt()
    # f_i(x) = sqrt(sigma_i / P(x)) U_xi, so that F = U sqrt(sigma)
    first_XK = _to_width(left_XR * root_R / pairs.first_X.sqrt()[:, None], num_features)
    second_YK = _to_width(right_YR * root_R / pairs.second_Y.sqrt()[:, None], num_features)
    return evaluate_features(pairs, first_XK, None if pairs.is_symmetric else second_YK)


def source_features(model: LatentModel) -> Tensor:
    r"""The closed form of non-negative features: how much each view belongs to each source.

    .. math:: \phi_c(x) = P(c|x) / \sqrt{P(c)}

    With k = m they reproduce A-bar exactly, so that both losses are at their least (Theorem 3). Where each view
    belongs to one source mu(x), they are :math:`1_{\mu(x)} / \sqrt{P(\mu(x))}` and orthonormal, E phi phi^T = I.

    Source: ncl2024, Eq. 8. Differs from Theorem 4 as printed, whose 1_mu(x) lacks the factor 1 / sqrt(P(c)) that its
        own proof has; without it E phi phi^T would be diag(P(c)).

    Args:
        model: sources and views; for two kinds of data call it for each.

    Returns:
        Tensor (x, m), non-negative.

    >>> model = LatentModel(torch.tensor([0.25, 0.75]), torch.eye(2))
    >>> source_features(model)
    tensor([[2.0000, 0.0000],
            [0.0000, 1.1547]], dtype=torch.float64)
    """
    # Eq. 8
    return model.posterior / model.prior_M.sqrt()


def evaluate_features(pairs: Cooccurrence, first_XK: Tensor, second_YK: Tensor | None = None) -> Factorisation:
    """Compare features with the least error that their number allows.

    Args:
        pairs: co-occurrence of x and y.
        first_XK: f, one row per view.
        second_YK: g; None is f.

    Raises:
        UsageError: as ``spectral_loss``.

    >>> pairs = Cooccurrence(torch.eye(2).double() / 2, torch.full((2,), 0.5), torch.full((2,), 0.5), True)
    >>> round(evaluate_features(pairs, 2**0.5 * torch.eye(2)).gap, 12)
    0.0
    """
    first_XK, second_YK = _checked_features(pairs, first_XK, second_YK)
    # one encoder only where both are the same tensor: the bound is then the higher one
    others = None if pairs.is_symmetric and second_YK is first_XK else second_YK
    error = float(factorisation_error(pairs, first_XK, others))
    bound = least_error(pairs, first_XK.shape[1], num_encoders=1 if others is None else 2)
    return Factorisation(first_XK, second_YK, error, bound, float(spectral_loss(pairs, first_XK, others)))


def check_num_features(num_features: int) -> None:
    """Require at least one feature.

    Raises:
        UsageError: otherwise.
    """
    if num_features < 1:
        raise UsageError(f"num_features must be >= 1, got {num_features}; the number of sources reaches the optimum")


def _checked_features(pairs: Cooccurrence, first_XK: Tensor, second_YK: Tensor | None) -> tuple[Tensor, Tensor]:
    """Check the features of both kinds of views, one row per view, and return them in float64."""
    if second_YK is None and not pairs.is_symmetric:
        raise UsageError("two kinds of views need the features of both, got only the first")
    first_XK = first_XK.double()
    second_YK = first_XK if second_YK is None else second_YK.double()
    num_features = first_XK.shape[-1]
    expected = [torch.Size([num_views, num_features]) for num_views in pairs.joint_XY.shape]
    if [first_XK.shape, second_YK.shape] != expected:
        raise UsageError(
            f"features must have one row per view, {tuple(pairs.joint_XY.shape)}, and one width, got "
            f"{tuple(first_XK.shape)} and {tuple(second_YK.shape)}"
        )
    return first_XK, second_YK


def _singular_factors(pairs: Cooccurrence) -> tuple[Tensor, Tensor, Tensor]:
    """Singular vectors and values, descending; of a symmetric matrix eigenvectors, with negative eigenvalues at 0."""
    if not pairs.is_symmetric:
        left_XR, sigma_R, right_RY = torch.linalg.svd(pairs.normalised, full_matrices=False)
        return left_XR, sigma_R, right_RY.T
    lambda_R, vectors_XR = torch.linalg.eigh(pairs.normalised)
    # eigh sorts ascending
    vectors_XR = vectors_XR.flip(1)
    return vectors_XR, lambda_R.flip(0).clamp(min=0.0), vectors_XR


def _to_width(features_XR: Tensor, num_features: int) -> Tensor:
    """Keep the first k features, or fill up with zeros."""
    # zeros beyond the rank add nothing to F G^T
    kept_XK = features_XR[:, :num_features]
    return torch.nn.functional.pad(kept_XK, (0, num_features - kept_XK.shape[1]))
