"""InfoNCE from alphacl2022, Eq. 1, 2 and 4, in plain Python loops; gradients by complex steps. Imports no tensor code.

z0 and z1 are lists of n rows; the 2n vectors are numbered first view before second. A complex step needs no formula for
the gradient: f is analytic, so Im f(x + ih) / h is its derivative to machine precision for a tiny h.
"""

import cmath
import math
from collections.abc import Callable

Number = float | complex
Rows = list[list[float]]
STEP = 1e-30


def negatives_of(i: int, n: int, kind: str) -> list[int]:
    """N(i): which of the 2n vectors repel anchor i."""
    partner = (i + n) % (2 * n)
    others = [j for j in range(2 * n) if j not in (i, partner)]
    same_view = [j for j in others if (j < n) == (i < n)]
    return {"two-view": others, "same-view": same_view, "cross-view": [j for j in others if j not in same_view]}[kind]


def half_squared_distance(a: list[Number], b: list[Number]) -> Number:
    """d^2 = |a - b|^2 / 2, analytic (no conjugate)."""
    return sum((x - y) * (x - y) for x, y in zip(a, b, strict=True)) / 2


def on_the_sphere(z: list[Number]) -> list[Number]:
    """z / |z|."""
    norm = cmath.sqrt(sum(x * x for x in z))
    return [x / norm for x in z]


def gaps(vectors: list[list[Number]], i: int, kind: str) -> list[Number]:
    """d_i^2 - d_ij^2 for every negative j of anchor i."""
    n = len(vectors) // 2
    own = half_squared_distance(vectors[i], vectors[(i + n) % (2 * n)])
    return [own - half_squared_distance(vectors[i], vectors[j]) for j in negatives_of(i, n, kind)]


def log_of_sum(terms: list[Number]) -> Number:
    """Log of the sum of exp(terms), shifted by the largest real part."""
    top = max(term.real for term in terms)
    return top + cmath.log(sum(cmath.exp(term - top) for term in terms))


def info_nce(z0: Rows, z1: Rows, tau: float, epsilon: float, kind: str, normalize: bool) -> Number:
    """Mean over the 2n anchors of log(epsilon + sum_j exp((d_i^2 - d_ij^2) / tau)); Eq. 2 without the factor tau."""
    vectors = [on_the_sphere(z) if normalize else z for z in [*z0, *z1]]
    total: Number = 0.0
    for i in range(len(vectors)):
        terms = [gap / tau for gap in gaps(vectors, i, kind)]
        total += log_of_sum(terms if epsilon == 0 else [*terms, complex(math.log(epsilon))])
    return total / len(vectors)


def info_nce_gradient(z0: Rows, z1: Rows, tau: float, epsilon: float, kind: str, normalize: bool) -> tuple[Rows, Rows]:
    """Gradients for z0 and z1."""

    def loss(flat: list[Number]) -> Number:
        d = len(z0[0])
        rows = [flat[k : k + d] for k in range(0, len(flat), d)]
        return info_nce(rows[: len(z0)], rows[len(z0) :], tau, epsilon, kind, normalize)

    slopes = complex_step(loss, [x for row in [*z0, *z1] for x in row])
    d = len(z0[0])
    rows = [slopes[k : k + d] for k in range(0, len(slopes), d)]
    return rows[: len(z0)], rows[len(z0) :]


def complex_step(function: Callable[[list[Number]], Number], at: list[float]) -> list[float]:
    """All partial derivatives of an analytic function."""
    slopes = []
    for k in range(len(at)):
        moved: list[Number] = list(at)
        moved[k] = complex(at[k], STEP)
        slopes.append(function(moved).imag / STEP)
    return slopes


def importance(z0: Rows, z1: Rows, tau: float, epsilon: float, kind: str, normalize: bool) -> Rows:
    """alpha_ij = phi'(xi_i) psi'(d_i^2 - d_ij^2), Eq. 4, with phi = log(eps + x), psi = exp(x / tau)."""
    vectors = [on_the_sphere(z) if normalize else z for z in [*z0, *z1]]
    size = len(vectors)
    alpha = [[0.0] * size for _ in range(size)]
    for i in range(size):
        psi = [math.exp(gap.real / tau) for gap in gaps(vectors, i, kind)]
        phi_slope = 1 / (epsilon + sum(psi))
        for j, value in zip(negatives_of(i, size // 2, kind), psi, strict=True):
            alpha[i][j] = phi_slope * value / tau
    return alpha
