"""MIO's losses, information and second derivatives of mio2021: loops over numbers. Imports no tensor code.

Losses are on score matrices: of a discrete joint distribution, or of the 2N vectors of a batch, first views first.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = list[list[float]]
Array = NDArray[np.float64]


# --- losses


def sigma(s: float) -> float:
    """1 / (1 + e^-s)."""
    return 1 / (1 + math.exp(-s))


def population(joint: Matrix, scores: Matrix, version: int) -> float:
    """Eq. 2, 13 and 17 with s = C / tau: p+ is the joint law, p- the product of its margins."""
    px = [math.fsum(row) for row in joint]
    py = [math.fsum(column) for column in zip(*joint, strict=True)]
    total = 0.0
    for x, row in enumerate(scores):
        for y, s in enumerate(row):
            positive = -math.log(sigma(s)) if version == 1 else -s
            negative = math.exp(s) if version == 3 else -math.log(1 - sigma(s))
            total += joint[x][y] * positive + px[x] * py[y] * negative
    return total


def batch(similarity: Array, tau: float, version: int, *, printed_sign: bool = False) -> float:
    """Eq. 4, 12 and 18; ``printed_sign`` takes the first term as Eq. 3 prints it, with e^{+C/tau}."""
    size = len(similarity)
    half = size // 2
    positive = negative = 0.0
    for n in range(half):
        s = similarity[n, n + half] / tau
        positive += -math.log(sigma(-s if printed_sign else s)) if version == 1 else -s
    for n in range(size):
        for m in range(size):
            if m % half != n % half:
                s = similarity[n, m] / tau
                negative += math.exp(s) if version == 3 else -math.log(1 - sigma(s))
    return positive / half + negative / (2 * half * (2 * half - 2))


def expanded_v1(similarity: Array, tau: float) -> float:
    """Eq. 11: attraction, the positives' repulsion, the negatives'."""
    size = len(similarity)
    half = size // 2
    own = [similarity[n, n + half] / tau for n in range(half)]
    others = [similarity[n, m] / tau for n in range(size) for m in range(size) if m % half != n % half]
    soft = [math.log(1 + math.exp(s)) for s in own]
    return (-sum(own) + sum(soft)) / half + sum(math.log(1 + math.exp(s)) for s in others) / len(others)


# --- information


def divergence(p: Matrix, q: Matrix) -> float:
    """KL(p || q) over the support of p."""
    pairs = [(a, b) for row, other in zip(p, q, strict=True) for a, b in zip(row, other, strict=True) if a > 0]
    return math.fsum(a * math.log(a / b) if b > 0 else math.inf for a, b in pairs)


# --- derivatives with respect to a linear projector, C_nm = z_n . z_m, z = psi^T h


def curvature_terms(s: float, version: int, *, is_positive: bool) -> tuple[float, float]:
    """First and second derivative of the loss of one pair with respect to s = C / tau."""
    if is_positive:
        return (-1 + sigma(s), sigma(s) * sigma(-s)) if version == 1 else (-1.0, 0.0)
    return (math.exp(s), math.exp(s)) if version == 3 else (sigma(s), sigma(s) * sigma(-s))


def same_column(h_n: Array, h_m: Array, k: int, l: int) -> Array:  # noqa: E741  (the paper's index)
    """B^(l)(k)_nm of Eq. 18: h_m h_n^T + h_n h_m^T if l = k, else 0."""
    outer = np.outer(h_m, h_n) + np.outer(h_n, h_m)
    return outer if l == k else np.zeros_like(outer)


def other_column(h_n: Array, h_m: Array, k: int, l: int) -> Array:  # noqa: E741
    """B^(l)(k)_nm as printed after Eq. 28 and 34: 0 if l = k, else h_m h_n^T + h_n h_m^T."""
    outer = np.outer(h_m, h_n) + np.outer(h_n, h_m)
    return np.zeros_like(outer) if l == k else outer


def projector_hessian(
    h: Array, psi: Array, tau: float, version: int, block: Callable[[Array, Array, int, int], Array] = same_column
) -> Array:
    """Eq. 25, 28 and 34 for every pair of columns (l, k): an array (in, out, in, out).

    A^(k)_nm = d C_nm / d psi_k = h_n (psi_k . h_m) + h_m (psi_k . h_n).
    """
    size, num_in, num_out = len(h), *psi.shape
    half = size // 2
    z = h @ psi
    hessian = np.zeros((num_in, num_out, num_in, num_out))
    for n in range(size):
        for m in range(size):
            if m == n:
                continue
            is_positive = m % half == n % half
            first, second = curvature_terms(float(z[n] @ z[m]) / tau, version, is_positive=is_positive)
            count = size if is_positive else size * (size - 2)
            for l in range(num_out):  # noqa: E741
                for k in range(num_out):
                    a_l = h[n] * (psi[:, l] @ h[m]) + h[m] * (psi[:, l] @ h[n])
                    a_k = h[n] * (psi[:, k] @ h[m]) + h[m] * (psi[:, k] @ h[n])
                    term = first * block(h[n], h[m], k, l) + second / tau * np.outer(a_l, a_k)
                    hessian[:, l, :, k] += term / (tau * count)
    return hessian
