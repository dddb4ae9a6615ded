"""Random one-dimensional slices of features, and how far a slice is from a standard normal.

By Cramér and Wold's theorem features are standard normal exactly where all their slices are.
"""

# N samples, D features, M slices

import math

import torch
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_SLICES, normal
from counterpoint.core.numerics import unit_rows

# Knots of the trapezoid rule on [-5, 5]. Real slices have symmetric integrands, and at 0 the integrand vanishes: of 17
# knots these 8 remain, with twice their weight.
LIMIT, NUM_KNOTS = 5.0, 17
HALF = NUM_KNOTS // 2
STEP = LIMIT / HALF


def slice_directions(num_slices: int, like_ND: Tensor, *, seed: int, step: int) -> Tensor:
    """Unit vectors, uniform on the sphere: a pure function of seed, step and the number of features.

    Args:
        num_slices: M >= 1.
        like_ND: features (n, d), whose width, dtype and device the directions have.
        seed: non-negative int below 2**64.
        step: non-negative int below 2**32; each step has its own directions.

    Returns:
        Columns of length 1, shape (d, m).

    >>> a = slice_directions(3, torch.zeros(2, 4), seed=0, step=0)
    >>> a.shape, bool(torch.allclose(a.norm(dim=0), torch.ones(3)))
    (torch.Size([4, 3]), True)
    """
    ids_M = torch.arange(num_slices, device=like_ND.device)
    drawn_MD = normal(seed, step, ids_M, PURPOSE_SLICES, like_ND.shape[1])
    return unit_rows(drawn_MD.to(like_ND.dtype)).mT


def knots() -> list[tuple[float, float, float]]:
    """Positive knots t of the trapezoid rule, with the normal's characteristic function there and the knot's weight."""
    found = []
    for number in range(1, HALF + 1):
        t = number * STEP
        normal_at_t = math.exp(-t * t / 2)
        # Twice for the knot at -t; the ends of the interval have half the weight.
        found.append((t, normal_at_t, (1 if number == HALF else 2) * STEP * normal_at_t))
    return found


def epps_pulley(p_NM: Tensor) -> Tensor:
    r"""Epps and Pulley's statistic of each column: how far its characteristic function is from the normal's.

    .. math::
        T_m = n \int_{-5}^{5} \Big| \frac{1}{n} \sum_i e^{\mathrm{i} t p_{im}} - e^{-t^2 / 2} \Big|^2
        e^{-t^2 / 2} \, dt

    by the trapezoid rule on 17 knots. Differentiable to any order.

    Source: epps1983; balestriero2025 (the knots).

    Args:
        p_NM: projections of n samples, whose mean and deviation count.

    Returns:
        Shape (m,), >= 0.

    >>> [round(float(value), 2) for value in epps_pulley(torch.tensor([[-1.0, 5.0], [1.0, 5.0]]))]
    [0.22, 7.88]
    """
    total_M = torch.zeros_like(p_NM[0])
    for t, normal_at_t, weight in knots():
        angle_NM = t * p_NM
        real_M, imaginary_M = angle_NM.cos().mean(dim=0), angle_NM.sin().mean(dim=0)
        total_M = total_M + weight * ((real_M - normal_at_t).square() + imaginary_M.square())
    return len(p_NM) * total_M
