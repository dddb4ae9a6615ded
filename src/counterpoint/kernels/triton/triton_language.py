"""Language of device code, and the known psi with their slopes, to full relative precision in either tail.

The only import of triton, which is optional: modules that need it are imported when a CUDA kernel first runs.
"""

# pyright: reportInvalidTypeForm=false

from typing import Any

import triton
from triton import knobs

# Device code is a language of its own that looks like Python: a type checker has nothing to say about it.
jit: Any = triton.jit
tl: Any = triton.language


def is_interpreted() -> bool:
    """Tell whether programs run as NumPy on the CPU (``TRITON_INTERPRET=1`` when triton was imported)."""
    return bool(knobs.runtime.interpret)


@jit
def value(u, tiling: tl.constexpr):
    """Value of psi, for those that are summed."""
    if tiling.psi == "softplus":
        # No exponential of a positive number, so no overflow.
        return tl.maximum(u, 0.0) + log1p(tl.exp(-tl.abs(u)), tiling)
    elif tiling.psi == "sigmoid":
        return sigmoid(u)
    elif tiling.psi == "hinge":
        return tl.maximum(u, 0.0)
    elif tiling.psi == "square":
        return tl.where(u == float("-inf"), 0.0, u * u)  # the square of what does not count would be infinite
    else:
        tl.static_assert(tiling.psi == "identity")
        return tl.where(u == float("-inf"), 0.0, u)


@jit
def slope(u, tiling: tl.constexpr):
    """Derivative of psi."""
    if tiling.psi == "exp":
        return tl.exp2(u)
    elif tiling.psi == "softplus":
        return sigmoid(u)
    elif tiling.psi == "sigmoid":
        # The slope is even in u: of -|u|, so that nothing overflows.
        tail = tl.exp(-tl.abs(u))
        return tail / ((1.0 + tail) * (1.0 + tail))
    elif tiling.psi == "hinge":
        return tl.where(u > 0.0, 1.0, 0.0).to(u.dtype)
    elif tiling.psi == "square":
        return tl.where(u == float("-inf"), 0.0, 2.0 * u)
    else:
        tl.static_assert(tiling.psi == "identity")
        return tl.where(u == float("-inf"), 0.0, 1.0).to(u.dtype)


@jit
def sigmoid(u):
    """Logistic function, without overflow and to full relative precision in either tail."""
    tail = tl.exp(-tl.abs(u))
    return tl.where(u >= 0.0, 1.0, tail) / (1.0 + tail)


@jit
def log1p(x, tiling: tl.constexpr):
    r"""Logarithm of 1 + x for x in [0, 1], :math:`2 \operatorname{artanh}(z)` of z = x / (2 + x), to full precision."""
    # 2 (z + z^3 / 3 + z^5 / 5 + ...) by Horner's rule, the last term first; z^2 <= 1/9.
    z = x / (2.0 + x)
    num_terms: tl.constexpr = 17 if tiling.accumulator == tl.float64 else 8  # z is at most 1/3
    series = tl.zeros(x.shape, x.dtype)
    for index in tl.static_range(num_terms):
        series = series * (z * z) + 1.0 / (2 * (num_terms - index) - 1)
    return 2.0 * z * series
