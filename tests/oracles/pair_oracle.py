"""Neighbour counts, weights of negatives and near samples as loops over lists. Imports no tensor code."""

import math
from collections.abc import Callable, Sequence

Vector = Sequence[float]


def cosine(first: Vector, second: Vector) -> float:
    """Of two vectors; 0 with a vector of length 0."""
    lengths = math.sqrt(math.fsum(x * x for x in first)) * math.sqrt(math.fsum(x * x for x in second))
    return math.fsum(x * y for x, y in zip(first, second, strict=True)) / lengths if lengths else 0.0


def neighbour_counts(z: Sequence[Vector], k: int) -> list[float]:
    """radovanovic2010, section 2: N_k(j); equally near neighbours share the places that are left."""
    counts = [0.0] * len(z)
    k = min(k, len(z) - 1)
    for i, anchor in enumerate(z):
        near = sorted(((cosine(anchor, other), j) for j, other in enumerate(z) if j != i), reverse=True)
        least = near[k - 1][0]
        nearer = [j for c, j in near if c > least + 1e-9]
        tied = [j for c, j in near if abs(c - least) <= 1e-9]
        for j in nearer:
            counts[j] += 1.0
        for j in tied:
            counts[j] += (k - len(nearer)) / len(tied)
    return counts


def infonce_shares(first: Sequence[Vector], second: Sequence[Vector], temperature: float) -> list[list[float]]:
    """alphacl2022, Eq. 4 with psi = exp(x / tau): weights of both views of other samples, each row of sum 1."""
    n, both = len(first), [*first, *second]
    rows = []
    for i, anchor in enumerate(both):
        weights = [math.exp(cosine(anchor, key) / temperature) if j % n != i % n else 0.0 for j, key in enumerate(both)]
        rows.append([weight / math.fsum(weights) for weight in weights])
    return rows


def entropy(shares: Sequence[float]) -> float:
    """In nats."""
    return -math.fsum(p * math.log(p) for p in shares if p > 0)


def hardest(row: Sequence[float], num: int) -> list[int]:
    """Places of the largest weights."""
    return sorted(range(len(row)), key=lambda j: -row[j])[:num]


def mass(rows: Sequence[Sequence[float]], is_it: Callable[[int, int], bool]) -> float:
    """Mean over anchors of the weight on other samples for which something holds."""
    n = len(rows) // 2
    return math.fsum(p for i, row in enumerate(rows) for j, p in enumerate(row) if is_it(i % n, j % n)) / len(rows)


def infonce(first: Sequence[Vector], second: Sequence[Vector], temperature: float) -> float:
    """alphacl2022, Eq. 2 with eps = 1, mean over all 2n anchors."""
    n, both, total = len(first), [*first, *second], 0.0
    for i, anchor in enumerate(both):
        own = cosine(anchor, both[(i + n) % (2 * n)])
        gaps = [cosine(anchor, key) - own for j, key in enumerate(both) if j % n != i % n]
        total += math.log(1 + math.fsum(math.exp(gap / temperature) for gap in gaps))
    return total / (2 * n)


def view_cosines(first: Sequence[Vector], second: Sequence[Vector]) -> list[list[float]]:
    """Mean cosine of both views of one sample with both of another."""
    views = list(zip(first, second, strict=True))
    return [[math.fsum(cosine(a, b) for a in one for b in two) / 4 for two in views] for one in views]
