"""The class-level risk of imbalanced2026 by its definition: all C^k terms of Eq. 14, one by one.

Numbers are torch scalars, so that autograd differentiates the same loops. ``psi`` maps the list of an anchor's gaps
a_ij - m_i (m_i is the squared length of its class mean, usually 1), together with m_i, to a number.
"""

# C classes

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from oracles.collapse_oracle import counts as ways_to_write

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
        mean = torch.stack([weights[i][j] * torch.exp((a - 1) / tau) for j, a in enumerate(gram[i])]).sum()
        total = total + proportions[i] * torch.log(1 + mean)
    return total


def log_with(epsilon: float, total: Tensor) -> Tensor:
    """log(epsilon + total), to the last digit of a small total at epsilon 1."""
    return math.log(epsilon) + torch.log1p(total / epsilon) if epsilon else torch.log(total)


def log_of_sum(
    tau: float, epsilon: float = 1.0, *, factor: float = 1.0, margin: float = 0.0, mean: bool = False
) -> Psi:
    """Eq. 23 (mean, epsilon 1, tau 1) and its relatives."""

    def psi(gaps: list[Tensor], _: Tensor) -> Tensor:
        terms = torch.stack([torch.exp(gap / tau + margin) for gap in gaps]).sum()
        return factor * log_with(epsilon, terms / (len(gaps) if mean else 1))

    return psi


def hard(tau: float, beta: float, epsilon: float = 1.0, *, factor: float = 1.0, margin: float = 0.0) -> Psi:
    """The sum over negatives as K times a mean weighted by exp(beta u), robinson2021."""

    def psi(gaps: list[Tensor], _: Tensor) -> Tensor:
        u = [gap / tau + margin for gap in gaps]
        above, below = (torch.stack([torch.exp(power * x) for x in u]).sum() for power in (1 + beta, beta))
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


def expected_log(x: list[float], r: list[float], epsilon: float, k: int) -> tuple[float, np.ndarray, np.ndarray]:
    """E log(1 + sum of k terms / epsilon) with first and second derivatives for x, over all multinomial counts.

    Of the sum alone where epsilon is 0. The value is a sum of positive numbers: it keeps its digits however small.
    """
    value, slope, curvature = 0.0, np.zeros(len(x)), np.zeros((len(x), len(x)))
    for counts in ways_to_write(k, len(x)):
        ways = math.factorial(k)
        for count in counts:
            ways //= math.factorial(count)
        probability = ways * math.prod(p**n for p, n in zip(r, counts, strict=True))
        above, n = sum(c * each for c, each in zip(counts, x, strict=True)), np.array(counts, dtype=float)
        total = epsilon + above
        value += probability * (math.log1p(above / epsilon) if epsilon else math.log(above))
        slope += probability * n / total
        curvature -= probability * np.outer(n, n) / total**2
    return value, slope, curvature


def expected_log_of_two(x: list[float], r: float, epsilon: float, k: int) -> tuple[float, np.ndarray, np.ndarray]:
    """The same for two values, the first of probability r, by the binomial distribution: any k."""
    n = np.arange(k + 1, dtype=float)
    probability, counts = binom.pmf(n, k, r), np.stack([n, k - n])
    above = x[0] * counts[0] + x[1] * counts[1]
    total, logs = epsilon + above, np.log1p(above / epsilon) if epsilon else np.log(above)
    slope, curvature = (counts / total) @ probability, -((counts / total) * probability) @ (counts / total).T
    return float(logs @ probability), slope, curvature
