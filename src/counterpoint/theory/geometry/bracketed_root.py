"""The root of a function of one number between two places where its signs differ."""

from collections.abc import Callable

LEAST_TOLERANCE = 1e-15  # Brent's method asks for one above zero; rounding adds 4 eps of the root


def root_between(function: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-14) -> float:
    """The root by Brent's method.

    Args:
        function: continuous, with different signs at low and high, or zero at one of them.
        low: one end.
        high: the other end.
        tolerance: of the root, absolute, > 0.

    Raises:
        ValueError: the signs at low and high are the same.

    >>> round(root_between(lambda x: x * x - 2, 0.0, 2.0), 12)
    1.414213562373
    """
    from scipy.optimize import (
        root_scalar,  # deferred: SciPy's optimisers take as long to load as the rest of the theory
    )

    found = root_scalar(function, bracket=(low, high), method="brentq", xtol=max(tolerance, LEAST_TOLERANCE))
    return float(found.root)
