"""Losses whose pairs depend on labels, and hard negatives, from their papers: loops over numbers. No tensor code.

z0 and z1 are lists of n rows of d numbers, complex ones too, so that gradients can be taken by complex steps. The 2n
vectors are numbered first view before second; ``classes`` holds one label per sample.
"""

import cmath
import math

from oracles.family_losses import gaps, log_of_sum, negatives_of
from oracles.whole_batch_losses import Number, Rows, direction, dot, into_ball


def similarities(z0: Rows, z1: Rows, tau: float, lengths: str) -> Rows:
    """<z_i, z_j> / tau of all 2n vectors, at the length asked for."""
    prepare = {"sphere": direction, "ball": lambda z: into_ball(z, 1.0), "none": lambda z: z}[lengths]
    vectors = [prepare(z) for z in [*z0, *z1]]
    return [[dot(a, b) / tau + 0j for b in vectors] for a in vectors]


def positives_of(i: int, classes: list[int]) -> list[int]:
    """P(i): the other vectors of the anchor's label."""
    labels = [*classes, *classes]
    return [p for p in range(len(labels)) if p != i and labels[p] == labels[i]]


def sup_con_out(z0: Rows, z1: Rows, classes: list[int], tau: float) -> Number:
    """khosla2020, Eq. 2, as a mean over anchors."""
    s = similarities(z0, z1, tau, "sphere")
    total: Number = 0.0
    for i, row in enumerate(s):
        log_denominator = log_of_sum([x for a, x in enumerate(row) if a != i])
        positives = positives_of(i, classes)
        total += -sum(row[p] - log_denominator for p in positives) / len(positives)
    return total / len(s)


def multi_positive(z0: Rows, z1: Rows, classes: list[int], tau: float) -> Number:
    """miech2020, Eq. 1, with the minus sign, as a mean over anchors; log(1 + N / P) keeps a tiny loss."""
    s = similarities(z0, z1, tau, "sphere")
    total: Number = 0.0
    for i, row in enumerate(s):
        positives = positives_of(i, classes)
        negatives = [j for j in range(len(s)) if j != i and j not in positives]
        gap = log_of_sum([row[j] for j in negatives]) - log_of_sum([row[p] for p in positives])
        total += softplus(gap)
    return total / len(s)


def repulsion(z0: Rows, z1: Rows, classes: list[int], tau: float) -> list[list[float]]:
    """Softmax over all others divided by tau, at vectors of other labels."""
    s = similarities(z0, z1, tau, "sphere")
    alpha = [[0.0] * len(s) for _ in s]
    for i, row in enumerate(s):
        log_denominator = log_of_sum([x for a, x in enumerate(row) if a != i])
        for j in range(len(s)):
            if j != i and j not in positives_of(i, classes):
                alpha[i][j] = cmath.exp(row[j] - log_denominator).real / tau
    return alpha


def generalized(z0: Rows, z1: Rows, classes: list[int], negatives: list[list[int]], tau: float, lengths: str) -> Number:
    """imbalanced2026, Eq. 20: negatives of each anchor are given; positives are all of its label, itself included."""
    s = similarities(z0, z1, tau, lengths)
    total: Number = 0.0
    for i, row in enumerate(s):
        positives = [i, *positives_of(i, classes)]
        inner: Number = 0.0
        for j in positives:
            inner += softplus(log_of_sum([row[q] - row[j] for q in negatives[i]]) - math.log(len(negatives[i])))
        total += inner / len(positives)
    return total / len(s)


def all_negatives(classes: list[int], supervised: bool) -> list[list[int]]:
    """Every admissible negative once: of other labels, or all vectors."""
    labels = [*classes, *classes]
    return [[q for q, y in enumerate(labels) if not supervised or y != own] for own in labels]


def exponents(z0: Rows, z1: Rows, tau: float, kind: str, normalize: bool) -> list[list[Number]]:
    """u_ij = (d_i^2 - d_ij^2) / tau for the negatives of each anchor; for unit vectors from cosines."""
    n = len(z0)
    if not normalize:
        return [[gap / tau for gap in gaps([*z0, *z1], i, kind)] for i in range(2 * n)]
    s = similarities(z0, z1, tau, "sphere")
    return [[row[j] - row[(i + n) % (2 * n)] for j in negatives_of(i, n, kind)] for i, row in enumerate(s)]


def hard_negatives(u: list[list[Number]], beta: float, epsilon: float) -> Number:
    """robinson2021, section 3, tau+ = 0: log(epsilon + K E_q[e^u]) with q proportional to e^(beta u)."""
    total: Number = 0.0
    for given in u:
        row = [x + 0j for x in given]
        log_weight = [beta * x - log_of_sum([beta * y for y in row]) for x in row]
        log_xi = math.log(len(row)) + log_of_sum([w + x for w, x in zip(log_weight, row, strict=True)])
        total += log_xi if epsilon == 0 else math.log(epsilon) + softplus(log_xi - math.log(epsilon))
    return total / len(u)


def softplus(x: Number) -> Number:
    """log(1 + e^x), exact in both tails: the series serves where e^x is below the precision of 1."""
    x = complex(x)
    if x.real > 0:
        return x + softplus(-x)
    e = cmath.exp(x)
    return e - e * e / 2 if abs(e) < 1e-9 else cmath.log(1 + e)
