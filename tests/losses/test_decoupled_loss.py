"""DCLW: value, gradient with held weights as lightly has it, and the variant whose weights move along."""

# N samples per view, D features

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from lightly.loss.dcl_loss import DCLWLoss
from memory_watch import LargestResult
from streamed_checks import (
    KERNELS,
    assert_parts_average_to_the_whole,
    assert_true_second_derivatives,
    gradient_of_held_pairs,
    on_kernel,
    simplex,
    with_edges,
)
from whole_batch_checks import (
    Oracle,
    assert_bad_input_is_named,
    assert_half_precision_is_lifted,
    assert_matches,
    assert_order_of_samples_does_not_matter,
    draw_views,
    gradients,
    rotation,
)

from counterpoint.losses.infonce import DCL, DCLW
from oracles import decoupled_loss as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close, relative_error

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


def test_moving_the_weights_changes_the_gradient_and_not_the_value() -> None:
    z0, z1 = draw_views()
    held, moving = DCLW()(z0, z1), DCLW(backpropagate_weights=True)(z0, z1)
    assert torch.equal(held, moving)
    assert relative_error(gradients(held, z0, z1), gradients(moving, z0, z1)) > 0.01


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


@each_way
def test_what_does_not_matter(moves: bool) -> None:
    loss = DCLW(0.5, backpropagate_weights=moves)
    z0, z1 = (z.detach() for z in draw_views())
    assert_order_of_samples_does_not_matter(loss, z0, z1)
    for moved0, moved1 in ((z1, z0), (-z0, -z1), (z0 @ rotation(3), z1 @ rotation(3)), (3 * z0, 1e3 * z1)):
        assert_close(loss(moved0, moved1), loss(z0, z1))


@each_kernel
@each_way
@pytest.mark.parametrize("num_parts", [2, 3, 6])
def test_parts_average_to_the_whole(kernel: str, moves: bool, num_parts: int) -> None:
    """The weights' softmax is over the whole batch in every part."""
    with on_kernel(kernel):
        loss = DCLW(0.5, 0.2, backpropagate_weights=moves)
        assert_parts_average_to_the_whole(loss, *draw_views(6, 2), num_parts)


@each_kernel
@each_dtype
@each_way
@pytest.mark.parametrize(("tau", "sigma"), [(0.1, 0.5), (100.0, 0.5), (0.1, 0.01), (0.1, 100.0)])
def test_duplicated_silent_and_long_vectors(
    *, kernel: str, dtype: torch.dtype, moves: bool, tau: float, sigma: float
) -> None:
    loss = DCLW(tau, sigma, backpropagate_weights=moves)
    with on_kernel(kernel):
        assert_matches(loss, truth_of(tau, sigma, moves), *with_edges(1e3, dtype))


@each_kernel
@each_way
def test_a_low_temperature(kernel: str, moves: bool) -> None:
    loss = DCLW(0.01, backpropagate_weights=moves)
    with on_kernel(kernel):
        assert_matches(loss, truth_of(0.01, 0.5, moves), *with_edges(1.0, torch.float64))


@each_kernel
def test_a_silent_batch_is_at_chance_without_gradient(kernel: str) -> None:
    z = torch.zeros(4, 3, requires_grad=True)
    with on_kernel(kernel):
        value = DCLW()(z, z)
        assert not gradients(value, z, z).any()
    assert_numbers(value, DCLW().chance(4), dtype=torch.float32)


def test_no_tensor_of_all_pairs_is_made() -> None:
    z0, z1 = draw_views(40, 3)
    with on_kernel("tiled"), LargestResult() as largest:
        torch.autograd.grad(DCLW()(z0, z1), (z0, z1))
    assert largest.num_elements <= 2 * 40 * 3


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


def test_chance() -> None:
    alike = torch.ones(5, 3, dtype=torch.float64)
    assert_numbers(DCLW()(alike, alike), DCLW().chance(5))
    assert_numbers(DCLW().chance(5), math.log(8))
    for question in (DCLW().chance, DCLW().floor, DCLW().num_negatives):
        with pytest.raises(ValueError, match="at least 2 samples, got 1"):
            question(1)


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


@each_way
def test_half_precision_is_lifted(moves: bool) -> None:
    assert_half_precision_is_lifted(DCLW(backpropagate_weights=moves))


def test_bad_input_is_named() -> None:
    assert_bad_input_is_named(DCLW())


@pytest.mark.parametrize("value", [0, -1.0, math.nan])
def test_a_bad_temperature_is_named(value: float) -> None:
    with pytest.raises(ValueError, match=rf"temperature must be > 0, got {value}"):
        DCLW(value)
    with pytest.raises(ValueError, match=rf"sigma must be > 0, got {value}; yeh2022 uses 0\.5"):
        DCLW(0.1, value)


def test_infinite_temperatures_are_named() -> None:
    with pytest.raises(ValueError, match=r"temperature must be between 1e-30 and 1e\+30, got inf"):
        DCLW(math.inf)
    with pytest.raises(
        ValueError, match=r"sigma must be between 1e-30 and 1e\+30, got inf; .*losses\.DCL has equal weights"
    ):
        DCLW(0.1, math.inf)


def test_the_catalogue() -> None:
    assert DCLW().card.second_derivative.startswith("none, because")
    assert DCLW(backpropagate_weights=True).card.second_derivative == "true"
    assert list(DCLW().parameters()) == []
    assert DCLW().state_dict() == {}
