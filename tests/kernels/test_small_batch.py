"""The shortcut of small batches: the same value and derivatives as the general route, and when it steps aside."""

# N samples, D features

import math

import pytest
import torch
from torch import Tensor

from counterpoint.kernels.select import recording, use
from counterpoint.losses import InfoNCE, SoftTriplet
from counterpoint.losses.family import LiftedStructured
from tolerances import assert_close

LOSSES = [InfoNCE(0.1), InfoNCE(0.5, epsilon=0.0), InfoNCE(1.0, epsilon=0.3), SoftTriplet(0.3, 0.4), LiftedStructured()]
SHARP = [InfoNCE(0.02), InfoNCE(0.01, epsilon=0.0), InfoNCE(0.001), SoftTriplet(0.01, 0.4)]


def draw_views(n: int = 7, d: int = 3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    z0 = torch.randn(n, d, generator=generator, dtype=torch.float64)
    z1 = z0 + 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return z0.to(dtype).requires_grad_(), (3 * z1).to(dtype).requires_grad_()


def took_the_shortcut(loss: torch.nn.Module, *views: Tensor) -> bool:
    with recording() as choices:
        loss(*views)
    return [choice.name for choice in choices] == ["small batch"]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.card.name}-{loss.psi.scale:g}")
@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_gradient_are_those_of_the_general_route(loss: torch.nn.Module, n: int, dtype: torch.dtype) -> None:
    views = draw_views(n, dtype=dtype)
    assert took_the_shortcut(loss, *views)
    with use("dense"):
        expected = loss(*views)
    actual = loss(*views)
    assert_close(actual, expected)
    assert_close(torch.cat(torch.autograd.grad(actual, views)), torch.cat(torch.autograd.grad(expected, views)))


@pytest.mark.parametrize("loss", SHARP, ids=lambda loss: f"{loss.card.name}-{loss.psi.scale:g}")
@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("closeness", [0.0, 0.9, 0.999])
def test_small_temperatures_take_it_too(loss: torch.nn.Module, n: int, closeness: float) -> None:
    z0, z1 = draw_views(n)
    views = z0, (closeness * z0 + (1 - closeness) * z1).detach().requires_grad_()
    assert took_the_shortcut(loss, *views)
    with use("dense"):
        expected = loss(*views)
    actual = loss(*views)
    assert_close(actual, expected)
    assert_close(torch.cat(torch.autograd.grad(actual, views)), torch.cat(torch.autograd.grad(expected, views)))


@pytest.mark.parametrize("loss", [*LOSSES[:4], SHARP[0]], ids=lambda loss: f"{loss.card.name}-{loss.psi.scale:g}")
def test_the_second_derivative_is_the_true_one(loss: torch.nn.Module) -> None:
    assert torch.autograd.gradgradcheck(loss, draw_views(4))


def test_a_view_that_needs_no_gradient_gets_none() -> None:
    z0, z1 = draw_views()
    loss = InfoNCE()(z0, z1.detach())
    (first,) = torch.autograd.grad(loss, z0, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), z0)
    with use("dense"):
        (expected,) = torch.autograd.grad(InfoNCE()(z0, z1.detach()), z0, create_graph=True)
        (expected_second,) = torch.autograd.grad(expected.square().sum(), z0)
    assert_close(first, expected)
    assert_close(second, expected_second)


def test_it_steps_aside_where_it_would_be_wrong_or_slow() -> None:
    z0, z1 = draw_views()
    zero = z0.detach().clone()
    zero[1] = 0
    assert not took_the_shortcut(InfoNCE(), zero, z1)  # a zero row has no direction
    assert not took_the_shortcut(InfoNCE(), z0 * 1e20, z1)  # squares leave float32
    assert not took_the_shortcut(InfoNCE(), *draw_views(513))
    assert not took_the_shortcut(InfoNCE(normalize=False), z0, z1)
    assert not took_the_shortcut(InfoNCE(negatives="cross-view"), z0, z1)
    with use("tiled"):
        assert not took_the_shortcut(InfoNCE(), z0, z1)


def test_transforms_take_the_general_route() -> None:
    z0, z1 = (z.detach() for z in draw_views(4))

    def loss(z: Tensor) -> Tensor:
        return InfoNCE()(z, z1)

    with use("dense"):
        expected = torch.func.hessian(loss)(z0)
    assert_close(torch.func.hessian(loss)(z0), expected)
    assert math.isfinite(float(torch.func.jvp(loss, (z0,), (z0,))[1]))
