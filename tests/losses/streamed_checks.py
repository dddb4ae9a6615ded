"""What losses over streamed pairs are held to: both kernels with many tiles, parts of a batch, gradients by alpha."""

# N samples per view, D features, V = 2N vectors

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from whole_batch_checks import HESSIAN_LIMIT, gradients

import derivatives
from counterpoint.kernels.cpu import tiles
from counterpoint.kernels.select import use
from counterpoint.losses.loss import Loss, Part
from tolerances import assert_close, relative_error

KERNELS = ["dense", "tiled"]
TILE = 3


@contextmanager
def on_kernel(name: str) -> Iterator[None]:
    """Everything on one kernel, with tiles so small that even few samples need several."""
    with pytest.MonkeyPatch.context() as patch, use(name):
        patch.setattr(tiles, "TILE_ROWS", TILE)
        patch.setattr(tiles, "TILE_COLUMNS", TILE)
        yield


def assert_true_second_derivatives(loss: Loss, kernel: str, z0: Tensor, z1: Tensor) -> None:
    """On one kernel, finite differences, products in both modes and torch.func agree with the dense Hessian."""
    stacked = torch.stack([z0, z1]).detach()
    size = stacked.numel()

    def of_both(z: Tensor) -> Tensor:
        return loss(z[0], z[1])

    with use("dense"):
        dense = derivatives.hessian(of_both, stacked).reshape(size, size)
    assert float(dense.abs().max()) > 1e-3
    vector = torch.randn(stacked.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    expected = dense @ vector.flatten()
    with on_kernel(kernel):
        assert torch.autograd.gradcheck(loss, (z0, z1))
        assert torch.autograd.gradgradcheck(loss, (z0, z1))
        product = derivatives.vhp(of_both, stacked, vector)
        forward_product = torch.func.jvp(torch.func.grad(of_both), (stacked,), (vector,))[1]
        assert relative_error(product.flatten(), expected) < HESSIAN_LIMIT
        assert relative_error(forward_product.flatten(), expected) < HESSIAN_LIMIT
        assert relative_error(torch.func.hessian(of_both)(stacked).reshape(size, size), dense) < HESSIAN_LIMIT


def merge_with(others: list[Tensor]) -> Callable[[Tensor, bool], Tensor]:
    """Statistics of all columns from this part's and the other parts'."""

    def merge(partial_M: Tensor, is_log: bool) -> Tensor:
        all_PM = torch.stack([partial_M, *others])
        return torch.logsumexp(all_PM, 0) if is_log else all_PM.sum(0)

    return merge


def losses_of_parts(loss: Loss, z0: Tensor, z1: Tensor, num_parts: int) -> list[Tensor]:
    """The loss as each of several processes would have it, all on one graph."""
    size = len(z0) // num_parts
    bounds = [(first, first + size) for first in range(0, len(z0), size)]
    partials: list[list[Tensor]] = [[] for _ in bounds]
    for own, bound in zip(partials, bounds, strict=True):

        def note(partial_M: Tensor, is_log: bool, own: list[Tensor] = own) -> Tensor:
            own.append(partial_M)
            return partial_M

        loss.forward(z0, z1, part=Part(*bound, note))  # statistics of one part: the value may be no number
    return [
        loss(
            z0, z1, part=Part(*bound, merge_with([p for k, other in enumerate(partials) if k != place for p in other]))
        )
        for place, bound in enumerate(bounds)
    ]


def assert_parts_average_to_the_whole(loss: Loss, z0: Tensor, z1: Tensor, num_parts: int) -> None:
    """Value, gradient of both views, gradient of the loss's own parameters; and no part is the whole by itself."""
    parts = losses_of_parts(loss, z0, z1, num_parts)
    whole, mean = loss(z0, z1), torch.stack(parts).mean()
    assert_close(mean, whole)
    for ours, expected in zip(
        *(torch.autograd.grad(x, [z0, z1, *loss.parameters()]) for x in (mean, whole)), strict=True
    ):
        assert_close(ours, expected)
    assert any(abs(float(part.detach() - whole.detach())) > 1e-3 for part in parts)


def gradient_of_held_pairs(alpha_VV: Tensor, pull_N: Tensor | None, z0: Tensor, z1: Tensor) -> Tensor:
    """Gradient of sum_ij alpha_ij <v_i, v_j> - sum_i pull_i <v_i, v_i'> with weights held, vectors prepared already.

    Args:
        alpha_VV: weights of the negatives.
        pull_N: weight of each sample's own pair; None: as much as its anchors' negatives have.
        z0: first view.
        z1: second view.
    """
    n = len(z0)
    vectors_VD = torch.cat([z0, z1])
    if pull_N is None:
        pull_N = alpha_VV.sum(1)[:n] + alpha_VV.sum(1)[n:]
    value = (alpha_VV * (vectors_VD @ vectors_VD.T)).sum() - (pull_N * (z0 * z1).sum(1)).sum()
    return gradients(value, z0, z1)


def simplex(n: int) -> Tensor:
    """N vectors whose mutual cosines are -1/(n-1)."""
    return torch.eye(n, dtype=torch.float64) - 1.0 / n


def with_edges(size: float, dtype: torch.dtype, *, n: int = 6, has_twins: bool = True) -> tuple[Tensor, Tensor]:
    """Views with a duplicated sample, a silent row in either view, and vectors of a length up to ``size``."""
    generator = torch.Generator().manual_seed(2)
    z0 = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    z1 = z0 + 0.5 * torch.randn(n, 3, generator=generator, dtype=torch.float64)
    largest = float(torch.cat([z0, z1]).norm(dim=1).max())
    z0, z1 = size / largest * z0, size / largest * z1
    if has_twins:
        z0[1], z1[1] = z0[0], z1[0]
    z0[2] = 0.0
    z1[3] = 0.0
    return z0.to(dtype).requires_grad_(), z1.to(dtype).requires_grad_()


def parameter_gradients(value: Tensor, loss: Loss) -> list[float]:
    """Gradient for each parameter of the loss, in order."""
    return [float(slope) for slope in torch.autograd.grad(value, list(loss.parameters()), retain_graph=True)]


def with_parameters(loss: Loss, z0: Tensor, z1: Tensor, *values: Tensor) -> Any:
    """The loss as a function of its parameters too, for torch.func and gradcheck."""
    named = dict(zip(dict(loss.named_parameters()), values, strict=True))
    return torch.func.functional_call(loss, named, (z0, z1))
