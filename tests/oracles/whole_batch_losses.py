"""Losses without pairs, and the spectral one over all pairs, from their papers: loops over Python numbers.

z0 and z1 are lists of n rows of d numbers. All are written for complex numbers too, so that ``gradient`` can take
complex steps; kinks (ReLU, absolute value, the ball) are decided by real parts. Imports no tensor code.
"""

import cmath
import math
import statistics
from collections.abc import Callable, Sequence

from oracles.family_losses import Number, complex_step, dot, log_of_sum, on_the_sphere, rows_of

Rows = list[list[Number]]


def columns(z: Rows) -> Rows:
    """Features as lists over samples, each without its mean."""
    centred = []
    for column in zip(*z, strict=True):
        mean = sum(column) / len(column)
        centred.append([x - mean for x in column])
    return centred


def relu(x: Number) -> Number:
    return x if x.real > 0 else 0.0


def direction(z: list[Number]) -> list[Number]:
    """z / |z|; zero stays zero."""
    return list(on_the_sphere(z)) if any(x != 0 for x in z) else z


def barlow_twins(z0: Rows, z1: Rows, weight: float, epsilon: float) -> Number:
    """zbontar2021, Eq. 1 and 2, with epsilon beside each variance as batch normalisation has it."""
    n = len(z0)

    def standardized(z: Rows) -> Rows:
        return [[x / cmath.sqrt(dot(c, c) / n + epsilon) for x in c] for c in columns(z)]

    first, second = standardized(z0), standardized(z1)
    loss: Number = 0.0
    for p, a in enumerate(first):
        for q, b in enumerate(second):
            correlation = dot(a, b) / n
            loss += (1 - correlation) ** 2 if p == q else weight * correlation**2
    return loss


def vicreg(z0: Rows, z1: Rows, weights: tuple[float, float, float], epsilon: float) -> Number:
    """bardes2022, Eq. 1 to 6; distance a mean over features, variance terms halved, as in the authors' code."""
    n, d = len(z0), len(z0[0])

    def variance(z: Rows) -> Number:
        return sum(relu(1 - cmath.sqrt(dot(c, c) / (n - 1) + epsilon)) for c in columns(z)) / d

    def covariance(z: Rows) -> Number:
        c = columns(z)
        return sum((dot(c[p], c[q]) / (n - 1)) ** 2 for p in range(d) for q in range(d) if p != q) / d

    distance = sum((x - y) ** 2 for a, b in zip(z0, z1, strict=True) for x, y in zip(a, b, strict=True)) / (n * d)
    spread = (variance(z0) + variance(z1)) / 2
    return weights[0] * distance + weights[1] * spread + weights[2] * (covariance(z0) + covariance(z1))


def negative_cosine(z0: Rows, z1: Rows) -> Number:
    """chen2021, Eq. 1."""
    return -sum(dot(direction(a), direction(b)) for a, b in zip(z0, z1, strict=True)) / len(z0)


def squared_regression(z0: Rows, z1: Rows) -> Number:
    """grill2020, Eq. 2."""
    total: Number = 0.0
    for a, b in zip(z0, z1, strict=True):
        total += sum((x - y) ** 2 for x, y in zip(direction(a), direction(b), strict=True))
    return total / len(z0)


def nonnegative_cross_entropy(z0: Rows, z1: Rows, class_weights: Rows, labels: list[int]) -> Number:
    """ncl2024, section 6, with the minus sign; mean over both views."""
    total: Number = 0.0
    positive_weights = [[relu(x) for x in w] for w in class_weights]
    for z, label in zip([*z0, *z1], [*labels, *labels], strict=True):
        logits = [dot([relu(x) for x in z], w) + 0j for w in positive_weights]
        total -= logits[label] - log_of_sum(logits)
    return total / (2 * len(z0))


def spectral_contrastive(z0: Rows, z1: Rows, mu: float | None) -> Number:
    """ncl2024, Eq. 2 over every pair of different samples; vectors first moved into the ball of radius sqrt(mu)."""
    if mu is not None:
        z0, z1 = ([into_ball(z, mu) for z in rows] for rows in (z0, z1))
    n = len(z0)
    own = sum(dot(a, b) for a, b in zip(z0, z1, strict=True))
    others = sum(dot(z0[i], z1[j]) ** 2 for i in range(n) for j in range(n) if i != j)
    return -2 * own / n + others / (n * (n - 1))


def into_ball(z: list[Number], mu: float) -> list[Number]:
    norm = cmath.sqrt(dot(z, z))
    return [x * mu**0.5 / norm for x in z] if norm.real > mu**0.5 else z


def mean_l1(z0: Rows, z1: Rows, normalize: bool) -> Number:
    """ncl2024, Eq. 14: mean over both views of the sum of absolute values."""
    rows = [direction(z) if normalize else z for z in [*z0, *z1]]
    return sum(x if x.real > 0 else -x for z in rows for x in z) / len(rows)


def gradient(
    loss: Callable[[Rows, Rows], Number], z0: list[list[float]], z1: list[list[float]]
) -> list[list[list[float]]]:
    """Gradients of ``loss(z0, z1)`` for both."""
    n, d = len(z0), len(z0[0])

    def of_flat(flat: list[Number]) -> Number:
        rows = rows_of(flat, d)
        return complex(loss(rows[:n], rows[n:]))

    rows = rows_of(complex_step(of_flat, [x for row in [*z0, *z1] for x in row]), d)
    return [rows[:n], rows[n:]]


def slices(z: Rows, directions: list[list[float]]) -> Rows:
    """One list of projections for each direction."""
    return [[dot(row, list[Number](a)) for row in z] for a in directions]


def epps_pulley_statistic(p: list[Number]) -> Number:
    """balestriero2025: n times the integral over [-5, 5], by the trapezoid rule on all 17 knots."""
    n, total = len(p), 0.0 + 0j
    knots = [-5 + 10 * k / 16 for k in range(17)]
    for k, t in enumerate(knots):
        normal = math.exp(-t * t / 2)
        # |phi - normal|^2 by real and imaginary part, which stay analytic in p.
        real = sum(cmath.cos(t * x) for x in p) / n - normal
        imaginary = sum(cmath.sin(t * x) for x in p) / n
        total += (0.5 if k in (0, 16) else 1.0) * 10 / 16 * (real**2 + imaginary**2) * normal
    return n * total


def agreement(views: Sequence[Rows]) -> Number:
    """balestriero2025: mean square between each view and the mean of the global ones, the first two."""
    centre = [[(x + y) / 2 for x, y in zip(a, b, strict=True)] for a, b in zip(*views[:2], strict=True)]
    pairs = [(x, c) for z in views for a, m in zip(z, centre, strict=True) for x, c in zip(a, m, strict=True)]
    return sum((x - c) ** 2 for x, c in pairs) / len(pairs)


def sigreg(z0: Rows, z1: Rows, directions: list[list[float]], weight: float, local: Sequence[Rows] = ()) -> Number:
    """balestriero2025: distance of each view to the mean of the global ones, and the statistic of every slice."""
    views = (z0, z1, *local)
    values = [epps_pulley_statistic(p) for z in views for p in slices(z, directions)]
    return (1 - weight) * agreement(views) + weight * sum(values) / len(values)


def sorted_mean_square(p: list[Number], target: list[float]) -> Number:
    """One-dimensional squared Wasserstein distance of equally many points."""
    ordered = sorted(p, key=lambda x: complex(x).real)
    return sum((x - q) ** 2 for x, q in zip(ordered, sorted(target), strict=True)) / len(p)


def deviations(z: Rows, epsilon: float) -> list[Number]:
    return [cmath.sqrt(dot(c, c) / (len(z) - 1) + epsilon) for c in columns(z)]


def visreg(
    z0: Rows,
    z1: Rows,
    directions: list[list[float]],
    weights: tuple[float, float, float],
    epsilon: float,
    held: Sequence[list[float]],
    *,
    local: Sequence[Rows] = (),
) -> Number:
    """wu2026: invariance, scale and shape; ``held`` are the deviations that divide, which have no derivative.

    |z - z'|^2 is four times the mean square distance to the centre, which takes further views.
    """
    n, d, views = len(z0), len(z0[0]), (z0, z1, *local)
    quantiles = [statistics.NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)]
    scale: Number = 0.0
    shape: Number = 0.0
    for z, dividing in zip(views, held, strict=True):
        scale += sum((1 - s) ** 2 for s in deviations(z, epsilon)) / d / len(views)
        divided = [[x / s for x in column] for column, s in zip(columns(z), dividing, strict=True)]
        for p in slices([list(row) for row in zip(*divided, strict=True)], directions):
            shape += sorted_mean_square(p, quantiles) / len(directions) / len(views)
    return weights[0] * 4 * agreement(views) + weights[1] * scale + weights[2] * shape


def rdmreg(
    z0: Rows,
    z1: Rows,
    directions: list[list[float]],
    target: list[list[float]],
    weights: tuple[float, float],
    local: Sequence[Rows] = (),
) -> Number:
    """kuang2026: invariance, and sorted slices of each view against those of the target's draws."""
    targets = [[complex(x).real for x in p] for p in slices([list[Number](row) for row in target], directions)]
    distance: Number = 0.0
    views = (z0, z1, *local)
    for z in views:
        for p, t in zip(slices(z, directions), targets, strict=True):
            distance += sorted_mean_square(p, t) / len(directions) / len(views)
    return weights[0] * 4 * agreement(views) + weights[1] * distance
