"""Losses of pairs outside the family, from their papers: loops over Python numbers. Imports no tensor code.

z0 and z1 are lists of n rows of d numbers, complex ones too, so that gradients can be taken by complex steps.
"""

import cmath

from oracles.family_losses import log_of_sum, negatives_of
from oracles.whole_batch_losses import Number, Rows, direction, dot, relu, spectral_contrastive


def mio(z0: Rows, z1: Rows, version: int, tau: float, normalize: bool) -> Number:
    """mio2021, Eq. 4, 12 and 18: 2N positives, and 2N (2N - 2) negatives in which neither self nor positive occurs."""
    num_samples = len(z0)
    vectors = [direction(z) if normalize else z for z in [*z0, *z1]]
    positives: Number = 0.0
    negatives: Number = 0.0
    for n, anchor in enumerate(vectors):
        partner = (n + num_samples) % (2 * num_samples)
        agreement = dot(anchor, vectors[partner]) / tau
        positives += -log_sigmoid(agreement) if version == 1 else -agreement
        for m, other in enumerate(vectors):
            if m not in (n, partner):
                similarity = dot(anchor, other) / tau
                negatives += cmath.exp(similarity) if version == 3 else -log_sigmoid(-similarity)
    num_positives = 2 * num_samples
    return positives / num_positives + negatives / (num_positives * (num_positives - 2))


def sigmoid_pair(z0: Rows, z1: Rows, logs: list[Number], normalize: bool) -> Number:
    """zhai2023, Algorithm 1: minus the log-sigmoid of all n x n logits, signed, summed, over n; logs = [log t, b]."""
    n = len(z0)
    if normalize:
        z0, z1 = ([direction(z) for z in rows] for rows in (z0, z1))
    scale, bias = cmath.exp(logs[0]), logs[1]
    total: Number = 0.0
    for i in range(n):
        for j in range(n):
            sign = 1 if i == j else -1
            total -= log_sigmoid(sign * (scale * dot(z0[i], z1[j]) + bias))
    return total / n


def log_sigmoid(s: Number) -> Number:
    """log(1 / (1 + e^-s))."""
    return -log_of_sum([0.0, -s])


def clip(z0: Rows, z1: Rows, log_scale: Number, nonnegative: bool, normalize: bool) -> Number:
    """radford2021, Fig. 3: cross-entropy along rows and columns of the n x n logits, averaged."""
    n = len(z0)
    x, y = (prepared(rows, nonnegative, normalize) for rows in (z0, z1))
    logits = [[cmath.exp(log_scale) * dot(a, b) for b in y] for a in x]
    images = sum(log_of_sum(row) - row[i] for i, row in enumerate(logits)) / n
    texts = sum(log_of_sum([row[j] for row in logits]) - logits[j][j] for j in range(n)) / n
    return (images + texts) / 2


def multimodal_spectral(z0: Rows, z1: Rows, nonnegative: bool, mu: float | None) -> Number:
    """ncl2024, Eq. 11 and 12, after the ball of radius sqrt(mu)."""
    x, y = (prepared(rows, nonnegative, normalize=False) for rows in (z0, z1))
    return spectral_contrastive(x, y, mu)


def prepared(rows: Rows, nonnegative: bool, normalize: bool) -> Rows:
    rows = [[relu(x) for x in row] for row in rows] if nonnegative else rows
    return [direction(row) for row in rows] if normalize else rows


def dclw(z0: Rows, z1: Rows, tau: float, sigma: float, weights_move: bool) -> Number:
    """yeh2022, Eq. 6, mean over images and views, with weights 2 - exp(cos / sigma) / mean over samples of the same."""
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
