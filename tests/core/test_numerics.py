"""Entropy of rows of weights, and the ball that rows are brought into."""

# N rows, M columns, D features

import math

import pytest
import torch

from counterpoint.core.numerics import into_ball, row_entropy
from oracles.number_checks import assert_numbers


@pytest.mark.parametrize("size", [1e-320, 1.0, 8e307])
def test_entropy_of_rows_whatever_their_size(size: float) -> None:
    weight_NM = size * torch.tensor([[1.0, 1.0, 2.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    assert_numbers(row_entropy(weight_NM), [1.5 * math.log(2), 0.0, math.log(3)])


def test_a_row_without_weight_has_no_entropy() -> None:
    assert_numbers(row_entropy(torch.tensor([[0.0, 0.0], [1.0, 3.0]]).double()).isnan().double(), [1.0, 0.0])


def test_only_long_rows_are_shortened() -> None:
    z_ND = torch.tensor([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0], [0.0, -7.0]], dtype=torch.float64, requires_grad=True)
    short_ND = into_ball(z_ND, 2.0)
    assert_numbers(short_ND, [[1.2, 1.6], [0.6, 0.8], [0.0, 0.0], [0.0, -2.0]])
    (slope_ND,) = torch.autograd.grad(short_ND[:, 1].sum(), z_ND)
    # Inside: 1. Outside: radius / |z| (I - u u^T), across the row only.
    assert_numbers(slope_ND, [[-0.192, 0.144], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
