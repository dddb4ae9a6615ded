"""alphacl2022, Theorem 1, Theorem 2 and section 6 in plain Python floats: rules, their objectives, the energy.

A row holds the costs c_j = d_ij^2 of one anchor's negatives. Imports no tensor code.
"""

import cmath
import math
from collections.abc import Callable, Sequence

from oracles.family_losses import Number, complex_step, negatives_of, rows_of

Row = list[float]


# --- rules, each from the stationarity of its objective


def entropy(costs: Row, own: float, tau: float, epsilon: float = 0.0) -> Row:
    """Eq. 25: exp(-c / tau) / (epsilon exp(-own / tau) + sum of exp(-c / tau))."""
    top = max([-c for c in costs] if epsilon == 0 else [-own, *(-c for c in costs)])
    terms = [math.exp((-c - top) / tau) for c in costs]
    total = math.fsum(terms) + (epsilon * math.exp((-own - top) / tau) if epsilon > 0 else 0.0)
    return [term / total for term in terms]


def inverse_power(costs: Row, tau: float, gamma: float) -> Row:
    """(tau / (c + mu))^(1 / gamma) with mu + min(c) = tau * e^t by bisection of the sum in t."""
    least = min(costs)

    def weights(t: float) -> Row:
        return [math.exp(-math.log((c - least) / tau + math.exp(t)) / gamma) for c in costs]

    low, high = 0.0, gamma * math.log(len(costs))
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.fsum(weights(middle)) > 1 else (low, middle)
    return weights(0.5 * (low + high))


def square(costs: Row, tau: float) -> Row:
    """(mu - c)_+ / tau: of the water levels over the k least costs, the one that covers just these."""
    ordered = sorted(costs)
    for k in range(1, len(costs) + 1):
        mu = (tau + math.fsum(ordered[:k])) / k
        if mu > ordered[k - 1] and (k == len(costs) or mu <= ordered[k]):
            return [max(mu - c, 0.0) / tau for c in costs]
    raise AssertionError("no level fits")


def direct(costs: Row, tau: float, p: float, epsilon: float = 0.0) -> Row:
    """Eq. 12, with the released code's epsilon times the number of negatives in the denominator."""
    powers = [math.sqrt(c) ** p for c in costs]
    shift = 0.0 if epsilon > 0 else min(powers)  # a constant in the denominator leaves nothing to shift by
    terms = [math.exp((shift - x) / tau) for x in powers]
    total = math.fsum(terms) + epsilon * len(costs)
    return [term / total for term in terms]


def direct_unnormalised(costs: Row, tau: float, p: float) -> Row:
    """Eq. 43."""
    return [math.exp(-(math.sqrt(c) ** p) / tau) for c in costs]


def fixed_inverse(costs: Row, tau: float, power: float, p: float) -> Row:
    """Released code, loss type "inverse"."""
    terms = [(math.sqrt(c) ** p + tau) ** -power for c in costs]
    return [term / math.fsum(terms) for term in terms]


# --- objectives (what a rule minimises) by their terms (value of one weight, its slope)


Term = Callable[[float, float], float]  # (weight, cost) -> number


def x_log_x(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0


def entropy_terms(tau: float) -> tuple[Term, Term]:
    return lambda a, c: a * c + tau * x_log_x(a), lambda a, c: c + tau * (math.log(a) + 1)


def inverse_power_terms(tau: float, gamma: float) -> tuple[Term, Term]:
    def value(a: float, c: float) -> float:
        regulariser = math.log(a) if gamma == 1 else a ** (1 - gamma) / (1 - gamma)
        return a * c - tau * regulariser

    return value, lambda a, c: c - tau * a**-gamma


def square_terms(tau: float) -> tuple[Term, Term]:
    return lambda a, c: a * c + 0.5 * tau * a * a, lambda a, c: c + tau * a


def direct_terms(tau: float, p: float) -> tuple[Term, Term]:
    value, slope = entropy_terms(tau)
    return lambda a, c: value(a, math.sqrt(c) ** p), lambda a, c: slope(a, math.sqrt(c) ** p)


def fixed_inverse_terms(tau: float, power: float, p: float) -> tuple[Term, Term]:
    value, slope = entropy_terms(1.0)

    def price(c: float) -> float:
        return power * math.log(math.sqrt(c) ** p + tau)

    return lambda a, c: value(a, price(c)), lambda a, c: slope(a, price(c))


# --- the energy


def half_square(a: Sequence[Number], b: Sequence[Number], normalize: bool) -> Number:
    """d^2: 1 - cosine, with cosine 0 to a zero vector, or |a - b|^2 / 2. Analytic."""
    if not normalize:
        return sum((x - y) * (x - y) for x, y in zip(a, b, strict=True)) / 2
    norms = [cmath.sqrt(sum(x * x for x in z)) for z in (a, b)]
    if 0 in norms:
        return 1.0
    return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / (norms[0] * norms[1])


def costs_of(vectors: Sequence[Sequence[Number]], i: int, kind: str, normalize: bool) -> tuple[list[Number], Number]:
    """d_ij^2 for each negative, and d_i^2."""
    n = len(vectors) // 2
    row = [half_square(vectors[i], vectors[j], normalize) for j in negatives_of(i, n, kind)]
    return row, half_square(vectors[i], vectors[(i + n) % (2 * n)], normalize)


def importance(vectors: list[Row], rule: Callable[[Row, float], Row], kind: str, normalize: bool) -> list[Row]:
    """Dense alpha."""
    size = len(vectors)
    alpha = [[0.0] * size for _ in range(size)]
    for i in range(size):
        costs, own = costs_of(vectors, i, kind, normalize)
        weights = rule([c.real for c in costs], own.real)
        for j, weight in zip(negatives_of(i, size // 2, kind), weights, strict=True):
            alpha[i][j] = weight
    return alpha


def energy(vectors: list[list[Number]], alpha: list[Row], kind: str, normalize: bool) -> Number:
    """Mean over the 2n anchors of sum_j alpha_ij (d_i^2 - d_ij^2), alpha as given."""
    total: Number = 0.0
    for i in range(len(vectors)):
        costs, own = costs_of(vectors, i, kind, normalize)
        columns = negatives_of(i, len(vectors) // 2, kind)
        total += sum(alpha[i][j] * (own - cost) for j, cost in zip(columns, costs, strict=True))
    return total / len(vectors)


def energy_gradient(vectors: list[Row], alpha: list[Row], kind: str, normalize: bool) -> list[Row]:
    """By complex steps."""
    size = len(vectors[0])

    def of_flat(flat: list[Number]) -> Number:
        return energy(rows_of(flat, size), alpha, kind, normalize)

    return rows_of(complex_step(of_flat, [x for row in vectors for x in row]), size)
