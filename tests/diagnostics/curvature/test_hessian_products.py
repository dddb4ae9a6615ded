"""Products equal those of the dense Hessian for every loss; what has no second derivative is refused."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from small_problems import THROUGH, N, dense_hessian, encoder, make, problem
from torch import Tensor, nn

from counterpoint.core.errors import NonFiniteError
from counterpoint.diagnostics.curvature.hessian_products import CoupledLoss, graph_bytes, hessian_operator
from counterpoint.diagnostics.curvature.operator_spectrum import symmetry
from counterpoint.losses import CATALOGUE, InfoNCE

TIGHT, BITS = 1e-10, 1e-12


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12))


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - {"visreg"}))
def test_products_are_those_of_the_dense_hessian(name: str, generator: torch.Generator) -> None:
    coupled = problem(make(name, **THROUGH.get(name, {})), encoder())
    hessian_PP = dense_hessian(coupled)
    operator = hessian_operator(coupled)
    for _ in range(3):
        v_P = torch.randn(coupled.num_parameters, generator=generator, dtype=torch.float64)
        assert relative(operator @ v_P, hessian_PP @ v_P) < TIGHT


def convnet(norm: Callable[[], nn.Module]) -> nn.Module:
    """Two convolutions with what a layer may have, smooth."""
    torch.manual_seed(0)
    first, last = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 2, stride=2, bias=False)
    module = nn.Sequential(first, norm(), nn.Tanh(), last, norm(), nn.Flatten(), nn.Linear(16, 3)).double()
    for layer in (module[1], module[4]):
        nn.init.normal_(layer.get_parameter("weight"))
    return module


@pytest.mark.parametrize("norm", [lambda: nn.GroupNorm(2, 4), lambda: nn.BatchNorm2d(4)])
def test_products_of_convnets_are_those_of_the_dense_hessian(
    norm: Callable[[], nn.Module], generator: torch.Generator
) -> None:
    coupled = problem(InfoNCE(0.5), convnet(norm), 4, shape=(2, 4, 4))
    v_P = torch.randn(coupled.num_parameters, generator=generator, dtype=torch.float64)
    assert relative(hessian_operator(coupled) @ v_P, dense_hessian(coupled) @ v_P) < TIGHT


@pytest.mark.parametrize("name", [*THROUGH, "visreg"])
def test_a_loss_that_holds_something_fixed_has_no_hessian_and_says_which_option_has_one(name: str) -> None:
    coupled = problem(make(name), encoder())
    words = f"{next(iter(THROUGH[name]))}=True" if name in THROUGH else "the deviations that divide are held fixed"
    with pytest.raises(RuntimeError, match=re.escape(words)):
        _ = hessian_operator(coupled) @ torch.ones(coupled.num_parameters, dtype=torch.float64)


def test_float32_agrees_with_float64_to_its_rounding() -> None:
    coupled = problem(InfoNCE(0.5).double(), encoder())
    low = CoupledLoss(
        coupled.encode,
        coupled.loss,
        {name: value.float() for name, value in coupled.parameters.items()},
        tuple(x.float() for x in coupled.inputs),
    )
    v_P = torch.linspace(-1, 1, coupled.num_parameters, dtype=torch.float64)
    product = hessian_operator(low) @ v_P
    assert product.dtype == torch.float32
    assert relative(product.double(), hessian_operator(coupled) @ v_P) < 1e-5


def test_the_graph_grows_with_the_batch_and_its_precision() -> None:
    small, large = (problem(InfoNCE().double(), encoder(), num) for num in (N, 10 * N))
    assert graph_bytes(large) == pytest.approx(10 * graph_bytes(small), rel=0.1)
    assert graph_bytes(small) > N * 2 * 5 * 8  # the hidden layer of both views, at least


def test_a_loss_without_curvature_gives_zero() -> None:
    coupled = problem(InfoNCE().double(), encoder())
    linear = CoupledLoss(
        lambda p, x: x[0] @ p["w"], lambda p, z: z.sum(), {"w": torch.ones(4, 2).double()}, coupled.inputs
    )
    assert not bool((hessian_operator(linear) @ torch.ones(8).double()).any())


def test_a_product_that_is_no_number_is_refused() -> None:
    at_zero = CoupledLoss(
        lambda p, x: x[0] @ p["w"],
        lambda p, z: z.norm(),
        {"w": torch.zeros(4, 2).double()},
        (torch.ones(3, 4).double(),),
    )
    with pytest.raises(NonFiniteError, match="no second derivative"):
        _ = hessian_operator(at_zero) @ torch.ones(8).double()


def test_a_product_that_is_not_symmetric_is_found() -> None:
    coupled = problem(make("infonce"), encoder())
    operator = hessian_operator(coupled)
    assert symmetry(operator).holds
    skew = 1e-3 * torch.randn(coupled.num_parameters, coupled.num_parameters, dtype=torch.float64)
    wrong = replace(operator, product=lambda v: operator.product(v) + skew @ v)
    assert not symmetry(wrong).holds
