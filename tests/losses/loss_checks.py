"""What losses are held to: an oracle, two true derivatives on every kernel, parts of a batch, words for bad input."""

# N samples per view, D features, V = 2N vectors

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import derivatives
from counterpoint.kernels.cpu import tiles
from counterpoint.kernels.select import use
from counterpoint.losses.loss import Loss, Part
from oracles.number_checks import assert_numbers
from oracles.whole_batch_losses import Number, Rows, gradient
from tolerances import assert_close, relative_error

Oracle = Callable[[Rows, Rows], Number]
HESSIAN_LIMIT = 1e-9  # the bound for Hessian-vector products in float64

KERNELS = ["dense", "tiled"]
TILE = 3


@contextmanager
def on_kernel(name: str) -> Iterator[None]:
    """Everything on one kernel, with tiles so small that even few samples need several."""
    with pytest.MonkeyPatch.context() as patch, use(name):
        patch.setattr(tiles, "TILE_ROWS", TILE)
        patch.setattr(tiles, "TILE_COLUMNS", TILE)
        yield


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


def assert_true_second_derivatives(
    loss: Loss, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, kernel: str | None = None
) -> None:
    """On a kernel, finite differences, products in both modes and torch.func agree with the dense Hessian."""
    stacked = torch.stack([z0, z1]).detach()
    size = stacked.numel()

    def of_both(z: Tensor) -> Tensor:
        return loss(z[0], z[1], labels)

    with use("dense"):
        dense = derivatives.hessian(of_both, stacked).reshape(size, size)
    assert float(dense.abs().max()) > 1e-3
    vector = torch.randn(stacked.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    expected = dense @ vector.flatten()
    with on_kernel(kernel) if kernel else nullcontext():
        assert torch.autograd.gradcheck(lambda a, b: loss(a, b, labels), (z0, z1))
        assert torch.autograd.gradgradcheck(lambda a, b: loss(a, b, labels), (z0, z1))
        product = derivatives.vhp(of_both, stacked, vector)
        forward_product = torch.func.jvp(torch.func.grad(of_both), (stacked,), (vector,))[1]
        assert relative_error(product.flatten(), expected) < HESSIAN_LIMIT
        assert relative_error(forward_product.flatten(), expected) < HESSIAN_LIMIT
        assert relative_error(torch.func.hessian(of_both)(stacked).reshape(size, size), dense) < HESSIAN_LIMIT


def assert_only_a_first_derivative(loss: Loss, z0: Tensor, z1: Tensor, refusal: str) -> None:
    """The gradient is the same in every mode, and the second derivative refused in every mode."""
    z, other = z0.detach(), z1.detach()

    def value(z: Tensor) -> Tensor:
        return loss(z, other)

    leaf = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(value(leaf), leaf, create_graph=True)
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd):
        assert_close(transform(value)(z), slope)
    assert_close(torch.func.jvp(value, (z,), (other,))[1], (slope * other).sum())
    for second in (
        lambda: torch.autograd.grad(slope.sum(), leaf, retain_graph=True),
        lambda: slope.square().sum().backward(),
        lambda: torch.func.hessian(value)(z),
        lambda: torch.func.jacrev(torch.func.jacrev(value))(z),
        lambda: torch.func.jvp(torch.func.grad(value), (z,), (other,)),
        lambda: torch.func.grad(lambda z: torch.func.jvp(value, (z,), (other,))[1])(z),
    ):
        with pytest.raises(RuntimeError, match=refusal):
            second()


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


def assert_simplex_attains_the_floor(loss: Loss, n: int) -> None:
    """A simplex does, and a basis where no entry may be negative; random views stay above."""
    for nonnegative, best in ((False, simplex(n)), (True, torch.eye(n, dtype=torch.float64))):
        floor = loss.floor(n, nonnegative=nonnegative)
        assert_numbers(loss(best, best), floor)
        for seed in range(20):
            z0, z1 = (z.detach() for z in draw_views(n, 3, seed=seed))
            assert float(loss(z0.abs(), z1.abs()) if nonnegative else loss(z0, z1)) > floor


def least_on_descent(loss_of: Callable[[Tensor], Tensor], start: Tensor, *, lr: float, num_steps: int) -> float:
    """An adversary: Adam on the loss itself, with every value on the way looked at."""
    z = start.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=lr)
    values = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        value = loss_of(z)
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    return min(values)


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
    (GOOD.tolist(), GOOD, TypeError, r"z0 must be a floating-point tensor, got list; use torch\.as_tensor\(z0\)$"),
    (GOOD, GOOD.numpy(), TypeError, r"z1 must be a floating-point tensor, got ndarray; use torch\.as_tensor\(z1\)$"),
    (None, GOOD, TypeError, r"z0 must be a floating-point tensor, got NoneType$"),
    (GOOD, GOOD.tolist(), TypeError, r"z1 must be a floating-point tensor, got list"),
    (GOOD, GOOD.double(), TypeError, r"z0 and z1 must have the same dtype"),
    (GOOD[:1], GOOD[:1], ValueError, r"z0 must have at least 2 rows, got 1"),
    (GOOD, GOOD[:3], ValueError, r"z0 and z1 must have the same shape, got \(4, 2\) and \(3, 2\)"),
    (with_row(2, math.nan), GOOD, ValueError, r"z0 must be finite, but row 2 holds NaN or infinity"),
    (GOOD, with_row(3, -math.inf), ValueError, r"z1 must be finite, but row 3 holds NaN or infinity"),
]
