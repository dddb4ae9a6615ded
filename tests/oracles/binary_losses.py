"""Losses that judge each pair by itself, from their papers: loops over Python numbers. Imports no tensor code.

z0 and z1 are lists of n rows of d numbers, complex ones too, so that gradients can be taken by complex steps.
"""

import cmath

from oracles.family_losses import log_of_sum
from oracles.whole_batch_losses import Number, Rows, direction, dot


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
