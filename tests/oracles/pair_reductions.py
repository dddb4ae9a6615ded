"""The pair reductions from their definition in the architecture page: loops over Python numbers.

Every function takes complex numbers too. A step of i h along a direction then gives the derivative along it to machine
precision, Im f(x + ih v) / h, without a formula: of the statistics, and of the gradient for second derivatives.
"""

import cmath
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

Number = float | complex
Numbers = list[Number]
STEP = 1e-30


@dataclass(frozen=True)
class Pairs:
    """Scores s <a_i, k_j> + own + other, read along the rows and, if two-way, along the columns; None is zero.

    ``counts[i][j]`` says which pairs count. Without keys the anchors are the keys.
    """

    counts: list[list[bool]]
    anchors: list[Numbers]
    keys: list[Numbers] | None
    scale: Number
    row_own: Numbers | None = None
    row_other: Numbers | None = None
    column_own: Numbers | None = None
    column_other: Numbers | None = None
    is_two_way: bool = False


TERMS = [field.name for field in fields(Pairs)][1:-1]


@dataclass(frozen=True)
class Psi:
    """An elementwise function and its slope, for complex numbers near the real axis."""

    value: Callable[[Number], Number]
    slope: Callable[[Number], Number]
    is_log: bool = False


def _sigmoid(u: Number) -> Number:
    """1 / (1 + e^-u), stable on both sides."""
    return 1 / (1 + cmath.exp(-u)) if u.real >= 0 else 1 - 1 / (1 + cmath.exp(u))


def _softplus(u: Number) -> Number:
    """log(1 + e^u)."""
    return cmath.log(1 + cmath.exp(u)) if u.real < 0 else u + cmath.log(1 + cmath.exp(-u))


PSI = {
    "exp": Psi(cmath.exp, cmath.exp, is_log=True),
    "identity": Psi(lambda u: u, lambda u: 1.0),
    "square": Psi(lambda u: u * u, lambda u: 2 * u),
    "hinge": Psi(lambda u: u if u.real > 0 else 0.0, lambda u: 1.0 if u.real > 0 else 0.0),
    "sigmoid": Psi(_sigmoid, lambda u: _sigmoid(u) * _sigmoid(-u)),
    "softplus": Psi(_softplus, _sigmoid),
}


def statistics(pairs: Pairs, psi: Psi) -> list[Numbers]:
    """Sum of psi(u_ij) or log sum exp(u_ij) per row and, if two-way, per column."""
    results = []
    for is_column in (False, True)[: 1 + pairs.is_two_way]:
        num_own = len(pairs.counts[0]) if is_column else len(pairs.counts)
        rows: list[Numbers] = [[] for _ in range(num_own)]
        for i, j in _counted(pairs):
            rows[j if is_column else i].append(score(pairs, i, j, is_column=is_column))
        results.append([_log_of_sum(row) if psi.is_log else sum(psi.value(u) for u in row) for row in rows])
    return results


def gradient(pairs: Pairs, psi: Psi, weight: list[list[float]]) -> dict[str, Any]:
    """Gradient of sum_i g_i r_i for every term that is there."""
    keys = pairs.anchors if pairs.keys is None else pairs.keys
    sums = {name: _zeros(getattr(pairs, name)) for name in TERMS}
    to_keys = sums["anchors"] if pairs.keys is None else sums["keys"]
    for is_column, (g, r) in enumerate(zip(weight, statistics(pairs, psi), strict=True)):
        own_name, other_name = ("column_own", "column_other") if is_column else ("row_own", "row_other")
        for i, j in _counted(pairs):
            own, other = (j, i) if is_column else (i, j)
            u = score(pairs, i, j, is_column=bool(is_column))
            w = g[own] * psi.slope(u - r[own] if psi.is_log else u)
            for d in range(len(keys[j])):
                sums["anchors"][i][d] += w * pairs.scale * keys[j][d]
                to_keys[j][d] += w * pairs.scale * pairs.anchors[i][d]
                sums["scale"] += w * pairs.anchors[i][d] * keys[j][d]
            for name, index in ((own_name, own), (other_name, other)):
                if sums[name] is not None:
                    sums[name][index] += w
    return sums


def statistics_tangent(pairs: Pairs, psi: Psi, tangent: Pairs) -> list[list[float]]:
    """Change of the statistics along a direction."""
    return _imaginary(statistics(_moved(pairs, tangent), psi))


def gradient_tangent(pairs: Pairs, psi: Psi, weight: list[list[float]], tangent: Pairs) -> dict[str, Any]:
    """Change of the gradient along a direction."""
    return {name: _imaginary(v) for name, v in gradient(_moved(pairs, tangent), psi, weight).items()}


def score(pairs: Pairs, i: int, j: int, *, is_column: bool = False) -> Number:
    """One u_ij."""
    keys = pairs.anchors if pairs.keys is None else pairs.keys
    u = pairs.scale * sum(a * k for a, k in zip(pairs.anchors[i], keys[j], strict=True))
    if is_column:
        return u + _at(pairs.column_own, j) + _at(pairs.column_other, i)
    return u + _at(pairs.row_own, i) + _at(pairs.row_other, j)


def _counted(pairs: Pairs) -> Iterator[tuple[int, int]]:
    """The pairs that count."""
    for i, row in enumerate(pairs.counts):
        for j, counts in enumerate(row):
            if counts:
                yield i, j


def _log_of_sum(row: Numbers) -> Number:
    """Log of the sum of exp; minus infinity for no terms."""
    if not row:
        return -math.inf
    top = max(u.real for u in row)
    return top + cmath.log(sum(cmath.exp(u - top) for u in row))


def _at(bias: Numbers | None, index: int) -> Number:
    return 0.0 if bias is None else bias[index]


def _moved(pairs: Pairs, tangent: Pairs) -> Pairs:
    """Pairs + i STEP tangent."""
    return replace(pairs, **{name: _step(getattr(pairs, name), getattr(tangent, name)) for name in TERMS})


def _step(at: Any, along: Any) -> Any:
    if at is None:
        return None
    if isinstance(at, list):
        return [_step(a, b) for a, b in zip(at, along, strict=True)]
    return complex(at, STEP * along)


def _imaginary(values: Any) -> Any:
    if values is None:
        return None
    return [_imaginary(v) for v in values] if isinstance(values, list) else complex(values).imag / STEP


def _zeros(like: Any) -> Any:
    if like is None:
        return None
    return [_zeros(x) for x in like] if isinstance(like, list) else 0.0
