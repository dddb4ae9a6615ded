"""CLIP's loss and the spectral one between two kinds of data: gradients of both and of the temperature."""

# N samples, D features

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from loss_checks import (
    KERNELS,
    Oracle,
    assert_matches,
    assert_simplex_attains_the_floor,
    draw_views,
    gradient_of_held_pairs,
    gradients,
    on_kernel,
    parameter_gradients,
    with_edges,
    with_parameters,
)
from open_clip.loss import ClipLoss
from torch import Tensor

from counterpoint.losses.bimodal import CrossModal
from counterpoint.losses.spectral import CrossModalSpectral
from oracles import pairwise_losses as oracle
from oracles.family_losses import complex_step
from oracles.number_checks import assert_numbers
from tolerances import assert_close

each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_unit = pytest.mark.parametrize("normalize", [True, False])
each_sign = pytest.mark.parametrize("nonnegative", [False, True])
each_radius = pytest.mark.parametrize("mu", [None, 1.0])


def fixed(temperature: float = 0.07, nonnegative: bool = False, *, normalize: bool = True) -> CrossModal:
    return CrossModal(temperature, learnable_temperature=False, nonnegative=nonnegative, normalize=normalize)


def log_of(loss: CrossModal) -> Tensor:
    """The learned logarithm of the scale."""
    assert loss.scale.log is not None
    return loss.scale.log


def truth_of(loss: CrossModal) -> Oracle:
    return partial(
        oracle.clip, log_scale=math.log(loss.scale.value), nonnegative=loss.nonnegative, normalize=loss.normalize
    )


@each_kernel
@each_dtype
@each_sign
@each_unit
@pytest.mark.parametrize(("n", "d", "tau"), [(2, 4, 0.5), (5, 3, 0.2), (7, 2, 1.0)])
def test_value_and_gradient_are_the_papers(
    *, kernel: str, dtype: torch.dtype, nonnegative: bool, normalize: bool, n: int, d: int, tau: float
) -> None:
    loss = fixed(tau, nonnegative, normalize=normalize)
    with on_kernel(kernel):
        assert_matches(loss, truth_of(loss), *draw_views(n, d, dtype=dtype))


@each_kernel
@each_dtype
@each_sign
@each_unit
def test_the_temperature_gets_its_gradient(
    *, kernel: str, dtype: torch.dtype, nonnegative: bool, normalize: bool
) -> None:
    loss = CrossModal(0.2, nonnegative=nonnegative, normalize=normalize).to(dtype)
    z0, z1 = draw_views(5, dtype=dtype)
    assert list(dict(loss.named_parameters())) == ["scale.log"]
    with on_kernel(kernel):
        slope = parameter_gradients(loss(z0, z1), loss)
    rows = z0.tolist(), z1.tolist()
    start = [float(log_of(loss).detach())]
    expected = complex_step(lambda logs: complex(oracle.clip(*rows, logs[0], nonnegative, normalize)), start)
    assert_numbers(slope, expected, dtype=dtype)


@each_kernel
@each_dtype
@pytest.mark.parametrize("tau", [0.07, 1.0])
def test_equal_to_open_clip(kernel: str, dtype: torch.dtype, tau: float) -> None:
    z0, z1 = draw_views(8, 4, dtype=dtype)
    log_scale = torch.tensor(math.log(1 / tau), dtype=dtype, requires_grad=True)
    theirs = ClipLoss()(F.normalize(z0), F.normalize(z1), log_scale.exp())
    *views, of_scale = torch.autograd.grad(theirs, (z0, z1, log_scale))
    loss = CrossModal(tau).to(dtype)
    with torch.no_grad():
        log_of(loss).copy_(log_scale)
    with on_kernel(kernel):
        ours = loss(z0, z1)
        assert_close(ours, theirs)
        assert_numbers(parameter_gradients(ours, loss), [float(of_scale)], dtype=dtype)
        assert_close(gradients(ours, z0, z1), torch.stack(views))


@each_kernel
@pytest.mark.thorough
def test_derivatives_are_true_for_the_temperature_too(kernel: str) -> None:
    inputs = (*draw_views(4, 2), torch.tensor(1.1, dtype=torch.float64, requires_grad=True))
    with on_kernel(kernel):
        assert torch.autograd.gradcheck(lambda *x: with_parameters(CrossModal(), *x), inputs)
        assert torch.autograd.gradgradcheck(lambda *x: with_parameters(CrossModal(), *x), inputs)


@each_kernel
@each_sign
@pytest.mark.parametrize(("normalize", "size", "tau"), [(True, 1.0, 0.01), (False, 1e3, 0.01), (False, 1e3, 100.0)])
def test_extreme_temperatures_and_lengths(
    *, kernel: str, nonnegative: bool, normalize: bool, size: float, tau: float
) -> None:
    """Gaps of up to 1e8, in both tails. Twins among raw vectors would weigh by the rounding of products of 1e8."""
    loss = fixed(tau, nonnegative, normalize=normalize)
    with on_kernel(kernel):
        assert_matches(loss, truth_of(loss), *with_edges(size, torch.float64, has_twins=normalize))


@each_kernel
def test_a_pair_told_apart_keeps_its_digits(kernel: str) -> None:
    """By hand: gaps of -80, where 1 + e^-80 is 1 and a difference of log-sum-exps is 0."""
    basis = torch.eye(3)
    with on_kernel(kernel):
        assert_numbers(fixed(1 / 80)(basis, basis).log(), math.log(2) - 80, dtype=torch.float32)


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_the_floor_is_attained_and_never_passed(n: int, tau: float) -> None:
    assert_simplex_attains_the_floor(fixed(tau), n)
    assert fixed(tau, True).floor(n) == fixed(tau).floor(n, nonnegative=True)
    assert fixed(tau, normalize=False).floor(n) == 0.0


@each_sign
@each_unit
def test_importance_gives_the_gradient(nonnegative: bool, normalize: bool) -> None:
    loss = fixed(0.5, nonnegative, normalize=normalize)
    raw = draw_views()
    z0, z1 = (z.relu() if nonnegative else z for z in raw)
    z0, z1 = (F.normalize(z) if normalize else z for z in (z0, z1))
    alpha = loss.importance(*raw)
    held0, held1 = (z.detach().requires_grad_() for z in (z0, z1))
    on_prepared = gradient_of_held_pairs(alpha / 10, None, held0, held1)
    expected = torch.autograd.grad((z0, z1), raw, grad_outputs=tuple(on_prepared))
    assert_close(gradients(loss(*raw), *raw), torch.stack(expected))
    assert not alpha[:5, :5].any()
    assert not alpha[5:, 5:].any()
    assert not alpha[:5, 5:].diagonal().any()


def test_the_scale_is_limited_on_request() -> None:
    loss = CrossModal(0.07, max_scale=50.0)
    with torch.no_grad():
        log_of(loss).fill_(4.0)
    before = float(loss(*draw_views()).detach())
    loss.scale.limit_()
    assert_numbers(loss.scale.value, 50.0, dtype=torch.float32)
    assert float(loss(*draw_views()).detach()) != before
    with torch.no_grad():
        log_of(loss).fill_(1.0)
    loss.scale.limit_()
    assert float(log_of(loss).detach()) == 1.0
    held = fixed(0.001)
    held.scale.limit_()
    assert held.scale.value == 1000.0


def test_bad_arguments_are_named() -> None:
    for tau in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=rf"temperature .*got {tau}"):
            CrossModal(tau)
    with pytest.raises(ValueError, match=r"temperature .*got inf"):
        CrossModal(math.inf)
    for most in (99.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=rf"max_scale must be >= the first scale, .* = 100, got {most}; CLIP"):
            CrossModal(0.01, max_scale=most)
    assert CrossModal(0.01).scale.most == 100.0


@each_sign
@each_radius
@each_dtype
@pytest.mark.parametrize(("n", "d"), [(5, 3), (9, 3), (2, 3)])
def test_the_spectral_loss_is_the_papers(
    *, nonnegative: bool, mu: float | None, dtype: torch.dtype, n: int, d: int
) -> None:
    truth = partial(oracle.multimodal_spectral, nonnegative=nonnegative, mu=mu)
    assert_matches(CrossModalSpectral(nonnegative, mu), truth, *draw_views(n, d, dtype=dtype))


def test_silent_pictures_are_similar_to_none() -> None:
    z0, z1 = draw_views()
    silent = -z0.detach().abs()
    assert float(CrossModalSpectral(True)(silent, z1).detach()) == 0.0
    assert_numbers(fixed(nonnegative=True)(silent, z1), math.log(5))
