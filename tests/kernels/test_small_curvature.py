"""Second derivatives of small batches in closed form: by autograd through the matrix of scores, in every setting."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterpoint.kernels import select
from counterpoint.losses import DCL, InfoNCE, Loss
from counterpoint.losses.family import CATALOGUE as FAMILY

N, D = 11, 5
LOSSES: dict[str, Callable[[], Loss]] = {
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


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("close", [0.0, 0.5, 3.0])
def test_products_are_those_of_autograd_through_all_scores(name: str, close: float) -> None:
    loss, z, v = LOSSES[name](), views(close=close), views(7)
    with select.recording() as chosen:
        ours = products(loss, z, v, 2.5)
    assert [choice.name for choice in chosen] == ["small batch"]
    with select.use("dense"):
        theirs = products(loss, z, v, 2.5)
    assert same(ours, theirs)


def test_the_loss_and_its_products_are_scaled_by_what_comes_from_above() -> None:
    loss, z, v = InfoNCE(0.5), views(), views(7)
    factor = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)

    def mixed() -> list[Tensor]:
        gradient = torch.autograd.grad(factor**2 * loss(*z), z, create_graph=True)
        total = torch.stack([(g * t).sum() for g, t in zip(gradient, v, strict=True)]).sum()
        return list(torch.autograd.grad(total, [factor, *z]))

    ours = mixed()
    with select.use("dense"):
        assert same(ours, mixed())


def test_a_third_derivative_is_that_of_the_general_route() -> None:
    loss, z, v, w = InfoNCE(0.5), views(), views(7), views(8)

    def third() -> list[Tensor]:
        gradient = torch.autograd.grad(loss(*z), z, create_graph=True)
        product = torch.autograd.grad(gradient, z, v, create_graph=True)
        return list(torch.autograd.grad(product, z, w))

    ours = third()
    with select.use("dense"):
        assert same(ours, third())


def test_several_directions_at_once_are_the_same() -> None:
    loss, z = InfoNCE(0.5), views()
    several = [views(seed) for seed in (7, 8, 9)]
    gradient = torch.autograd.grad(loss(*z), z, create_graph=True)
    batch = tuple(torch.stack([each[view] for each in several]) for view in (0, 1))
    at_once = torch.autograd.grad(gradient, z, batch, is_grads_batched=True, retain_graph=True)
    for place, v in enumerate(several):
        assert same([part[place] for part in at_once], list(torch.autograd.grad(gradient, z, v, retain_graph=True)))


def test_one_view_may_be_made_of_the_other() -> None:
    loss = InfoNCE(0.5)

    def of_one() -> list[Tensor]:
        (z0, _), (v, _) = views(), views(7)
        (gradient,) = torch.autograd.grad(loss(z0, z0.roll(1, 1) * 2), z0, create_graph=True)
        return list(torch.autograd.grad(gradient, z0, v))

    ours = of_one()
    with select.use("dense"):
        assert same(ours, of_one())


def test_one_view_may_be_a_constant() -> None:
    loss, (z0, z1), (v, _) = InfoNCE(0.5), views(), views(7)

    def of_first() -> list[Tensor]:
        (gradient,) = torch.autograd.grad(loss(z0, z1.detach()), z0, create_graph=True)
        return list(torch.autograd.grad(gradient, z0, v))

    ours = of_first()
    with select.use("dense"):
        assert same(ours, of_first())


def test_the_identities_of_cosines_hold() -> None:
    """Lengths do not count: along z the gradient falls as 1 / |z|, H z = -g."""
    loss, z = InfoNCE(0.2), views()
    gradient = torch.autograd.grad(loss(*z), z)
    detached = (z[0].detach(), z[1].detach())
    assert same(products(loss, z, detached), [-g for g in gradient], 1e-12)


@pytest.mark.parametrize("temperature", [0.5, 0.02])
def test_float32_is_within_its_rounding(temperature: float) -> None:
    loss, z, v = InfoNCE(temperature), views(), views(7)
    theirs = products(loss, z, v)
    low = tuple(each.detach().float().requires_grad_() for each in z)
    ours = products(loss, low, tuple(each.detach().float() for each in v))
    assert same([each.double() for each in ours], theirs, 2e-5)


def test_every_member_of_the_family_agrees() -> None:
    z, v = views(), views(7)
    for member in FAMILY.values():
        loss = member()
        ours = products(loss, z, v)
        with select.use("dense"):
            assert same(ours, products(loss, z, v)), loss.card.name
