"""DCLW: value, gradient with held weights as lightly has it, and the variant whose weights move along."""

# N samples per view, D features

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from lightly.loss.dcl_loss import DCLWLoss
from streamed_checks import (
    KERNELS,
    assert_true_second_derivatives,
    gradient_of_held_pairs,
    on_kernel,
    simplex,
)
from whole_batch_checks import (
    Oracle,
    assert_matches,
    draw_views,
    gradients,
)

from counterpoint.losses.infonce import DCL, DCLW
from oracles import decoupled_loss as oracle
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


@each_kernel
@each_dtype
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize(("tau", "sigma"), [(0.1, 0.5), (0.5, 0.2)])
def test_equal_to_lightly(kernel: str, dtype: torch.dtype, tau: float, sigma: float) -> None:
    z0, z1 = draw_views(8, 4, dtype=dtype)
    theirs = DCLWLoss(tau, sigma)(z0, z1)
    with on_kernel(kernel):
        ours = DCLW(tau, sigma)(z0, z1)
        assert_close(ours, theirs)
        assert_close(gradients(ours, z0, z1), gradients(theirs, z0, z1))


def test_pairs_that_disagree_pull_more() -> None:
    """By hand: cosines of 1 and 0; the weights are 2 - 2 e^2 / (e^2 + 1) and 2 - 2 / (e^2 + 1)."""
    z0, z1 = torch.eye(2, 4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)[[0, 3]]
    weight = 2 - 2 * math.exp(2) / (math.exp(2) + 1)
    assert_numbers(DCLW(0.1)(z0, z1), math.log(2) - weight / 2 / 0.1)
    assert weight < 1


@each_kernel
@pytest.mark.thorough
def test_both_derivatives_are_true_where_weights_move(kernel: str) -> None:
    assert_true_second_derivatives(DCLW(0.5, backpropagate_weights=True), kernel, *draw_views(4, 2, seed=1))


@each_kernel
def test_held_weights_refuse_a_second_derivative(kernel: str) -> None:
    z0, z1 = draw_views(4, 2)
    loss = DCLW(0.5)
    refuses = partial(pytest.raises, RuntimeError, match="no second derivative while its weights are held fixed")
    with on_kernel(kernel):
        slopes = torch.autograd.grad(loss(z0, z1), (z0, z1), create_graph=True)
        with refuses():
            torch.autograd.grad(slopes[0].square().sum(), z0)
        with refuses():
            torch.func.hessian(lambda z: loss(z, z1.detach()))(z0.detach())
        with refuses():
            torch.func.jvp(torch.func.grad(lambda z: loss(z, z1.detach())), (z0.detach(),), (z0.detach(),))


@each_kernel
def test_the_first_derivative_is_the_same_in_every_mode(kernel: str) -> None:
    z0, z1 = (z.detach() for z in draw_views(5, 2))
    loss = DCLW(0.5)
    with on_kernel(kernel):
        leaf = z0.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(leaf, z1), leaf)
        assert_close(torch.func.grad(lambda z: loss(z, z1))(z0), expected)
        assert_close(torch.func.jvp(lambda z: loss(z, z1), (z0,), (z1,))[1], (expected * z1).sum())
        assert_close(torch.func.jacrev(lambda z: loss(z, z1))(z0), expected)


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_the_floor_is_attained_and_never_passed(n: int, tau: float) -> None:
    loss = DCLW(tau)
    z, basis = simplex(n), torch.eye(n, dtype=torch.float64)
    assert_numbers(loss(z, z), loss.floor(n))
    assert_numbers(loss(basis, basis), loss.floor(n, nonnegative=True))
    for seed in range(20):
        z0, z1 = (z.detach() for z in draw_views(n, 3, seed=seed))
        assert float(loss(z0, z1)) > float(DCL(tau)(z0, z1)) > loss.floor(n)
        assert float(loss(z0.abs(), z1.abs())) > loss.floor(n, nonnegative=True)


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
