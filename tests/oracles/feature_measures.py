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


def expected_activation(z: Matrix) -> list[float]:
    """ncl2024, EA: mean absolute value of each dimension of the unit rows."""
    u = unit(z)
    return [math.fsum(abs(float(row[d])) for row in u) / len(u) for d in range(z.shape[1])]


def spread(z: Matrix) -> float:
    """Root mean square distance of unit rows from their mean."""
    u = unit(z)
    mean = [math.fsum(column) / len(u) for column in u.T.tolist()]
    return math.sqrt(math.fsum((x - m) ** 2 for row in u.tolist() for x, m in zip(row, mean, strict=True)) / len(u))


def duplicate_share(z: Matrix) -> float:
    """Share of rows that an earlier one equals."""
    return sum(any(a == b for b in z.tolist()[:i]) for i, a in enumerate(z.tolist())) / len(z)


def overlap(z0: Matrix, z1: Matrix) -> float:
    """hanley1982: share of pairs (positive, negative) in which the positive cosine is larger; ties count one half."""
    positive = [float(a @ b) for a, b in zip(unit(z0), unit(z1), strict=True)]
    negative = cosines_of_pairs(z0)
    return sum((p > n) + 0.5 * (p == n) for p in positive for n in negative) / (len(positive) * len(negative))


def moved_views(z0: Matrix, z1: Matrix) -> float:
    """Share of rows whose best partner is in another row and beats all other rows of their own view."""
    u, v = unit(z0), unit(z1)
    found = 0
    for i, a in enumerate(u):
        best = max(float(a @ v[j]) for j in range(len(v)) if j != i)
        own = max(float(a @ u[j]) for j in range(len(u)) if j != i)
        found += best > float(a @ v[i]) and best > own
    return found / len(u)


def marchenko_pastur_share(ratio: float, x: float) -> float:
    """marchenko1967: share of the eigenvalues below x for D / N = ratio <= 1, by the midpoint rule on the density."""
    low, high = (1 - math.sqrt(ratio)) ** 2, (1 + math.sqrt(ratio)) ** 2
    num = 20_000
    end = min(max(x, low), high)
    width = (end - low) / num
    points = [low + (i + 0.5) * width for i in range(num)]
    return width * math.fsum(math.sqrt((high - p) * (p - low)) / (2 * math.pi * ratio * p) for p in points)
