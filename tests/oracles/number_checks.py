"""Compare plain numbers, nested lists or tensors with what an oracle says, by the one tolerance table."""

from typing import Any

import torch
from torch import Tensor

from tolerances import assert_close


def as_float64(values: Any) -> Tensor:
    """Numbers of any layout as a float64 tensor."""
    return values.detach().double() if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.float64)


def assert_numbers(actual: Any, expected: Any, *, dtype: torch.dtype = torch.float64) -> None:
    """Assert the table's tolerance for numbers computed in ``dtype``; NaN and infinity must stand where expected."""
    ours, theirs = as_float64(actual), as_float64(expected)
    assert ours.shape == theirs.shape, f"shape {tuple(ours.shape)}, expected {tuple(theirs.shape)}"
    finite = torch.isfinite(theirs)
    assert torch.equal(torch.isfinite(ours), finite), f"{actual}, expected {expected}"
    assert torch.equal(ours[~finite].nan_to_num(), theirs[~finite].nan_to_num()), f"{actual}, expected {expected}"
    assert_close(ours[finite], theirs[finite], dtype=dtype)
