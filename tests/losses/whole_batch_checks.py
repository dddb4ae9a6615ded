"""What every loss without pairs is held to: its oracle, two true derivatives, half precision, words for bad input."""

# N samples per view, D features

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import derivatives
from counterpoint.losses.loss import Loss
from oracles.number_checks import assert_numbers
from oracles.whole_batch_losses import Number, Rows, gradient
from tolerances import assert_close, relative_error

Oracle = Callable[[Rows, Rows], Number]
HESSIAN_LIMIT = 1e-9  # the bound for Hessian-vector products in float64


def draw_views(n: int = 5, d: int = 3, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Two related views with gradients."""
    generator = torch.Generator().manual_seed(seed)
    z0 = torch.randn(n, d, generator=generator, dtype=torch.float64)
    z1 = z0 + 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return z0.to(dtype).requires_grad_(), z1.to(dtype).requires_grad_()


def gradients(value: Tensor, z0: Tensor, z1: Tensor) -> Tensor:
    """Both gradients; zero where there is none."""
    return torch.stack(torch.autograd.grad(value, (z0, z1), allow_unused=True, materialize_grads=True))


def assert_matches(loss: Loss, oracle: Oracle, z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> None:
    """Value and gradient are the oracle's."""
    value = loss(z0, z1, labels)
    assert value.shape == ()
    assert value.dtype == z0.dtype
    rows = (z0.tolist(), z1.tolist())
    assert_numbers(value, complex(oracle(*rows)).real, dtype=z0.dtype)
    assert_numbers(gradients(value, z0, z1), gradient(oracle, *rows), dtype=z0.dtype)


def assert_true_second_derivatives(loss: Loss, z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> None:
    """Finite differences, the dense Hessian, Hessian-vector products and torch.func say the same."""
    assert torch.autograd.gradcheck(lambda a, b: loss(a, b, labels), (z0, z1))
    assert torch.autograd.gradgradcheck(lambda a, b: loss(a, b, labels), (z0, z1))
    stacked = torch.stack([z0, z1]).detach()

    def of_both(z: Tensor) -> Tensor:
        return loss(z[0], z[1], labels)

    size = stacked.numel()
    dense = derivatives.hessian(of_both, stacked).reshape(size, size)
    assert float(dense.abs().max()) > 1e-3
    vector = torch.randn(stacked.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    product = derivatives.hvp(of_both, stacked, vector)
    forward_product = torch.func.jvp(torch.func.grad(of_both), (stacked,), (vector,))[1]
    assert relative_error(product.flatten(), dense @ vector.flatten()) < HESSIAN_LIMIT
    assert relative_error(forward_product.flatten(), dense @ vector.flatten()) < HESSIAN_LIMIT
    assert relative_error(torch.func.hessian(of_both)(stacked).reshape(size, size), dense) < HESSIAN_LIMIT


def assert_order_of_samples_does_not_matter(loss: Loss, z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> None:
    order = torch.randperm(len(z0), generator=torch.Generator().manual_seed(3))
    moved = None if labels is None else labels[order]
    assert_close(loss(z0[order], z1[order], moved), loss(z0, z1, labels))
    assert relative_error(loss(z0[order], z1, labels), loss(z0, z1, labels)) > 1e-3  # other pairs, another value


def rotation(d: int) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)).Q


def assert_half_precision_is_lifted(loss: Loss, labels: Tensor | None = None) -> None:
    """Computed in float32 from the very numbers that float16 and bfloat16 hold; also where squares would overflow."""
    for dtype in (torch.float16, torch.bfloat16):
        for size in (1.0, 1e3):
            z0, z1 = ((size * z.detach()).to(dtype).requires_grad_() for z in draw_views())
            value = loss(z0, z1, labels)
            slopes = gradients(value, z0, z1)
            assert value.dtype == torch.float32
            assert slopes.dtype == dtype
            assert bool(torch.isfinite(value))
            assert torch.equal(value, loss(z0.float(), z1.float(), labels))
            if size == 1.0:  # larger gradients may leave float16, whatever they are computed in
                assert bool(torch.isfinite(slopes).all())


def with_row(row: int, value: float) -> Tensor:
    z = torch.ones(4, 2)
    z[row, 1] = value
    return z


GOOD = torch.ones(4, 2)
BAD_INPUT: list[tuple[Any, Any, type[Exception], str]] = [
    (GOOD.long(), GOOD, TypeError, r"z0 must be a floating-point tensor, got torch\.int64"),
    (GOOD, GOOD.tolist(), TypeError, r"z1 must be a floating-point tensor, got list"),
    (GOOD, GOOD.double(), TypeError, r"z0 and z1 must have the same dtype"),
    (GOOD[:1], GOOD[:1], ValueError, r"z0 must have at least 2 rows, got 1"),
    (GOOD, GOOD[:3], ValueError, r"z0 and z1 must have the same shape, got \(4, 2\) and \(3, 2\)"),
    (with_row(2, math.nan), GOOD, ValueError, r"z0 must be finite, but row 2 holds NaN or infinity"),
    (GOOD, with_row(3, -math.inf), ValueError, r"z1 must be finite, but row 3 holds NaN or infinity"),
]
