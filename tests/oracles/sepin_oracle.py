"""SEPIN from its definitions, in loops and by integration over a grid. Imports no tensor code."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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


def contrastive(
    z0: Rows, z1: Rows, temperature: float, negatives: Sequence[int], is_scaled_again: bool = False
) -> list[float]:
    """Eq. 15 for each dimension: with all of them, minus without it."""
    z0, z1 = [unit(row) for row in z0], [unit(row) for row in z1]

    def without(rows: Rows, dim: int) -> list[list[float]]:
        rest = [[x for d, x in enumerate(row) if d != dim] for row in rows]
        return [unit(row) for row in rest] if is_scaled_again else rest

    whole = information(z0, z1, temperature, negatives)
    return [whole - information(without(z0, d), without(z1, d), temperature, negatives) for d in range(len(z0[0]))]


def of_two_dimensions(codes: NDArray[np.float64], noise: float) -> list[float]:
    """I(x; z_i | z_other) = h(z) - h(z_other) - h(noise), the entropies of mixtures of Gaussians on a fine grid."""
    step = noise / 20
    axes = [np.arange(column.min() - 7 * noise, column.max() + 7 * noise, step) for column in codes.T]

    def bells(axis: NDArray[np.float64], column: NDArray[np.float64]) -> NDArray[np.float64]:
        """One density for each sample, (n, points)."""
        return np.exp(-(((axis - column[:, None]) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))

    first, second = (bells(axis, column) for axis, column in zip(axes, codes.T, strict=True))
    joint = first.T @ second / len(codes)
    entropy = -float(np.sum(joint * np.log(joint + 1e-300))) * step**2
    of_noise = math.log(2 * math.pi * math.e * noise**2) / 2
    found = []
    for other in (second, first):
        density = other.mean(axis=0)
        found.append(entropy + float(np.sum(density * np.log(density + 1e-300))) * step - of_noise)
    return found
