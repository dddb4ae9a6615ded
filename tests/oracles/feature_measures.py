"""Measurements of features from their papers, in NumPy and plain loops over float64. Imports no tensor code."""

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def unit(z: Matrix) -> Matrix:
    """Rows of length 1; a zero row stays."""
    rows = []
    for row in z:
        length = math.sqrt(math.fsum(float(x) ** 2 for x in row))
        rows.append(row / length if length > 0 else row)
    return np.array(rows)


def covariance_singular_values(z: Matrix) -> Matrix:
    """directclr2022, Eq. 1 with the released code's np.cov (N - 1)."""
    return np.linalg.svd(np.atleast_2d(np.cov(z.T)), compute_uv=False).astype(np.float64)


def effective_rank(covariance_values: list[float]) -> float:
    """roy2007, definition 1, for singular values sqrt(lambda) of the centred features."""
    sigma = [math.sqrt(value) for value in covariance_values]
    shares = [s / math.fsum(sigma) for s in sigma if s > 0]
    return math.exp(-math.fsum(p * math.log(p) for p in shares))


def alignment(z0: Matrix, z1: Matrix) -> float:
    """wang2020, alpha = 2: mean squared distance of unit views."""
    return math.fsum(float(np.sum((a - b) ** 2)) for a, b in zip(unit(z0), unit(z1), strict=True)) / len(z0)


def uniformity(z: Matrix) -> float:
    """wang2020, t = 2: log of the mean of exp(-2 |x - y|^2) over pairs of different samples."""
    u = unit(z)
    pairs = [(i, j) for i in range(len(u)) for j in range(i + 1, len(u))]
    return math.log(math.fsum(math.exp(-2 * float(np.sum((u[i] - u[j]) ** 2))) for i, j in pairs) / len(pairs))


def cosines_of_pairs(z: Matrix) -> list[float]:
    """Cosine of every pair of different samples."""
    u = unit(z)
    return [float(u[i] @ u[j]) for i in range(len(u)) for j in range(i + 1, len(u))]


def sparsity(z: Matrix, threshold: float) -> float:
    """Share of entries of the unit rows whose absolute value is at most the threshold."""
    entries = [abs(float(x)) for row in unit(z) for x in row]
    return sum(x <= threshold for x in entries) / len(entries)


def class_shares(z: Matrix, labels: list[int], threshold: float) -> list[dict[int, float]]:
    """Per dimension, each class's share of the labelled active samples; empty where there are none."""
    u, results = unit(z), []
    for d in range(z.shape[1]):
        active = [label for row, label in zip(u, labels, strict=True) if label >= 0 and abs(row[d]) > threshold]
        results.append({label: active.count(label) / len(active) for label in set(active)})
    return results


def mean_column_cosine(z: Matrix) -> float:
    """Mean |cosine| of different live columns of the row-normalised features."""
    columns = [column for column in unit(z).T if np.any(column != 0)]
    cosines = [
        abs(float(a @ b)) / math.sqrt(float(a @ a) * float(b @ b))
        for p, a in enumerate(columns)
        for q, b in enumerate(columns)
        if p != q
    ]
    return math.fsum(cosines) / len(cosines) if cosines else math.nan


def orthogonality_error(z: Matrix, definition: str) -> float:
    """ncl2024: Fig. 3c, the training log of its code, and its evaluation code."""
    if definition == "evaluation code":
        columns = [column for column in z.T if column.sum() > 10]
    else:
        columns = [column for column in (unit(z) if definition == "training log" else z).T if np.any(column != 0)]
    lengths = [math.sqrt(float(column @ column)) for column in columns]
    errors = []
    for p, a in enumerate(columns):
        for q, b in enumerate(columns):
            if p != q or definition != "figure":
                errors.append(abs(float(a @ b) / (lengths[p] * lengths[q]) - (p == q)))
    if not errors:
        return math.nan
    return (
        sorted(errors)[(len(errors) - 1) // 2] if definition == "evaluation code" else math.fsum(errors) / len(errors)
    )


def expected_activation(z: Matrix) -> list[float]:
    """ncl2024, EA: mean absolute value of each dimension of the unit rows."""
    u = unit(z)
    return [math.fsum(abs(float(row[d])) for row in u) / len(u) for d in range(z.shape[1])]


def top_samples(z: Matrix, dim: int, num_samples: int, threshold: float) -> list[int]:
    """Active samples by falling value, the earlier first among equals."""
    u = unit(z)
    active = [i for i in range(len(u)) if abs(u[i, dim]) > threshold]
    return sorted(active, key=lambda i: (-u[i, dim], i))[:num_samples]
