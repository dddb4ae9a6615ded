r"""Uniqueness of non-negative features of a model, and a solver that finds such features.

Two exact factorisations with as many features as A-bar has rank differ by a rotation, Phi and Phi T. A view that
belongs to one source has one live feature, so a row of T is non-negative if Phi T is. With such a view for every source
T is non-negative and orthogonal: a permutation.

To find them is no convex problem, so every answer carries the least error of signed features, ``least_error``. Where
the two meet, which Assumption 1 guarantees can be had with as many features as sources, the answer is a global optimum.
"""

# X views, Y views of the second kind, K features, M sources

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from reproductions.ncl2024.factorisation import (
    Factorisation,
    check_num_features,
    evaluate_features,
    spectral_features,
)
from reproductions.ncl2024.latent_classes import Cooccurrence, LatentModel

CERTAIN = 1e-12  # how far from 1 a posterior may be, and a feature from 0, by rounding alone
TURNS = 100  # of the rotation that looks for non-negative features, per start
STEPS = 3000  # of the bounded descent that finishes, per start

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Identifiability:
    """A statement on whether non-negative features of a model are unique up to the order of their dimensions.

    Attributes:
        is_unique: True if uniqueness is proved; False if other features are known to be as good; None if neither
            is known.
        unique_view_M: for each source a view that belongs to it alone, -1 where there is none.
        rank: of the co-occurrence matrix.
        reason: one sentence.
    """

    is_unique: bool | None
    unique_view_M: Tensor
    rank: int
    reason: str

    def __str__(self) -> str:
        return self.reason


def unique_views(model: LatentModel) -> Tensor:
    r"""The likeliest view of each source among those that belong to it alone, P(c|x) = 1; -1 if there is none.

    Source: ncl2024, Assumption 3.

    >>> unique_views(LatentModel(torch.tensor([0.5, 0.5]), torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))).tolist()
    [0, 2]
    >>> unique_views(LatentModel(torch.tensor([0.5, 0.5]), torch.tensor([[0.5, 0.5], [0.0, 1.0]]))).tolist()
    [0, -1]
    """
    is_unique_XM = model.posterior >= 1 - CERTAIN
    # -1 marks views of several sources, so that a source without a view of its own has no positive maximum
    chance_XM = torch.where(is_unique_XM, model.marginal[:, None], -1.0)
    largest_M, view_M = chance_XM.max(dim=0)
    return torch.where(largest_M > 0, view_M, -1)


def identifiability(model: LatentModel, num_features: int | None = None) -> Identifiability:
    r"""Say whether the non-negative features of k dimensions are unique up to their order.

    With k = m and a view of its own for every source they are (Theorem 5). With k > m they are not: a dimension phi_c
    may be split into cos(t) phi_c and sin(t) phi_c, both non-negative, and no score changes.

    Source: ncl2024, Theorem 5. Differs from the text, which for k > m fills up with zeros and speaks of one solution;
        Lemma 1 of the proof needs k = rank(A-bar), which Assumption 3 gives for k = m and which fails for k > m. The
        dimensional scaling of Definition 1 is then 1: a rotation that permutes scales nothing.

    Args:
        model: sources and views.
        num_features: k >= 1; None is the number of sources.

    Raises:
        UsageError: fewer than one feature.

    >>> model = LatentModel(torch.tensor([0.5, 0.5]), torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))
    >>> identifiability(model).is_unique, identifiability(model, 3).is_unique
    (True, False)
    """
    k = model.num_sources if num_features is None else num_features
    check_num_features(k)
    view_M = unique_views(model)
    # A-bar = D^-1/2 V^T diag(P(c)) V D^-1/2 has the rank of V, whose singular values are not squared
    rank = int(torch.linalg.matrix_rank(model.views_MX))
    is_unique, reason = _uniqueness(k, rank, view_M)
    return Identifiability(is_unique, view_M, rank, reason)


@dataclass(frozen=True)
class Match:
    """The order, and the scales, of one set of dimensions that come closest to another.

    Attributes:
        order_K: dimension of the second set that goes with each of the first.
        scale_K: factor by which it must be multiplied; ones where scales were not free.
        error: largest difference that is left, over the largest value of the first set.
    """

    order_K: Tensor
    scale_K: Tensor
    error: float


def match_features(first_XK: Tensor, second_XK: Tensor, *, scaled: bool = False) -> Match:
    r"""Bring the dimensions of one set of features into the order of another.

    .. math:: \min_{P} \sum_k \|f_k - s_k g_{P(k)}\|^2

    Source: ncl2024, Definition 1.

    Args:
        first_XK: f, one row per view.
        second_XK: g, as many dimensions.
        scaled: whether each dimension of g may be scaled by a factor, as Definition 1 allows; a factor of 0 drops it.

    Raises:
        UsageError: shapes that differ.

    >>> match = match_features(torch.eye(2), torch.eye(2).flip(1))
    >>> match.order_K.tolist(), match.error
    ([1, 0], 0.0)
    """
    if first_XK.shape != second_XK.shape or first_XK.ndim != 2:
        raise UsageError(
            f"features must have one shape (x, k), got {tuple(first_XK.shape)} and {tuple(second_XK.shape)}"
        )
    first_XK, second_XK = first_XK.double(), second_XK.double()
    product_KK = first_XK.T @ second_XK
    length_K = second_XK.square().sum(dim=0)
    # least squares for each pair of dimensions; a dimension of zeros is given scale 0
    scale_KK = product_KK / torch.where(length_K > 0, length_K, 1.0) if scaled else torch.ones_like(product_KK)
    own_K1 = first_XK.square().sum(dim=0)[:, None]
    # |f_k - s g_l|^2 for all pairs, whose best assignment is P
    cost_KK = own_K1 - 2 * scale_KK * product_KK + scale_KK.square() * length_K
    rows, columns = linear_sum_assignment(cost_KK.numpy())
    order_K, scale_K = torch.from_numpy(np.asarray(columns)), scale_KK[rows, columns]
    left_XK = first_XK - scale_K * second_XK[:, order_K]
    largest = float(first_XK.abs().max())
    return Match(order_K, scale_K, float(left_XK.abs().max()) / (largest or 1.0))


def _uniqueness(num_features: int, rank: int, view_M: Tensor) -> tuple[bool | None, str]:
    """Tell whether the features are unique (None if it is unknown), and why."""
    m = len(view_M)
    missing = (view_M < 0).nonzero().flatten().tolist()
    # cos(t) phi_c and sin(t) phi_c for phi_c: no score changes, both are non-negative
    if num_features > m:
        return False, f"not unique: {num_features} features for {m} sources; any dimension may be split in two"
    if num_features < m:
        return None, f"unknown: {num_features} features cannot hold {m} sources, and no theorem covers fewer"
    if missing:
        return None, f"unknown: sources {missing} have no view of their own (Assumption 3), rank {rank} of {m}"
    return True, f"unique up to order: {m} features, and every source has a view of its own (Theorem 5)"


@dataclass(frozen=True)
class NonNegativeAnswer:
    """Non-negative features with their error and its bound, and a certificate if both meet.

    Attributes:
        features: the features, their error and the bound.
        is_certified: the error is within the tolerance of the bound, so no features of that number do better.
        num_starts: starts that were used.
        status: one sentence.
    """

    features: Factorisation
    is_certified: bool
    num_starts: int
    status: str

    def __str__(self) -> str:
        return self.status


def nonnegative_features(
    pairs: Cooccurrence, num_features: int, *, tolerance: float = 1e-12, num_starts: int = 8, seed: int = 0
) -> NonNegativeAnswer:
    r"""Find features without negative entries that minimise the non-negative spectral loss.

    .. math:: \min_{F, G \ge 0} \|\bar A - F G^\top\|^2, \qquad G = F \text{ for one kind of views}

    Each start turns the best signed features U towards the non-negative ones,

    .. math:: T \leftarrow \operatorname{polar}(U^\top \max(0, U T)),

    and finishes with bounded quasi-Newton descent on the error itself. The search stops at the first answer whose gap
    is at most ``tolerance`` of the squared norm of A-bar.

    Source: ncl2024, Eq. 4 and 13; the rotation is huang2014's algorithm for the symmetric problem.

    Args:
        pairs: co-occurrence of the views.
        num_features: k >= 1.
        tolerance: largest gap, over :math:`\|\bar A\|^2`, that counts as none; > 0.
        num_starts: starts at most, >= 1.
        seed: of the random rotations.

    Raises:
        UsageError: a size, tolerance or number of starts out of range.

    >>> pairs = Cooccurrence(torch.eye(2).double() / 2, torch.full((2,), 0.5), torch.full((2,), 0.5), True)
    >>> answer = nonnegative_features(pairs, 2)
    >>> answer.is_certified, round(answer.features.loss, 9)
    (True, -2.0)
    """
    check_num_features(num_features)
    check_positive(tolerance, "tolerance", hint="1e-12 of the squared norm is common")
    if num_starts < 1:
        raise UsageError(f"num_starts must be >= 1, got {num_starts}; 8 is common")
    generator = torch.Generator().manual_seed(seed)
    limit = tolerance * float(pairs.normalised.square().sum())
    best, used = _descend(pairs, _draw_start(pairs, num_features, generator)), 1
    # the gap is to signed features: 0 certifies a global optimum, and further starts could only match it
    while best.gap > limit and used < num_starts:
        candidate, used = _descend(pairs, _draw_start(pairs, num_features, generator)), used + 1
        best = min(best, candidate, key=lambda answer: answer.error)
    return NonNegativeAnswer(best, best.gap <= limit, used, _certificate_sentence(best, limit, used))


def _draw_start(pairs: Cooccurrence, num_features: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return F and G: the best signed features, turned until little of them is negative, with that part cut off."""
    spectral = spectral_features(pairs, num_features)
    left_XK = pairs.first_X.sqrt()[:, None] * spectral.first_XK
    right_YK = pairs.second_Y.sqrt()[:, None] * spectral.second_YK
    # one rotation for both encoders: F T (G T)^T = F G^T, so that turning costs no error
    both_ZK = left_XK if pairs.is_symmetric else torch.cat([left_XK, right_YK])
    random_KK = torch.randn(num_features, num_features, generator=generator, dtype=torch.float64)
    # a random rotation: each start leads to a local optimum of its own
    turn_KK = torch.linalg.qr(random_KK).Q
    for _ in range(TURNS):
        # huang2014: fit max(0, U T) by a rotation of U, in closed form (Procrustes)
        left_KK, _, right_KK = torch.linalg.svd(both_ZK.T @ (both_ZK @ turn_KK).clamp(min=0.0))
        turned_KK = left_KK @ right_KK  # the rotation nearest to it
        change = float((turned_KK - turn_KK).abs().max())
        turn_KK = turned_KK
        # only a start: the descent finishes what a few more turns would bring
        if change < 1e-10:
            break
    cut = 1e-6  # no entry begins at 0, where its gradient may vanish
    return (left_XK @ turn_KK).clamp(min=cut), (right_YK @ turn_KK).clamp(min=cut)


def _descend(pairs: Cooccurrence, start: tuple[Tensor, Tensor]) -> Factorisation:
    """Minimise the error over non-negative F and G from a start."""
    target_XY = pairs.normalised.numpy()
    left_XK, right_YK = (part.numpy() for part in start)
    size, shape = left_XK.size, left_XK.shape
    is_one = pairs.is_symmetric

    def error_and_slope(flat: Vector) -> tuple[float, Vector]:
        f_XK = flat[:size].reshape(shape)
        g_YK = f_XK if is_one else flat[size:].reshape(right_YK.shape)
        rest_XY = f_XK @ g_YK.T - target_XY
        # of |F G^T - A|^2 for F and for G
        slopes = [2 * rest_XY @ g_YK, 2 * rest_XY.T @ f_XK]
        flat_slope = (slopes[0] + slopes[1]).ravel() if is_one else np.concatenate([s.ravel() for s in slopes])
        return float((rest_XY**2).sum()), flat_slope

    flat = left_XK.ravel() if is_one else np.concatenate([left_XK.ravel(), right_YK.ravel()])
    # ftol 0: by default a decrease of 2e-9 ends the descent, far above what the certificate asks for
    options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 0.0, "gtol": 1e-14, "maxcor": 30}
    # bounds instead of a projection after the fact: entries may end at exactly 0
    solution = minimize(
        error_and_slope, flat, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(flat), options=options
    )
    # back from F to f
    first_XK = torch.from_numpy(solution.x[:size].reshape(shape)) / pairs.first_X.sqrt()[:, None]
    if is_one:
        return evaluate_features(pairs, first_XK)
    second_YK = torch.from_numpy(solution.x[size:].reshape(right_YK.shape)) / pairs.second_Y.sqrt()[:, None]
    return evaluate_features(pairs, first_XK, second_YK)


def _certificate_sentence(best: Factorisation, limit: float, used: int) -> str:
    """Say whether the gap certifies a global optimum."""
    if best.gap <= limit:
        return f"global optimum: error {best.error:.3g} is within {limit:.1e} of the bound {best.lower_bound:.6g}"
    return (
        f"no certificate: error {best.error:.6g}, signed features could reach {best.lower_bound:.6g}; "
        f"best of {used} starts"
    )
