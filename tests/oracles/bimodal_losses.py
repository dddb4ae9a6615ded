"""Losses between two kinds of data, from radford2021 and ncl2024, in Python loops. Imports no tensor code."""

import cmath

from oracles.family_losses import log_of_sum
from oracles.whole_batch_losses import Number, Rows, direction, dot, relu, spectral_contrastive


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
