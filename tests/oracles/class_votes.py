"""Nearest-neighbour votes (wu2018, section 3.4) and Wilson's interval (wilson1927), in plain Python."""

import math
from statistics import NormalDist


def cosine(a: list[float], b: list[float]) -> float:
    """Cosine of two vectors."""
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))


def minus_half_square(a: list[float], b: list[float]) -> float:
    """-|a - b|^2 / 2."""
    return -math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / 2


SIMILARITIES = {"cosine": cosine, "euclidean": minus_half_square}
WEIGHTS = {
    ("cosine", "exp"): lambda s, top, t: math.exp((s - top) / t),
    ("euclidean", "exp"): lambda s, top, t: math.exp((s - top) / t),
    ("cosine", "uniform"): lambda s, top, t: 1.0,
    ("euclidean", "uniform"): lambda s, top, t: 1.0,
    ("cosine", "inverse"): lambda s, top, t: 1 / (1 - s + t),
    ("euclidean", "inverse"): lambda s, top, t: 1 / (math.sqrt(-2 * s) + t),
}


def neighbours(bank: list[list[float]], query: list[float], k: int, similarity: str = "cosine") -> list[int]:
    """The k nearest, nearest first; of equal ones the smaller position first, as ``sorted`` is stable."""
    near = SIMILARITIES[similarity]
    return sorted(range(len(bank)), key=lambda i: -near(bank[i], query))[:k]


def knn_class(
    bank: list[list[float]],
    labels: list[int],
    query: list[float],
    k: int,
    temperature: float,
    *,
    similarity: str = "cosine",
    weighting: str = "exp",
) -> int:
    """The class with most votes, the smaller number among equals."""
    weigh, near = WEIGHTS[similarity, weighting], SIMILARITIES[similarity]
    found = neighbours(bank, query, k, similarity)
    top = near(bank[found[0]], query)
    votes: dict[int, float] = {}
    for i in found:
        votes[labels[i]] = votes.get(labels[i], 0.0) + weigh(near(bank[i], query), top, temperature)
    return min(votes, key=lambda label: (-votes[label], label))


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Both roots p of (share - p)^2 = z^2 p (1 - p) / n, the equation that wilson1927 solves."""
    z = NormalDist().inv_cdf(0.975)
    share = correct / total
    a = 1 + z * z / total
    b = -(2 * share + z * z / total)
    root = math.sqrt(max(0.0, b * b - 4 * a * share * share))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)
