"""SigLIP's loss: value, and the gradients of both views, of the scale and of the bias."""

# N samples per view, D features

import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from loss_checks import (
    KERNELS,
    Oracle,
    assert_matches,
    draw_views,
    gradient_of_held_pairs,
    gradients,
    least_on_descent,
    on_kernel,
    parameter_gradients,
    simplex,
    with_parameters,
)
from open_clip.loss import SigLipLoss
from torch import Tensor

from counterpoint.kernels.select import recording, use
from counterpoint.losses.sigmoid_pair import SigmoidPair
from oracles import pairwise_losses as oracle
from oracles.family_losses import complex_step
from oracles.number_checks import assert_numbers
from tolerances import assert_close

STARTS = [(10.0, -10.0), (1.5, 0.3)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_start = pytest.mark.parametrize("start", STARTS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_unit = pytest.mark.parametrize("normalize", [True, False])


def truth_of(loss: SigmoidPair) -> Oracle:
    bias = float(loss.bias.detach() if isinstance(loss.bias, Tensor) else loss.bias)
    logs: list[float | complex] = [math.log(loss.scale.value), bias]
    return lambda z0, z1: oracle.sigmoid_pair(z0, z1, logs, loss.normalize)


def learned(loss: SigmoidPair) -> tuple[Tensor, Tensor]:
    """The logarithm of the scale, and the bias."""
    assert loss.scale.log is not None
    assert isinstance(loss.bias, Tensor)
    return loss.scale.log, loss.bias


@each_kernel
@each_start
@each_dtype
@each_unit
@pytest.mark.parametrize("learnable", [True, False])
@pytest.mark.parametrize(("n", "d"), [(2, 3), (5, 3), (7, 2)])
@pytest.mark.sampled(3)
def test_value_and_gradient_are_the_papers(
    *, kernel: str, start: tuple[float, float], dtype: torch.dtype, normalize: bool, learnable: bool, n: int, d: int
) -> None:
    loss = SigmoidPair(*start, learnable, normalize=normalize)
    with on_kernel(kernel):
        assert_matches(loss, truth_of(loss), *draw_views(n, d, dtype=dtype))


@each_kernel
@each_start
@each_dtype
def test_scale_and_bias_get_their_gradients(kernel: str, start: tuple[float, float], dtype: torch.dtype) -> None:
    loss = SigmoidPair(*start).to(dtype)
    z0, z1 = draw_views(5, dtype=dtype)
    assert list(dict(loss.named_parameters())) == ["bias", "scale.log"]
    with on_kernel(kernel):
        bias, log_scale = parameter_gradients(loss(z0, z1), loss)
    rows = z0.tolist(), z1.tolist()
    logs = [float(x.detach()) for x in learned(loss)]
    expected = complex_step(lambda logs: complex(oracle.sigmoid_pair(*rows, logs, True)), logs)
    assert_numbers([log_scale, bias], expected, dtype=dtype)


@each_kernel
@each_start
@each_dtype
def test_equal_to_open_clip(kernel: str, start: tuple[float, float], dtype: torch.dtype) -> None:
    loss = SigmoidPair(*start).to(dtype)
    z0, z1 = draw_views(6, dtype=dtype)
    scale, bias = (torch.tensor(x, dtype=dtype, requires_grad=True) for x in (math.log(start[0]), start[1]))
    theirs = SigLipLoss()(F.normalize(z0), F.normalize(z1), scale.exp(), bias)
    *views, of_bias, of_scale = torch.autograd.grad(theirs, (z0, z1, bias, scale))
    with torch.no_grad():
        for parameter, start_of_theirs in zip(learned(loss), (scale, bias), strict=True):
            parameter.copy_(start_of_theirs)
    with on_kernel(kernel):
        ours, fixed = loss(z0, z1), SigmoidPair(*start, learnable=False)(z0, z1)
        assert_close(ours, theirs)
        assert_close(fixed, theirs)
        assert_numbers(parameter_gradients(ours, loss), [float(of_bias), float(of_scale)], dtype=dtype)
        assert_close(gradients(ours, z0, z1), torch.stack(views))
        assert_close(gradients(fixed, z0, z1), torch.stack(views))


@each_kernel
def test_derivatives_are_true_for_scale_and_bias_too(kernel: str) -> None:
    loss = SigmoidPair(3.0, -1.0)
    inputs = (*draw_views(4, 2), *(torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (-1.0, 1.1)))
    with on_kernel(kernel):
        assert torch.autograd.gradcheck(lambda *x: with_parameters(loss, *x), inputs)
        assert torch.autograd.gradgradcheck(lambda *x: with_parameters(loss, *x), inputs)


@each_start
@pytest.mark.parametrize("n", [2, 3, 8])
def test_the_floor_is_never_passed(start: tuple[float, float], n: int) -> None:
    """Nor is it idle: a simplex comes near wherever pulling all positives together is best."""
    loss = SigmoidPair(*start)
    basis = torch.eye(n, dtype=torch.float64)
    assert_numbers(loss(basis, basis), loss.floor(n, nonnegative=True), dtype=torch.float32)
    assert_numbers(SigmoidPair(*start, False)(basis, basis), SigmoidPair(*start, False).floor(n, nonnegative=True))
    assert float(loss(simplex(n), simplex(n)).detach()) >= loss.floor(n) - 1e-12
    for seed in range(20):
        z0, z1 = (z.detach() for z in draw_views(n, 3, seed=seed))
        for second in (z1, -z1, -z0):
            assert float(loss(z0, second).detach()) > loss.floor(n)


@pytest.mark.parametrize(("n", "start"), [(3, (10.0, -10.0)), (8, (10.0, -10.0)), (8, (1.0, -4.0))])
def test_a_simplex_attains_the_floor_where_positives_prevail(n: int, start: tuple[float, float]) -> None:
    loss = SigmoidPair(*start, learnable=False)
    assert_numbers(loss(simplex(n), simplex(n)), loss.floor(n))


@pytest.mark.parametrize(("n", "start"), [(8, (10.0, 3.0)), (30, (1.5, 0.3))])
def test_where_negatives_prevail_gradient_descent_goes_below_the_simplex_but_not_below_the_floor(
    n: int, start: tuple[float, float]
) -> None:
    loss = SigmoidPair(*start, learnable=False)
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(2, n, n, generator=generator, dtype=torch.float64)
    reached = least_on_descent(lambda z: loss(*z), views, lr=0.05, num_steps=300)
    assert loss.floor(n) <= reached < float(loss(simplex(n), simplex(n)))


@each_unit
def test_importance_gives_the_gradient(normalize: bool) -> None:
    loss = SigmoidPair(2.0, -1.0, learnable=False, normalize=normalize)
    z0, z1 = ((F.normalize(z.detach()) if normalize else z.detach()).requires_grad_() for z in draw_views())
    alpha = loss.importance(z0, z1)
    pull = 2.0 * torch.sigmoid(-(2.0 * (z0 * z1).detach().sum(1) - 1.0))
    raw = SigmoidPair(2.0, -1.0, learnable=False, normalize=False)(z0, z1)
    assert_close(gradients(raw, z0, z1), gradient_of_held_pairs(alpha / 5, pull / 5, z0, z1))
    assert not alpha[5:].any()
    assert not alpha[:5, :5].any()
    assert not alpha[:5, 5:].diagonal().any()


def test_bad_arguments_are_named() -> None:
    for scale in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=rf"scale .*got {scale}; zhai2023 starts at 10"):
            SigmoidPair(scale)
    with pytest.raises(ValueError, match=r"scale .*got inf"):
        SigmoidPair(math.inf)
    for bias in (math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"bias must be finite, got {bias}; zhai2023 starts at -10"):
            SigmoidPair(bias=bias)


def test_a_small_batch_is_one_operation_with_the_same_derivatives() -> None:
    results = [small_batch_derivatives(name) for name in (None, "dense")]
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected)


def small_batch_derivatives(kernel: str | None) -> list[torch.Tensor]:
    """Value, gradient by the shortcut, gradient that can be differentiated, and derivatives of that."""
    z0, z1 = draw_views()
    loss = SigmoidPair(30.0, -3.0).double()
    inputs = [z0, z1, *loss.parameters()]
    with recording() as choices, nullcontext() if kernel is None else use(kernel):
        value = loss(z0, z1)
        assert choices[0].name == (kernel or "small batch")
        slopes = torch.autograd.grad(value, inputs, retain_graph=True)
        again = torch.autograd.grad(value, inputs, create_graph=True)
    seconds = torch.autograd.grad(again[0].square().sum() + again[2], inputs)
    return [value, *slopes, *again, *seconds]
