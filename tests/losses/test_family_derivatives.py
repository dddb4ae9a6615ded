"""Both derivatives of every member, on every kernel and in every mode; a third one is true or refused, never wrong."""

# N samples per view, D features

from collections.abc import Callable

import pytest
import torch
from family_cases import BOTH, CASES, SMOOTH, Case, plain_loss, sampled_cases
from loss_checks import HESSIAN_LIMIT, KERNELS, draw_views, on_kernel
from torch import Tensor

import derivatives
from oracles.family_losses import Setting
from tolerances import assert_close, relative_error

N, D = 4, 2  # tiles of three: more than one everywhere


def of_both(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """As a function of one tensor (2, n, d)."""
    return lambda z: loss(z[0], z[1])


def stacked() -> Tensor:
    return torch.stack(draw_views(N, D)).detach()


def direction(seed: int = 5) -> Tensor:
    return torch.randn(2, N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense_hessian(case: Case, setting: Setting) -> Tensor:
    """By autograd alone, through all distances."""
    return derivatives.hessian(of_both(plain_loss(case, setting)), stacked())


@sampled_cases("case, setting, kernel", CASES, BOTH, KERNELS, num=28)
@pytest.mark.sampled(14)
def test_hessian_vector_products_are_those_of_the_dense_hessian(case: Case, setting: Setting, kernel: str) -> None:
    """Triplet too: its second derivative is that of the gaps, where it exists."""
    z, v, hessian = stacked(), direction(), dense_hessian(case, setting)
    expected = torch.einsum("abcdef,def->abc", hessian, v)
    function = of_both(case(setting))
    with on_kernel(kernel):
        products = [
            derivatives.hvp(function, z, v),
            derivatives.vhp(function, z, v),
            torch.func.jvp(torch.func.grad(function), (z,), (v,))[1],
            torch.func.grad(lambda x: (torch.func.grad(function)(x) * v).sum())(z),
        ]
    for product in products:
        assert relative_error(product, expected) < HESSIAN_LIMIT
    if case.is_smooth and case.name != "linear-triplet":
        assert float(expected.abs().max()) > 1e-3


@sampled_cases("case, setting, kernel", CASES, BOTH, KERNELS)
@pytest.mark.sampled(14)
def test_transforms_of_functions_are_true(case: Case, setting: Setting, kernel: str) -> None:
    z, function, plain = stacked(), of_both(case(setting)), of_both(plain_loss(case, setting))
    hessian, gradient = dense_hessian(case, setting), derivatives.jacobian(plain, z)
    batch = torch.stack([z, 2 * z - 0.3])
    with on_kernel(kernel):
        for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd):
            assert_close(transform(function)(z), gradient)
        assert relative_error(torch.func.hessian(function)(z), hessian) < HESSIAN_LIMIT
        assert relative_error(torch.func.jacrev(torch.func.jacrev(function))(z), hessian) < HESSIAN_LIMIT
        assert_close(torch.func.vmap(function)(batch), torch.stack([plain(x) for x in batch]))
        slopes = torch.stack([derivatives.jacobian(plain, x) for x in batch])
        assert_close(torch.func.vmap(torch.func.grad(function))(batch), slopes)


def third(function: Callable[[Tensor], Tensor], z: Tensor, v: Tensor) -> Tensor:
    """Gradient of <v, H v>."""
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(z), z, create_graph=True)
    (curve,) = torch.autograd.grad((slope * v).sum(), z, create_graph=True)
    return torch.autograd.grad((curve * v).sum(), z)[0]


@sampled_cases("case, setting", SMOOTH, BOTH)
@pytest.mark.sampled(3)
def test_a_third_derivative_is_true_on_dense(case: Case, setting: Setting) -> None:
    z, v = stacked(), direction()
    with on_kernel("dense"):
        ours = third(of_both(case(setting)), z, v)
    expected = third(of_both(plain_loss(case, setting)), z, v)
    largest = float(dense_hessian(case, setting).abs().max())  # raw linear-triplet: 0 but for rounding
    assert float((ours - expected).abs().max()) <= HESSIAN_LIMIT * max(float(expected.abs().max()), largest)


@sampled_cases("case, setting", SMOOTH, BOTH)
@pytest.mark.sampled(3)
def test_a_third_derivative_on_tiles_is_refused(case: Case, setting: Setting) -> None:
    """In each way to ask for it: through grad, through backward, through either mode of torch.func."""
    z, v, function = stacked(), direction(), of_both(case(setting))
    with on_kernel("tiled"):
        with pytest.raises(RuntimeError, match=r"third derivative .*'dense'"):
            third(function, z, v)
        leaf = z.clone().requires_grad_()
        (slope,) = torch.autograd.grad(function(leaf), leaf, create_graph=True)
        (curve,) = torch.autograd.grad((slope * v).sum(), leaf, create_graph=True)
        with pytest.raises(RuntimeError, match=r"third derivative"):
            (curve * v).sum().backward()
        along = torch.func.grad(function)
        with pytest.raises(RuntimeError, match=r"third derivative"):
            torch.func.jvp(lambda x: torch.func.jvp(along, (x,), (v,))[1], (z,), (v,))
        # For unit rows torch itself refuses this order of modes, on every kernel.
        with pytest.raises(RuntimeError, match=r"third derivative|inplace operation"):
            torch.func.grad(lambda x: (torch.func.jvp(along, (x,), (v,))[1] * v).sum())(z)
