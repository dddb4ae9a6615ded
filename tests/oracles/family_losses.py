"""The pairwise family from alphacl2022, Eq. 1, 2, 4 and the table of Fig. 1, in plain Python loops; no tensor code.

z0 and z1 are lists of n rows; the 2n vectors are numbered first view before second. Gradients and the importance of
pairs are complex steps: f is analytic, so Im f(x + ih) / h is its derivative to machine precision for a tiny h, without
a formula.
"""

import cmath
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Number = float | complex
Rows = list[list[float]]
STEP = 1e-30


def negatives_of(i: int, n: int, kind: str) -> list[int]:
    """N(i): which of the 2n vectors repel anchor i."""
    partner = (i + n) % (2 * n)
    others = [j for j in range(2 * n) if j not in (i, partner)]
    same_view = [j for j in others if (j < n) == (i < n)]
    return {"two-view": others, "same-view": same_view, "cross-view": [j for j in others if j not in same_view]}[kind]


def half_squared_distance(a: Sequence[Number], b: Sequence[Number]) -> Number:
    """d^2 = |a - b|^2 / 2, analytic (no conjugate)."""
    return sum((x - y) * (x - y) for x, y in zip(a, b, strict=True)) / 2


def on_the_sphere(z: Sequence[Number]) -> Sequence[Number]:
    """z / |z|; a zero vector stays, whatever the direction of a step."""
    if not any(complex(x).real for x in z):
        return [0.0] * len(z)
    norm = cmath.sqrt(sum(x * x for x in z))
    return [x / norm for x in z]


def dot(a: Sequence[Number], b: Sequence[Number]) -> Number:
    """<a, b>, analytic."""
    return sum(x * y for x, y in zip(a, b, strict=True))


def gaps(vectors: Sequence[Sequence[Number]], i: int, kind: str, *, by_cosine: bool = False) -> list[Number]:
    """d_i^2 - d_ij^2 for every negative j of anchor i; of unit vectors cos_ij - cos_ii', as d^2 = 1 - cos."""
    n = len(vectors) // 2
    partner = (i + n) % (2 * n)
    if by_cosine:
        own = dot(vectors[i], vectors[partner])
        return [dot(vectors[i], vectors[j]) - own for j in negatives_of(i, n, kind)]
    own = half_squared_distance(vectors[i], vectors[partner])
    return [own - half_squared_distance(vectors[i], vectors[j]) for j in negatives_of(i, n, kind)]


def log_of_sum(terms: list[Number]) -> Number:
    """Log of the sum of exp(terms), shifted by the largest real part."""
    top = max(complex(term).real for term in terms)
    return top + cmath.log(sum(cmath.exp(term - top) for term in terms))


PerAnchor = Callable[[list[Number]], Number]  # phi(sum_j psi(gap_j)), from one anchor's gaps


def nce(tau: float, epsilon: float) -> PerAnchor:
    """InfoNCE: log(epsilon + sum exp(gap / tau)); Eq. 2 without the factor tau."""

    def phi_of_sum(gaps: list[Number]) -> Number:
        terms = [gap / tau for gap in gaps]
        return log_of_sum(terms if epsilon == 0 else [*terms, complex(math.log(epsilon))])

    return phi_of_sum


def mine(gaps: list[Number]) -> Number:
    """log sum exp(gap)."""
    return log_of_sum(gaps)


def triplet(margin: float) -> PerAnchor:
    """Sum of [gap + margin]_+."""
    return lambda gaps: sum(gap + margin for gap in gaps if complex(gap).real + margin > 0)


def soft_triplet(tau: float, margin: float) -> PerAnchor:
    """Tau log(1 + sum exp(gap / tau + margin))."""
    return lambda gaps: tau * log_of_sum([0.0, *(gap / tau + margin for gap in gaps)])


def n_plus_one_tuplet(gaps: list[Number]) -> Number:
    """log(1 + sum exp(gap))."""
    return log_of_sum([0.0, *gaps])


def lifted_structured(margin: float) -> PerAnchor:
    """[log sum exp(gap + margin)]_+^2."""

    def phi_of_sum(gaps: list[Number]) -> Number:
        log_xi = log_of_sum([gap + margin for gap in gaps])
        return log_xi * log_xi if complex(log_xi).real > 0 else 0.0

    return phi_of_sum


def modified_triplet(steepness: float) -> PerAnchor:
    """Sum of sigmoid(c gap)."""

    def sigmoid(u: Number) -> Number:
        return 1 / (1 + cmath.exp(-u)) if complex(u).real >= 0 else 1 - 1 / (1 + cmath.exp(u))

    return lambda gaps: sum(sigmoid(steepness * gap) for gap in gaps)


def linear_triplet(gaps: list[Number]) -> Number:
    """Sum of gaps."""
    return sum(gaps)


@dataclass(frozen=True)
class Setting:
    """Who meets whom, and what is done with the anchors' losses."""

    negatives: str = "two-view"
    normalize: bool = True
    anchors: str = "both"
    reduction: str = "mean"


def pair_loss(z0: Rows, z1: Rows, per_anchor: PerAnchor, setting: Setting) -> Number:
    """Eq. 1: mean or sum over anchors."""
    vectors = [on_the_sphere(z) if setting.normalize else z for z in [*z0, *z1]]
    num_anchors = len(z0) if setting.anchors == "first" else len(vectors)
    total: Number = sum(
        per_anchor(gaps(vectors, i, setting.negatives, by_cosine=setting.normalize)) for i in range(num_anchors)
    )
    return total / num_anchors if setting.reduction == "mean" else total


def pair_gradient(z0: Rows, z1: Rows, per_anchor: PerAnchor, setting: Setting) -> tuple[Rows, Rows]:
    """Gradients for z0 and z1."""
    return _gradient(lambda a, b: pair_loss(a, b, per_anchor, setting), z0, z1)


def pair_importance(z0: Rows, z1: Rows, per_anchor: PerAnchor, setting: Setting) -> Rows:
    """alpha_ij of all 2n x 2n: the derivative of an anchor's loss for each of its gaps (Eq. 4 by the chain rule)."""
    vectors = [on_the_sphere(z) if setting.normalize else z for z in [*z0, *z1]]
    size = len(vectors)
    alpha = [[0.0] * size for _ in range(size)]
    for i in range(len(z0) if setting.anchors == "first" else size):
        at = [complex(gap).real for gap in gaps(vectors, i, setting.negatives, by_cosine=setting.normalize)]
        slopes = complex_step(per_anchor, at)
        for j, slope in zip(negatives_of(i, size // 2, setting.negatives), slopes, strict=True):
            alpha[i][j] = slope
    return alpha


def _gradient(loss: Callable[[Rows, Rows], Number], z0: Rows, z1: Rows) -> tuple[Rows, Rows]:
    """Complex steps for every entry of both views."""

    def of_flat(flat: list[Number]) -> Number:
        rows = rows_of(flat, len(z0[0]))
        return loss(rows[: len(z0)], rows[len(z0) :])  # pyright: ignore[reportArgumentType]

    rows = rows_of(complex_step(of_flat, [x for row in [*z0, *z1] for x in row]), len(z0[0]))
    return rows[: len(z0)], rows[len(z0) :]


def rows_of(flat: list[Any], width: int) -> list[list[Any]]:
    """A list cut into rows."""
    return [flat[k : k + width] for k in range(0, len(flat), width)]


def complex_step(function: Callable[[list[Number]], Number], at: list[float]) -> list[float]:
    """All partial derivatives of an analytic function."""
    slopes = []
    for k in range(len(at)):
        moved: list[Number] = list(at)
        moved[k] = complex(at[k], STEP)
        slopes.append(complex(function(moved)).imag / STEP)
    return slopes
