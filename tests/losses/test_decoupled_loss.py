"""DCLW: value, gradient with held weights, and the variant whose weights move along."""

# N samples per view, D features

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from loss_checks import (
    KERNELS,
    Oracle,
    assert_matches,
    assert_only_a_first_derivative,
    assert_simplex_attains_the_floor,
    draw_views,
    gradient_of_held_pairs,
    gradients,
    on_kernel,
)

from counterpoint.losses.infonce import DCLW
from oracles import pairwise_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_way = pytest.mark.parametrize("moves", [False, True])


def truth_of(tau: float, sigma: float, moves: bool) -> Oracle:
    return partial(oracle.dclw, tau=tau, sigma=sigma, weights_move=moves)


@each_kernel
@each_dtype
@each_way
@pytest.mark.parametrize(("n", "d", "tau", "sigma"), [(2, 3, 0.1, 0.5), (5, 3, 0.5, 0.2), (7, 2, 1.0, 1.0)])
def test_value_and_gradient_are_the_papers(
    *, kernel: str, dtype: torch.dtype, moves: bool, n: int, d: int, tau: float, sigma: float
) -> None:
    loss = DCLW(tau, sigma, backpropagate_weights=moves)
    with on_kernel(kernel):
        assert_matches(loss, truth_of(tau, sigma, moves), *draw_views(n, d, dtype=dtype))


def test_pairs_that_disagree_pull_more() -> None:
    """By hand: cosines of 1 and 0; the weights are 2 - 2 e^2 / (e^2 + 1) and 2 - 2 / (e^2 + 1)."""
    z0, z1 = torch.eye(2, 4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[[0, 3]]
    weight = 2 - 2 * math.exp(2) / (math.exp(2) + 1)
    assert_numbers(DCLW(0.1)(z0, z1), math.log(2) - weight / 2 / 0.1)
    assert weight < 1


@each_kernel
def test_held_weights_refuse_a_second_derivative(kernel: str) -> None:
    with on_kernel(kernel):
        refusal = "no second derivative while its weights are held fixed"
        assert_only_a_first_derivative(DCLW(0.5), *draw_views(4, 2), refusal)


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_the_floor_is_attained_and_never_passed(n: int, tau: float) -> None:
    assert_simplex_attains_the_floor(DCLW(tau), n)


def test_importance_gives_the_gradient() -> None:
    tau, sigma = 0.5, 0.3
    raw = draw_views()
    z0, z1 = (F.normalize(z) for z in raw)
    alpha = DCLW(tau, sigma).importance(*raw)
    weight = 2 - 5 * torch.softmax((z0 * z1).sum(1) / sigma, 0).detach()
    held0, held1 = (z.detach().requires_grad_() for z in (z0, z1))
    on_sphere = gradient_of_held_pairs(alpha / 10, weight / tau / 5, held0, held1)
    expected = torch.autograd.grad((z0, z1), raw, grad_outputs=tuple(on_sphere))
    assert_close(gradients(DCLW(tau, sigma)(*raw), *raw), torch.stack(expected))
