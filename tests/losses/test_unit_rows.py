"""core.numerics.unit_rows, on which every loss stands: values, gradients, silent rows and extreme sizes."""

# N rows, D features

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from counterpoint.core.numerics import unit_rows
from oracles.number_checks import assert_numbers
from tolerances import assert_close

DTYPES = [torch.float64, torch.float32]
ENTRY = st.floats(-10, 10, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)


@given(arrays.arrays(np.float64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=ENTRY))
@settings(max_examples=50)
def test_rows_get_length_one_and_zero_rows_stay(z: np.ndarray) -> None:
    length = np.linalg.norm(z, axis=1, keepdims=True)
    expected = np.divide(z, length, out=np.zeros_like(z), where=length > 0)
    assert_close(unit_rows(torch.from_numpy(z)), torch.from_numpy(expected))


def test_the_gradient_equals_finite_differences_away_from_zero(generator: torch.Generator) -> None:
    z = (torch.randn(4, 3, generator=generator, dtype=torch.float64) + 2.0).requires_grad_()
    assert torch.autograd.gradcheck(unit_rows, z)
    assert torch.autograd.gradgradcheck(unit_rows, z)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e-30, 1e-15, 1.0, 1e15, 1e30])
def test_size_does_not_matter(dtype: torch.dtype, size: float) -> None:
    """The squares of 1e-30 and 1e30 leave float32; value and gradient / size must not."""
    z = (torch.tensor([[3.0, -4.0, 0.0]], dtype=dtype) * size).requires_grad_()
    unit = unit_rows(z)
    unit[0, 0].backward()
    assert z.grad is not None
    assert_numbers(unit, [[0.6, -0.8, 0.0]], dtype=dtype)
    assert_numbers(z.grad.double() * size, [[0.128, 0.096, 0.0]], dtype=dtype)
