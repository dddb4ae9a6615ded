r"""What a user's phi and psi are, read from their derivatives: from functions alone, what ``theory`` asks for.

Autograd gives the derivatives, a grid the places: all gaps that unit vectors can have, -2 to 2, and sums from 1e-3 to
1e3. That is evidence and no proof; who knows better says so in a ``Psi`` or ``Phi`` of their own.
"""

from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.kernels.pair_functions import EXPONENTIAL
from counterpoint.losses.pairs import Elementwise, LogPlus, Phi, Psi

NUM_GAPS, NUM_SUMS = 4001, 61
TOLERANCE = 1e-9  # relative, of what must be constant or not negative
LARGEST_JUMP = 0.25  # of a slope between neighbours, over its whole range: a larger one is a kink


def read_phi(phi: Phi) -> Phi:
    """Phi, known as factor * x or factor * log(epsilon + x) if it is one of them.

    >>> read_phi(Phi(lambda x: 3 * torch.log(2 + x), "mine")).logarithm
    LogPlus(epsilon=2.0, factor=3.0)
    """
    if phi.is_linear or phi.logarithm is not None:
        return phi
    sum_K = torch.logspace(-3, 3, NUM_SUMS, dtype=torch.float64)
    value_K, slope_K = phi.of_sum(sum_K), _slope(phi.of_sum, sum_K)
    factor = float(slope_K[0])
    if _agree(value_K, factor * sum_K):
        return replace(phi, is_linear=True)
    inverse_K = 1 / slope_K  # (epsilon + x) / factor
    factor = float((sum_K[-1] - sum_K[0]) / (inverse_K[-1] - inverse_K[0]))
    epsilon = float(factor * inverse_K[0] - sum_K[0])
    known = LogPlus(_rounded(max(epsilon, 0.0)), _rounded(factor))
    return replace(phi, logarithm=known) if _agree(value_K, known.of_sum(sum_K)) else phi


def read_psi(psi: Psi) -> Psi:
    """Psi, known as an exponential, or as convex and increasing, if it is.

    >>> from counterpoint.losses.pairs import user_psi
    >>> found = read_psi(user_psi(lambda gap: torch.exp(2 * gap)))
    >>> found.function.name, found.scale, found.is_convex
    ('exp', 2.0, True)
    """
    function = psi.function
    if function == EXPONENTIAL or (psi.is_convex and psi.rises_with_gap):
        return psi
    gap_K = torch.linspace(-2, 2, NUM_GAPS, dtype=torch.float64)
    u_K = psi.scale * gap_K + psi.margin

    def of_gap(gap: Tensor) -> Tensor:
        return function.value(psi.scale * gap + psi.margin)

    value_K, slope_K, bend_K = of_gap(gap_K), psi.scale * function.slope(u_K), psi.scale**2 * function.curvature(u_K)
    middle = NUM_GAPS // 2
    if bool((value_K > 0).all()):
        scale, margin = float(slope_K[middle] / value_K[middle]), float(value_K[middle].log())
        scale, margin = _rounded(scale), _rounded(margin)
        if scale > 0 and _agree(value_K, torch.exp(scale * gap_K + margin)):
            return Psi(EXPONENTIAL, psi.formula, scale, margin)
    is_smooth = float(slope_K.diff().abs().max()) <= LARGEST_JUMP * float(slope_K.max() - slope_K.min())
    is_straight = _agree(slope_K, slope_K[middle].expand_as(slope_K))
    if not (is_smooth or is_straight):
        return psi
    is_convex = psi.is_convex or bool((bend_K >= -TOLERANCE * bend_K.abs().max()).all())
    return replace(psi, is_convex=is_convex, is_increasing=bool((slope_K >= -TOLERANCE * slope_K.abs().max()).all()))


def _slope(function: Elementwise, x_K: Tensor) -> Tensor:
    """Derivative by autograd; 0 where the function does not depend on its argument."""
    x_K = x_K.clone().requires_grad_()
    with torch.enable_grad():
        total = function(x_K).sum()
    found = torch.autograd.grad(total, x_K)[0] if total.requires_grad else None
    return torch.zeros_like(x_K) if found is None else found


def _agree(found_K: Tensor, expected_K: Tensor) -> bool:
    """The same numbers up to rounding, each to its own size and to that of the largest."""
    size_K = expected_K.abs().clamp(min=1e-3 * float(expected_K.abs().max()))
    return bool(((found_K - expected_K).abs() <= TOLERANCE * size_K).all())


def _rounded(value: float) -> float:
    """Without the last digits, which derivatives at a grid do not know."""
    return float(f"{value:.11g}") if abs(value) > TOLERANCE else 0.0
