"""SEPIN from its definitions, in loops. Imports no tensor code."""

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[float]]


def unit(row: Sequence[float]) -> list[float]:
    length = math.sqrt(math.fsum(x * x for x in row))
    return [x / length for x in row] if length > 0 else list(row)


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def information(z0: Rows, z1: Rows, temperature: float, negatives: Sequence[int]) -> float:
    """ncl2024, Eq. 16, without its minus sign; negatives are places of samples, of which each anchor skips its own."""
    values = []
    for i, anchor in enumerate(z0):
        positive = math.exp(dot(anchor, z1[i]) / temperature)
        others = [math.exp(dot(anchor, z1[j]) / temperature) for j in negatives if j != i]
        values.append(math.log(positive / (positive + math.fsum(others) / len(others))))
    return math.fsum(values) / len(values)


def contrastive(z0: Rows, z1: Rows, temperature: float, negatives: Sequence[int]) -> list[float]:
    """Eq. 15 for each dimension: with all of them, minus without it."""
    z0, z1 = [unit(row) for row in z0], [unit(row) for row in z1]

    def without(rows: Rows, dim: int) -> list[list[float]]:
        return [[x for d, x in enumerate(row) if d != dim] for row in rows]

    whole = information(z0, z1, temperature, negatives)
    return [whole - information(without(z0, d), without(z1, d), temperature, negatives) for d in range(len(z0[0]))]
