"""Losses of pairs have the same bits for one, two and three threads: value, gradient and Hessian-vector product."""

# N samples per view, D features

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from test_loss_catalogue import make
from torch import Tensor

from counterpoint.core import numerics
from counterpoint.kernels.cpu import tiles
from counterpoint.kernels.select import use
from counterpoint.losses import CATALOGUE, InfoNCE, Loss, SigmoidPair, SupCon

N, D = 270, 64  # vectors enough that torch splits operations on all of them
SIDE = 256  # of a tile: torch splits operations on a whole one


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work that several threads take part in, small as it is."""
    for module, name, number in [
        (tiles, "TILE_ROWS", SIDE),
        (tiles, "TILE_COLUMNS", SIDE),
        (tiles, "PAIRS_FOR_A_THREAD", 1),
        (numerics, "FOR_A_THREAD", 1),
    ]:
        monkeypatch.setattr(module, name, number)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def derivatives(loss: Loss, num_threads: int, *, kernel: str | None = "tiled", num: int = N) -> list[Tensor]:
    """Value, gradient and Hessian times a direction; without the last by the kernel that is chosen for it."""
    torch.set_num_threads(num_threads)
    torch.manual_seed(1)
    z0, noise, direction = torch.randn(3, num, D)
    z0.requires_grad_()
    labels = torch.arange(num) % 3
    with use(kernel) if kernel else nullcontext():
        value = loss(z0, 0.5 * z0.detach() + noise, labels)
        has_hessian = kernel is not None and loss.card.second_derivative.startswith("true")
        (slope,) = torch.autograd.grad(value, z0, create_graph=has_hessian)
        found = [value.detach(), slope.detach()]
        if has_hessian and slope.requires_grad:
            found += torch.autograd.grad(slope, z0, direction)
    return found


@pytest.mark.parametrize("name", sorted(CATALOGUE))
@pytest.mark.sampled(12)
def test_the_bits_do_not_depend_on_the_number_of_threads(name: str) -> None:
    loss = make(name, D).float()
    once = derivatives(loss, 1)
    for num_threads in (2, 3):
        again = derivatives(loss, num_threads)
        assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


@pytest.mark.parametrize("name", ["alpha-cl", "barlow-twins", "cross-modal-spectral", "spectral", "vicreg"])
def test_neither_do_those_of_products_of_whole_matrices(name: str) -> None:
    """Sums over a thousand samples, which a library would share out among threads."""
    once, *others = (
        derivatives(make(name, D).float(), num_threads, kernel=None, num=1000) for num_threads in (1, 2, 3)
    )
    assert all(torch.equal(a, b) for other in others for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize("num", [40, 512])
@pytest.mark.parametrize("loss", [InfoNCE(0.1), InfoNCE(0.01), SupCon(0.1), SupCon(0.01), SigmoidPair()], ids=str)
def test_neither_do_those_of_small_batches(loss: Loss, num: int) -> None:
    """Products of 1024 x 1024 and 1024 x 64 numbers, which a library sums in an order of its own on several threads."""
    once, *others = (derivatives(loss, num_threads, kernel=None, num=num) for num_threads in (1, 2, 3))
    assert all(torch.equal(a, b) for other in others for a, b in zip(once, other, strict=True))
