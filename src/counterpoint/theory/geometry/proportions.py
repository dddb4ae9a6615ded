"""Class proportions as they come from callers: positive shares of sum 1."""

# C classes

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError

SUM_TOLERANCE = 1e-6
MOST_SHOWN = 12


def check_proportions(proportions: Sequence[float] | np.ndarray | Tensor) -> Tensor:
    """Class proportions as float64 (C,), of sum 1 to rounding.

    Raises:
        UsageError: no real numbers, fewer than 2, not finite, not positive, or not of sum 1.

    >>> check_proportions([2, 1, 1])
    Traceback (most recent call last):
    counterpoint.core.errors.UsageError: proportions must sum to 1, got 4; divided by their sum they are 0.5, 0.25, 0.25
    """
    proportions_C = _real_numbers(proportions)
    if proportions_C.ndim != 1 or len(proportions_C) < 2:
        raise UsageError(f"proportions must be one per class for at least 2 classes, got {_few(proportions_C)}")
    if not bool(torch.isfinite(proportions_C).all()):
        raise UsageError(f"proportions must be finite, got {_few(proportions_C)}")
    if float(proportions_C.min()) <= 0:
        raise UsageError(
            f"proportions must be > 0, got {float(proportions_C.min()):g}; leave out classes that do not occur"
        )
    total = float(proportions_C.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        offer = _few(proportions_C / total)
        raise UsageError(f"proportions must sum to 1, got {total:g}; divided by their sum they are {offer}")
    return proportions_C / total


def _real_numbers(proportions: Sequence[float] | np.ndarray | Tensor) -> Tensor:
    """As float64; complex numbers are refused, which would lose their imaginary parts."""
    try:
        if isinstance(proportions, Tensor):
            proportions_C = proportions.detach()
        else:
            numbers_C = np.array(proportions, order="C")  # torch takes no views of negative strides
            if numbers_C.dtype == object:
                numbers_C = numbers_C.astype(np.float64)
            proportions_C = torch.from_numpy(np.atleast_1d(numbers_C))
        if proportions_C.is_complex():
            raise TypeError("complex")
        return proportions_C.double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"proportions must be real numbers, one per class, got {proportions!r}") from error


def _few(values: Tensor) -> str:
    """The first values as text."""
    flat = values.flatten().tolist()
    text = ", ".join(f"{value:.6g}" for value in flat[:MOST_SHOWN])
    return f"{text}, ..." if len(flat) > MOST_SHOWN else text or "none"
