"""Entropy of rows of weights, the ball that rows are brought into, and functions worked out by parts of rows."""

# N rows, M columns, D features

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.numerics import FEW, ROWS, into_ball, row_dots, row_entropy, rowwise
from counterpoint.losses.inputs import prepare_views
from oracles.number_checks import assert_numbers
from tolerances import assert_close


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


# --- by parts of rows: value and derivatives are those of the function

N, D = 2 * ROWS + 76, FEW // ROWS  # two parts and a rest, more numbers than are left to torch


def draw() -> tuple[Tensor, Tensor]:
    z = torch.randn(2, N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return z[0].requires_grad_(), z[1].requires_grad_()


def product_of_sums(a_ND: Tensor, b_ND: Tensor) -> Tensor:
    return torch.exp(a_ND / 9).sum(1) * b_ND.sum(1)


def test_value_and_both_derivatives_are_those_of_the_function() -> None:
    a_ND, b_ND = draw()
    results = []
    for value in (rowwise(product_of_sums, a_ND, b_ND), product_of_sums(a_ND, b_ND)):
        slopes = torch.autograd.grad(value.square().sum(), (a_ND, b_ND), create_graph=True)
        seconds = torch.autograd.grad(slopes[0].square().sum() + slopes[1].sum(), (a_ND, b_ND))
        results.append((value, *slopes, *seconds))
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected)


def test_an_input_may_be_a_function_of_the_other() -> None:
    a_ND, _ = draw()
    (slope,) = torch.autograd.grad(row_dots(a_ND, 2 * a_ND).sum(), a_ND, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), a_ND)
    assert_close(slope, 4 * a_ND)
    assert_close(second, torch.full_like(a_ND, 4.0))


def test_transforms_see_the_function() -> None:
    a_ND, b_ND = (z.detach() for z in draw())
    tangent = torch.func.jvp(lambda a: row_dots(a, b_ND), (a_ND,), (b_ND,))[1]
    assert_close(tangent, b_ND.square().sum(1))


def test_a_given_gradient_is_the_derived_one() -> None:
    a_ND, b_ND = draw()
    upstream_N = torch.linspace(-1, 1, N, dtype=torch.float64)
    ours = torch.autograd.grad(row_dots(a_ND, b_ND), (a_ND, b_ND), upstream_N)
    derived = torch.autograd.grad((a_ND * b_ND).sum(1), (a_ND, b_ND), upstream_N)
    for actual, expected in zip(ours, derived, strict=True):
        assert_close(actual, expected)


def test_unit_length_has_its_true_gradient() -> None:
    """Views large enough for parts, whose gradient is given, against torch's own normalisation."""
    a_ND, b_ND = draw()
    weight_ND = torch.linspace(-1, 1, D, dtype=torch.float64) * torch.arange(1, N + 1)[:, None]
    ours = torch.autograd.grad((prepare_views(a_ND, b_ND, normalize=True)[0] * weight_ND).sum(), a_ND)
    theirs = torch.autograd.grad((F.normalize(a_ND) * weight_ND).sum(), a_ND)
    assert_close(ours[0], theirs[0])
