"""The toy models of directclr2022 in NumPy and plain loops; formulas that are printed wrong are here as printed."""

import numpy as np
from numpy.typing import NDArray

from oracles.alphacl_theory_oracle import gradient, half_square  # noqa: F401 - who tests flows takes both from here

Matrix = NDArray[np.float64]


def distance_loss(z: Matrix, other: Matrix) -> complex:
    """Eq. 2."""
    total = 0.0
    for i in range(len(z)):
        own = np.exp(-half_square(z[i], other[i]))
        rest = sum(np.exp(-half_square(z[i], z[j])) for j in range(len(z)) if j != i)
        total += -np.log(own / (rest + own))
    return total


def product_loss(z: Matrix, other: Matrix, temperature: float = 0.1) -> complex:
    """The released toys' loss."""
    total = 0.0
    for i in range(len(z)):
        scores = [np.sum(z[i] * other[j]) / temperature for j in range(len(z))]
        top = max(np.real(score) for score in scores)
        total += -(scores[i] - top - np.log(sum(np.exp(score - top) for score in scores)))
    return total / len(z)


def alphas(z: Matrix, other: Matrix) -> Matrix:
    """alpha_ij below Eq. 4; alpha_ii belongs to the positive."""
    n = len(z)
    alpha = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            alpha[i, j] = np.exp(-half_square(z[i], other[i] if i == j else z[j]))
        alpha[i] /= alpha[i].sum()
    return alpha


def gap_of_lemma_2(x: Matrix, other: Matrix, alpha: Matrix) -> Matrix:
    """Eq. 7."""
    gap = np.zeros((x.shape[1], x.shape[1]))
    for i in range(len(x)):
        for j in range(len(x)):
            gap += alpha[i, j] * np.outer(x[i] - x[j], x[i] - x[j])
        gap -= (1 - alpha[i, i]) * np.outer(other[i] - x[i], other[i] - x[i])
    return gap


def gap_as_printed(x: Matrix, other: Matrix, alpha: Matrix, sign: float = -1.0) -> Matrix:
    """Eq. 6; sign=+1 is the first line of appendix B.2."""
    gap = np.zeros((x.shape[1], x.shape[1]))
    for i in range(len(x)):
        bracket = np.zeros(x.shape[1])
        for j in range(len(x)):
            if j != i:
                bracket += alpha[i, j] * (other[i] - x[j]) + alpha[j, i] * (x[i] - x[j])
        gap += sign * np.outer(bracket, x[i])
        gap -= (1 - alpha[i, i]) * np.outer(other[i] - x[i], other[i])
    return gap


def inverse_gaps_as_printed(sigma: Matrix) -> Matrix:
    """H of Eq. 15 and 19."""
    h = np.zeros((len(sigma), len(sigma)))
    for k in range(len(sigma)):
        for other in range(len(sigma)):
            if k != other:
                h[k, other] = 1 / (sigma[k] ** 2 - sigma[other] ** 2)
    return h


def growth_as_printed(first: float, constant: float, rate: float, time: float, num_steps: int = 4000) -> float:
    """Section 5.3: sigma' = sigma (sigma^2 + C) rate, by classical Runge-Kutta."""

    def slope(s: float) -> float:
        return s * (s * s + constant) * rate

    step = time / num_steps
    for _ in range(num_steps):
        a = slope(first)
        b = slope(first + step * a / 2)
        c = slope(first + step * b / 2)
        first += step * (a + 2 * b + 2 * c + slope(first + step * c)) / 6
    return first
