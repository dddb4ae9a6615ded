"""Disentanglement from the papers: informations counted pair by pair, and the reference code's formula in NumPy."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import mutual_info_score

Matrix = NDArray[np.float64]


def bin_of(value: float, values: Sequence[float], num_bins: int) -> int:
    """Bins of equal width, closed on the left, the last one on both sides."""
    edges = np.linspace(min(values), max(values), num_bins + 1).tolist()
    return sum(value >= edge for edge in edges[:-1]) if edges[0] < edges[-1] else 1


def information(left: Sequence[int], right: Sequence[int]) -> float:
    """Mutual information in nats."""
    n, pairs, lefts, rights = len(left), Counter(zip(left, right, strict=True)), Counter(left), Counter(right)
    return math.fsum(c / n * math.log(c * n / (lefts[a] * rights[b])) for (a, b), c in pairs.items())


def informations(codes: Matrix, factors: NDArray[np.int64], num_bins: int) -> list[list[float]]:
    """Of every dimension with every factor."""
    rows = []
    for column in codes.T.tolist():
        bins = [bin_of(value, column, num_bins) for value in column]
        rows.append([information(bins, factor) for factor in factors.T.tolist()])
    return rows


def gap(table: Sequence[Sequence[float]], entropies: Sequence[float]) -> float:
    """chen2018, Eq. 6."""
    columns = [sorted(column, reverse=True) for column in zip(*table, strict=True)]
    return sum((column[0] - column[1]) / h for column, h in zip(columns, entropies, strict=True)) / len(columns)


def reference_gap(codes: Matrix, factors: NDArray[np.int64], num_bins: int) -> float:
    """What locatello2019 computes, with its calls of NumPy and scikit-learn, one pair at a time."""
    table = np.zeros((codes.shape[1], factors.shape[1]))
    for d, code in enumerate(codes.T):
        bins = np.digitize(code, np.histogram(code, num_bins)[1][:-1])
        table[d] = [mutual_info_score(factor, bins) for factor in factors.T]
    entropies = [mutual_info_score(factor, factor) for factor in factors.T]
    ordered = np.sort(table, axis=0)[::-1]
    return float(np.mean((ordered[0] - ordered[1]) / entropies))
