r"""Non-negative factorisation of a co-occurrence matrix, with a bound that says how good an answer is.

The problem is not convex, so every answer carries the least error of signed features, ``least_error``. Where the two
meet, which Assumption 1 guarantees can be had with as many features as sources, the answer is a global optimum.
"""

# X views, Y views of the second kind, K features

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from counterpoint.papers.ncl2024.cooccurrence import Cooccurrence
from counterpoint.papers.ncl2024.factorisation import (
    Factorisation,
    check_num_features,
    evaluate_features,
    spectral_features,
)

TURNS = 100  # of the rotation that looks for non-negative features, per start
STEPS = 3000  # of the bounded descent that finishes, per start

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class NonNegativeAnswer:
    """Non-negative features and what is known of them.

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
    r"""Features without negative entries that minimise the non-negative spectral loss.

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
    best, used = _descend(pairs, _start(pairs, num_features, generator)), 1
    while best.gap > limit and used < num_starts:
        found, used = _descend(pairs, _start(pairs, num_features, generator)), used + 1
        best = min(best, found, key=lambda answer: answer.error)
    return NonNegativeAnswer(best, best.gap <= limit, used, _status(best, limit, used))


def _start(pairs: Cooccurrence, num_features: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Scaled features F and G near the best signed ones, turned until little of them is negative, and then cut off."""
    spectral = spectral_features(pairs, num_features)
    left_XK = pairs.first_X.sqrt()[:, None] * spectral.first_XK
    right_YK = pairs.second_Y.sqrt()[:, None] * spectral.second_YK
    both_ZK = left_XK if pairs.is_symmetric else torch.cat([left_XK, right_YK])
    random_KK = torch.randn(num_features, num_features, generator=generator, dtype=torch.float64)
    turn_KK = torch.linalg.qr(random_KK).Q
    for _ in range(TURNS):
        turned_KK = _polar(both_ZK.T @ (both_ZK @ turn_KK).clamp(min=0.0))
        change = float((turned_KK - turn_KK).abs().max())
        turn_KK = turned_KK
        if change < 1e-10:
            break
    cut = 1e-6  # no entry begins at 0, where its gradient may vanish
    return (left_XK @ turn_KK).clamp(min=cut), (right_YK @ turn_KK).clamp(min=cut)


def _polar(a_KK: Tensor) -> Tensor:
    """The rotation nearest to a matrix."""
    left_KK, _, right_KK = torch.linalg.svd(a_KK)
    return left_KK @ right_KK


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
        slopes = [2 * rest_XY @ g_YK, 2 * rest_XY.T @ f_XK]
        flat_slope = (slopes[0] + slopes[1]).ravel() if is_one else np.concatenate([s.ravel() for s in slopes])
        return float((rest_XY**2).sum()), flat_slope

    flat = left_XK.ravel() if is_one else np.concatenate([left_XK.ravel(), right_YK.ravel()])
    options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 0.0, "gtol": 1e-14, "maxcor": 30}
    found = minimize(
        error_and_slope, flat, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(flat), options=options
    )
    first_XK = torch.from_numpy(found.x[:size].reshape(shape)) / pairs.first_X.sqrt()[:, None]
    if is_one:
        return evaluate_features(pairs, first_XK)
    second_YK = torch.from_numpy(found.x[size:].reshape(right_YK.shape)) / pairs.second_Y.sqrt()[:, None]
    return evaluate_features(pairs, first_XK, second_YK)


def _status(best: Factorisation, limit: float, used: int) -> str:
    """What the gap says."""
    if best.gap <= limit:
        return f"global optimum: error {best.error:.3g} is within {limit:.1e} of the bound {best.lower_bound:.6g}"
    return (
        f"no certificate: error {best.error:.6g}, signed features could reach {best.lower_bound:.6g}; "
        f"best of {used} starts"
    )
