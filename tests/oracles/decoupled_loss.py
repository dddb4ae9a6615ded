"""Weighted decoupled contrastive learning from yeh2022, in Python loops. Imports no tensor code."""

import cmath

from oracles.family_losses import log_of_sum, negatives_of
from oracles.whole_batch_losses import Number, Rows, direction, dot


def dclw(z0: Rows, z1: Rows, tau: float, sigma: float, weights_move: bool) -> Number:
    """Eq. 6, averaged over images and views, with weights 2 - exp(cos / sigma) / mean over samples of the same."""
    n = len(z0)
    vectors = [direction(z) for z in [*z0, *z1]]
    agreement = [dot(vectors[i], vectors[i + n]) for i in range(n)]
    seen = agreement if weights_move else [complex(a).real for a in agreement]  # a complex step sees no held weight
    mean = sum(cmath.exp(a / sigma) for a in seen) / n
    weights = [2 - cmath.exp(a / sigma) / mean for a in seen]
    total: Number = 0.0
    for i, anchor in enumerate(vectors):
        others = [dot(anchor, vectors[j]) / tau for j in negatives_of(i, n, "two-view")]
        total += log_of_sum(others) - weights[i % n] * agreement[i % n] / tau
    return total / (2 * n)
