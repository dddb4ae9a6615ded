"""Nearest-neighbour votes (wu2018, section 3.4) and Wilson's interval (wilson1927), in plain Python."""

import math
from statistics import NormalDist

from oracles.pair_oracle import cosine


def neighbours(bank: list[list[float]], query: list[float], k: int) -> list[int]:
    """The k nearest, nearest first; of equal ones the smaller position first, as ``sorted`` is stable."""
    return sorted(range(len(bank)), key=lambda i: -cosine(bank[i], query))[:k]


def knn_class(bank: list[list[float]], labels: list[int], query: list[float], k: int, temperature: float) -> int:
    """The class with most votes, the smaller number among equals."""
    found = neighbours(bank, query, k)
    top = cosine(bank[found[0]], query)
    votes: dict[int, float] = {}
    for i in found:
        weight = math.exp((cosine(bank[i], query) - top) / temperature)
        votes[labels[i]] = votes.get(labels[i], 0.0) + weight
    return min(votes, key=lambda label: (-votes[label], label))


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """Both roots p of (share - p)^2 = z^2 p (1 - p) / n, the equation that wilson1927 solves."""
    z = NormalDist().inv_cdf(0.975)
    share = correct / total
    a = 1 + z * z / total
    b = -(2 * share + z * z / total)
    root = math.sqrt(max(0.0, b * b - 4 * a * share * share))
    return (-b - root) / (2 * a), (-b + root) / (2 * a)
