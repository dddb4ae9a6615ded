"""The class-level risk of imbalanced2026 by its definition: all C^k terms of Eq. 14, one by one.

Numbers are torch scalars, so that autograd differentiates the same loops. ``psi`` maps the list of an anchor's gaps
a_ij - m_i (m_i is the squared length of its class mean, usually 1), together with m_i, to a number.
"""

# C classes

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

Psi = Callable[[list[Tensor], Tensor], Tensor]


def negatives_of(proportions: list[float], supervised: bool) -> list[list[float]]:
    """r(j | i), Eq. 3 and 5."""
    classes = range(len(proportions))
    if not supervised:
        return [list(proportions) for _ in classes]
    return [[0.0 if j == i else proportions[j] / (1 - proportions[i]) for j in classes] for i in classes]


def risk(gram: Tensor, proportions: list[float], psi: Psi, k: int, supervised: bool) -> Tensor:
    """Eq. 14 (7 where means are shorter than 1), and A.18 for negatives of other classes."""
    weights, total = negatives_of(proportions, supervised), torch.zeros((), dtype=torch.float64)
    for i in range(len(proportions)):
        for drawn in itertools.product(range(len(proportions)), repeat=k):
            probability = proportions[i] * math.prod(weights[i][j] for j in drawn)
            if probability > 0:
                total = total + probability * psi([gram[i, j] - gram[i, i] for j in drawn], gram[i, i])
    return total


def infinite(gram: Tensor, proportions: list[float], tau: float, supervised: bool) -> Tensor:
    """Eq. 10 at a temperature."""
    weights, total = negatives_of(proportions, supervised), torch.zeros((), dtype=torch.float64)
    for i in range(len(proportions)):
        mean = sum(weights[i][j] * torch.exp((gram[i, j] - 1) / tau) for j in range(len(proportions)))
        total = total + proportions[i] * torch.log(1 + mean)
    return total


def log_of_sum(
    tau: float, epsilon: float = 1.0, *, factor: float = 1.0, margin: float = 0.0, mean: bool = False
) -> Psi:
    """Eq. 23 (mean, epsilon 1, tau 1) and its relatives."""

    def psi(gaps: list[Tensor], _: Tensor) -> Tensor:
        terms = sum(torch.exp(gap / tau + margin) for gap in gaps)
        return factor * torch.log(epsilon + terms / (len(gaps) if mean else 1))

    return psi


def hard(tau: float, beta: float, epsilon: float = 1.0, *, factor: float = 1.0, margin: float = 0.0) -> Psi:
    """The sum over negatives as K times a mean weighted by exp(beta u), robinson2021."""

    def psi(gaps: list[Tensor], _: Tensor) -> Tensor:
        u = [gap / tau + margin for gap in gaps]
        above, below = sum(torch.exp((1 + beta) * x) for x in u), sum(torch.exp(beta * x) for x in u)
        return factor * torch.log(epsilon + len(u) * above / below)

    return psi


def triplet(margin: float) -> Psi:
    """Footnote 3: sum of hinges."""
    return lambda gaps, _: sum((torch.clamp(gap + margin, min=0.0) for gap in gaps), torch.zeros(()).double())


def linear() -> Psi:
    """Sum of gaps."""
    return lambda gaps, _: sum(gaps, torch.zeros(()).double())


def by_pairs(positive: Callable[[Tensor], Tensor], negative: Callable[[Tensor], Tensor], *, mean: bool = False) -> Psi:
    """A function of the positive's cosine plus a sum (or mean) of one of the negatives' cosines."""

    def psi(gaps: list[Tensor], length: Tensor) -> Tensor:
        terms = sum((negative(gap + length) for gap in gaps), torch.zeros(()).double())
        return positive(length) + terms / (len(gaps) if mean else 1)

    return psi


def compositions(k: int, num_classes: int) -> Iterator[tuple[int, ...]]:
    """How k draws can fall on classes."""
    if num_classes == 1:
        yield (k,)
        return
    for first in range(k + 1):
        for rest in compositions(k - first, num_classes - 1):
            yield (first, *rest)


def expected_log(x: list[float], r: list[float], epsilon: float, k: int) -> tuple[float, np.ndarray, np.ndarray]:
    """E log(epsilon + sum of k terms) with first and second derivatives for x, over all multinomial counts."""
    value, slope, curvature = 0.0, np.zeros(len(x)), np.zeros((len(x), len(x)))
    for counts in compositions(k, len(x)):
        ways = math.factorial(k)
        for count in counts:
            ways //= math.factorial(count)
        probability = ways * math.prod(p**n for p, n in zip(r, counts, strict=True))
        total, n = epsilon + sum(c * each for c, each in zip(counts, x, strict=True)), np.array(counts, dtype=float)
        value += probability * math.log(total)
        slope += probability * n / total
        curvature -= probability * np.outer(n, n) / total**2
    return value, slope, curvature


def expected_log_of_two(x: list[float], r: float, epsilon: float, k: int) -> tuple[float, np.ndarray, np.ndarray]:
    """The same for two values, the first of probability r, by the binomial distribution: any k."""
    n = np.arange(k + 1, dtype=float)
    probability, counts = binom.pmf(n, k, r), np.stack([n, k - n])
    total = epsilon + x[0] * counts[0] + x[1] * counts[1]
    slope, curvature = (counts / total) @ probability, -((counts / total) * probability) @ (counts / total).T
    return float(np.log(total) @ probability), slope, curvature
