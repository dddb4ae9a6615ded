"""The shortcut of small batches: the same value and derivatives as the general route, and when it steps aside."""

# N samples, D features

import math
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from counterpoint.kernels.cpu import upper_pairs
from counterpoint.kernels.select import recording, use
from counterpoint.losses import DCL, InfoNCE, Loss, SoftTriplet
from counterpoint.losses.family import LiftedStructured
from tolerances import LOW_PRECISION_RATIO, assert_close

LOSSES = [InfoNCE(0.1), InfoNCE(0.5, epsilon=0.0), InfoNCE(1.0, epsilon=0.3), SoftTriplet(0.3, 0.4), LiftedStructured()]


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


@pytest.mark.parametrize("temperature", [0.5, 0.02, 0.01])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_strips_add_up(temperature: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a matrix in strips of four rows; in float32 no further from the truth than the whole matrix."""
    monkeypatch.setattr(upper_pairs, "STRIP", 4)
    errors = {None: 0.0, "dense": 0.0}
    for n in (7, 11, 30):
        exact, loss = draw_views(n, 8), InfoNCE(temperature)
        with use("dense"):
            truth = torch.cat(torch.autograd.grad(loss(*exact), exact))
        rounded = [z.detach().to(dtype).requires_grad_() for z in exact]
        for kernel in errors:
            with use(kernel) if kernel else nullcontext():
                assert kernel or took_the_shortcut(loss, *rounded)
                found = torch.cat(torch.autograd.grad(loss(*rounded), rounded))
            errors[kernel] += float((found.double() - truth).norm() / truth.norm())
    assert errors[None] <= max(LOW_PRECISION_RATIO * errors["dense"], 1e-10)


def test_far_vectors_at_a_small_temperature_are_exact() -> None:
    """Four vectors at equal distances: all scores are -115 / 3, and one reference for all would lift them."""
    corners = torch.eye(4) - 0.25
    z0, z1 = corners[:2].clone().requires_grad_(), corners[2:].clone().requires_grad_()
    loss = InfoNCE(1 / 115)
    with recording() as choices:
        value = loss(z0, z1)
    assert [choice.name for choice in choices] == ["dense"]
    assert_close(value, torch.tensor(3.0).log(), dtype=torch.float32)
    with use("tiled"):
        in_tiles = loss(z0, z1)
    with use("dense"):
        expected = torch.autograd.grad(loss(z0, z1), z0)[0]
    assert_close(in_tiles, value)
    assert_close(torch.autograd.grad(value, z0)[0], expected)
    assert_close(torch.autograd.grad(in_tiles, z0)[0], expected)


def test_it_steps_aside_where_it_would_be_wrong_or_slow() -> None:
    z0, z1 = draw_views()
    zero = z0.detach().clone()
    zero[1] = 0
    assert not took_the_shortcut(InfoNCE(), zero, z1)  # a zero row has no direction
    assert not took_the_shortcut(InfoNCE(), z0 * 1e20, z1)  # squares leave float32
    assert not took_the_shortcut(InfoNCE(), *draw_views(2049))
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


# The second derivative in closed form: by autograd through the matrix of scores, in every setting.

N, D = 11, 5
CURVED: dict[str, Callable[[], Loss]] = {
    "infonce": lambda: InfoNCE(0.5),
    "sharp infonce": lambda: InfoNCE(0.01),  # each row relative to its largest score
    "light positive": lambda: InfoNCE(0.3, 0.1),
    "dcl": lambda: DCL(0.2),
}


def views(seed: int = 0, *, close: float = 0.5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z0, noise = torch.randn(2, N, D, generator=generator, dtype=torch.float64)
    return z0.requires_grad_(), (z0 + close * noise).detach().requires_grad_()


def products(loss: Loss, z: tuple[Tensor, ...], v: tuple[Tensor, ...], scale: float = 1.0) -> list[Tensor]:
    """Hessian times v of a multiple of the loss."""
    gradient = torch.autograd.grad(scale * loss(*z), z, create_graph=True)
    return list(torch.autograd.grad(gradient, z, v, retain_graph=True))


def same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 1e-10) -> bool:
    size = max(float(each.abs().max()) for each in theirs)
    return all(float((a - b).detach().abs().max()) <= tolerance * size for a, b in zip(ours, theirs, strict=True))


def assert_as_through_scores(compute: Callable[[], list[Tensor]]) -> None:
    """What the shortcut gives is what autograd gives through the matrix."""
    ours = compute()
    with use("dense"):
        assert same(ours, compute())


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("close", [0.0, 0.5, 3.0])
def test_products_are_those_of_autograd_through_all_scores(name: str, close: float) -> None:
    loss, z, v = CURVED[name](), views(close=close), views(7)
    assert took_the_shortcut(loss, *z)
    assert_as_through_scores(lambda: products(loss, z, v, 2.5))


def test_the_loss_and_its_products_are_scaled_by_what_comes_from_above() -> None:
    loss, z, v = InfoNCE(0.5), views(), views(7)
    factor = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)

    def mixed() -> list[Tensor]:
        gradient = torch.autograd.grad(factor**2 * loss(*z), z, create_graph=True)
        total = torch.stack([(g * t).sum() for g, t in zip(gradient, v, strict=True)]).sum()
        return list(torch.autograd.grad(total, [factor, *z]))

    assert_as_through_scores(mixed)


def test_a_third_derivative_is_that_of_the_general_route() -> None:
    loss, z, v, w = InfoNCE(0.5), views(), views(7), views(8)

    def third() -> list[Tensor]:
        gradient = torch.autograd.grad(loss(*z), z, create_graph=True)
        product = torch.autograd.grad(gradient, z, v, create_graph=True)
        return list(torch.autograd.grad(product, z, w))

    assert_as_through_scores(third)
