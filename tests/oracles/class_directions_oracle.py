"""Cosines of class means, rare classes, repeated dimensions, in NumPy and loops. No tensor code."""

import math
from collections import Counter

import numpy as np

from oracles.class_geometry_oracle import centred_means, classes_of, scatters
from oracles.feature_measures import Matrix


def cosine(a: Matrix, b: Matrix) -> float:
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def cosines(z: Matrix, labels: list[int]) -> Matrix:
    """imbalanced2026: cosines between means of unit vectors."""
    means = [group.mean(axis=0) for group in classes_of(z, labels)]
    return np.array([[cosine(a, b) for b in means] for a in means])


def distance(z: Matrix, labels: list[int], optimum: Matrix) -> float:
    """Root mean square over pairs of different classes."""
    found = cosines(z, labels)
    pairs = [(c, d) for c in range(len(found)) for d in range(len(found)) if c != d]
    return math.sqrt(math.fsum((found[c, d] - optimum[c, d]) ** 2 for c, d in pairs) / len(pairs))


def within_share(z: Matrix, labels: list[int]) -> float:
    within, between = scatters(classes_of(z, labels))
    return float(np.trace(within) / (np.trace(within) + np.trace(between)))


def rare_numbers(labels: list[int]) -> set[int]:
    """The cut nearest to the middle where counts differ, two or more below it and one or more above."""
    counts = Counter(label for label in labels if label >= 0)
    order = sorted(counts, key=lambda label: counts[label])
    cuts = [cut for cut in range(2, len(order)) if counts[order[cut - 1]] < counts[order[cut]]]
    if not cuts:
        return set()
    best = min(cuts, key=lambda cut: (abs(2 * cut - len(order)), cut))
    return set(order[:best])


def rare_cosine(z: Matrix, labels: list[int]) -> float | None:
    rare = rare_numbers(labels)
    numbers = sorted({label for label in labels if label >= 0})
    means = [mean for number, mean in zip(numbers, centred_means(classes_of(z, labels)), strict=True) if number in rare]
    pairs = [cosine(a, b) for place, a in enumerate(means) for b in means[:place]]
    return math.fsum(pairs) / len(pairs) if pairs else None


def duplicate_dims(z: Matrix, fewest: int = 10) -> int:
    """Columns whose Pearson correlation with an earlier one is above 0.99 by size."""

    def is_varied(column: Matrix) -> bool:
        return len(column) - max(Counter(column.tolist()).values()) >= fewest

    columns = [column - column.mean() for column in z.T if is_varied(column)]
    repeats = 0
    for place, column in enumerate(columns):
        repeats += any(abs(cosine(column, earlier)) > 0.99 for earlier in columns[:place])
    return repeats
