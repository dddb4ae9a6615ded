"""Co-occurrence, factorisation and the Bayes classifier of ncl2024: loops over numbers. Imports no tensor code.

A model is a list of P(c) and, per source, a list of P(x|c). Features are lists of rows, one per view.
"""

import math
from itertools import product

Vector = list[float]
Matrix = list[Vector]


def joint(prior: Vector, first: Matrix, second: Matrix) -> Matrix:
    """P(x, y) = E_c P(x|c) P(y|c): Assumption 1 and Appendix C."""
    return [
        [sum(p * row[x] * other[y] for p, row, other in zip(prior, first, second, strict=True)) for y in views(second)]
        for x in views(first)
    ]


def marginal(prior: Vector, emission: Matrix) -> Vector:
    """P(x) = E_c P(x|c)."""
    return [sum(p * row[x] for p, row in zip(prior, emission, strict=True)) for x in views(emission)]


def posterior(prior: Vector, emission: Matrix) -> Matrix:
    """P(c|x) by Bayes' rule, a row per view."""
    px = marginal(prior, emission)
    return [[p * row[x] / px[x] for p, row in zip(prior, emission, strict=True)] for x in views(emission)]


def views(emission: Matrix) -> range:
    """Numbers of the views."""
    return range(len(emission[0]))


def dot(a: Vector, b: Vector) -> float:
    """Inner product."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def spectral_loss(pxy: Matrix, px: Vector, py: Vector, f: Matrix, g: Matrix) -> float:
    """Eq. 2 and 11: -2 E f(x).g(x+) + E (f(x).g(x-))^2."""
    pairs = list(product(range(len(px)), range(len(py))))
    positive = math.fsum(pxy[x][y] * dot(f[x], g[y]) for x, y in pairs)
    negative = math.fsum(px[x] * py[y] * dot(f[x], g[y]) ** 2 for x, y in pairs)
    return -2 * positive + negative


def factorisation_error(pxy: Matrix, px: Vector, py: Vector, f: Matrix, g: Matrix) -> float:
    """Eq. 3, 4 and 13: the sum of squares of B.1's first line."""
    return math.fsum(
        (pxy[x][y] / math.sqrt(px[x] * py[y]) - math.sqrt(px[x]) * math.sqrt(py[y]) * dot(f[x], g[y])) ** 2
        for x in range(len(px))
        for y in range(len(py))
    )


def constant(pxy: Matrix, px: Vector, py: Vector) -> float:
    """B.1: the term called const."""
    return math.fsum(pxy[x][y] ** 2 / (px[x] * py[y]) for x in range(len(px)) for y in range(len(py)))


def closed_form(prior: Vector, emission: Matrix) -> Matrix:
    """Eq. 8."""
    return [[p_c / math.sqrt(p) for p_c, p in zip(row, prior, strict=True)] for row in posterior(prior, emission)]


def least_error_of_any_classifier(prior: Vector, emission: Matrix, labels: list[int]) -> float:
    """Try every map from views to labels."""
    px, pcx = marginal(prior, emission), posterior(prior, emission)
    num_labels = max(labels) + 1
    errors = []
    for guess in product(range(num_labels), repeat=len(px)):
        right = [sum(p for p, y in zip(pcx[x], labels, strict=True) if y == guess[x]) for x in range(len(px))]
        errors.append(1 - dot(px, right))
    return min(errors)
