"""Measures of rank from their papers, in NumPy over float64. Imports no tensor code."""

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def smoothed_entropy_rank(values: list[float], eps: float) -> float:
    """garrido2023: exp of the entropy of p = value / sum + eps."""
    total = math.fsum(values)
    shares = [value / total + eps for value in values]
    return math.exp(-math.fsum(p * math.log(p) for p in shares))


def rankme(z: Matrix, definition: str, eps: float) -> float:
    """garrido2023 (uncentred), and the two other forms that carry its name."""
    rows = z if definition == "uncentred" else z - z.mean(axis=0)
    sigma = np.linalg.svd(rows, compute_uv=False)
    return smoothed_entropy_rank((sigma**2 if definition == "eigenvalues" else sigma).tolist(), eps)


def eigenvalues(z: Matrix) -> list[float]:
    """Of the centred covariance, descending, from the singular values of the centred rows; N - 1 of them at most."""
    sigma = np.linalg.svd(z - z.mean(axis=0), compute_uv=False)
    return [float(s) ** 2 / (len(z) - 1) for s in sigma[: len(z) - 1]]


def participation_ratio(values: list[float]) -> float:
    """gao2017."""
    return math.fsum(values) ** 2 / math.fsum(value**2 for value in values)
