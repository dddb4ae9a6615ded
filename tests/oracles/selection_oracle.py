"""Orders in which features are kept, in NumPy and plain loops. Imports no tensor code."""

import math

import numpy as np
from numpy.typing import NDArray

from oracles.feature_measures import expected_activation

Matrix = NDArray[np.float64]


def falling(weights: list[float]) -> list[int]:
    """Places by falling weight, the first among equals first."""
    return sorted(range(len(weights)), key=lambda place: (-weights[place], place))


def kept_columns(z: Matrix, order: str) -> list[int]:
    """The order of the columns for those orders that only choose columns."""
    if order == "variance":
        means = [math.fsum(column) / len(column) for column in z.T]
        return falling([math.fsum((x - m) ** 2 for x in column) for column, m in zip(z.T, means, strict=True)])
    return falling(expected_activation(np.maximum(z, 0.0) if order.startswith("non-negative") else z))


def components(z: Matrix, other: Matrix) -> Matrix:
    """Absolute principal components of other rows, by the singular vectors of the centred rows."""
    mean = z.mean(axis=0)
    axes = np.linalg.svd(z - mean, full_matrices=True)[2]
    return np.abs((other - mean) @ axes.T)
