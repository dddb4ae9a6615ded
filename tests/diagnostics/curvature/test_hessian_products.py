"""Products equal those of the dense Hessian for every loss, by both routes, and no chunk size changes them."""

import re
from dataclasses import replace

import pytest
import torch
from small_problems import THROUGH, N, dense_hessian, encoder, make, problem
from torch import Tensor

from counterpoint.core.errors import NonFiniteError
from counterpoint.diagnostics.curvature.coupled_loss import CoupledLoss
from counterpoint.diagnostics.curvature.hessian_products import (
    PART_BYTES,
    chunked_products,
    hessian_operator,
    kept_products,
    part_size,
)
from counterpoint.diagnostics.curvature.operator_spectrum import symmetry
from counterpoint.losses import CATALOGUE, InfoNCE

TIGHT, BITS = 1e-10, 1e-12


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12))


@pytest.mark.parametrize("name", CATALOGUE)
def test_products_are_those_of_the_dense_hessian(name: str, generator: torch.Generator) -> None:
    coupled = problem(make(name, **THROUGH.get(name, {})), encoder())
    hessian_PP = dense_hessian(coupled)
    for operator in (kept_products(coupled), chunked_products(coupled, 3)):
        for _ in range(3):
            v_P = torch.randn(coupled.num_parameters, generator=generator, dtype=torch.float64)
            assert relative(operator @ v_P, hessian_PP @ v_P) < TIGHT


@pytest.mark.parametrize("name", THROUGH)
def test_a_loss_with_weights_held_fixed_says_which_option_has_a_hessian(name: str) -> None:
    coupled = problem(make(name), encoder())
    for route in (kept_products, lambda one: chunked_products(one, 3)):
        with pytest.raises(RuntimeError, match=re.escape(next(iter(THROUGH[name])) + "=True")):
            _ = route(coupled) @ torch.ones(coupled.num_parameters, dtype=torch.float64)


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_chunk_size_changes_a_product(name: str, generator: torch.Generator) -> None:
    coupled = problem(make(name, **THROUGH.get(name, {})), encoder())
    whole = kept_products(coupled)
    v_P = torch.randn(coupled.num_parameters, generator=generator, dtype=torch.float64)
    for size in (1, 2, N - 1, N + 1):
        parts = chunked_products(coupled, size)
        assert relative(parts @ v_P, whole @ v_P) < BITS
        assert relative(parts.gradient_P, whole.gradient_P) < BITS
        assert parts.value == pytest.approx(whole.value, rel=BITS)


def test_float32_agrees_with_float64_to_its_rounding() -> None:
    coupled = problem(InfoNCE(0.5).double(), encoder())
    low = CoupledLoss(
        coupled.encode,
        coupled.loss,
        {name: value.float() for name, value in coupled.parameters.items()},
        tuple(x.float() for x in coupled.inputs),
    )
    v_P = torch.linspace(-1, 1, coupled.num_parameters, dtype=torch.float64)
    for operator in (kept_products(low), chunked_products(low, 2)):
        product = operator @ v_P
        assert product.dtype == torch.float32
        assert relative(product.double(), kept_products(coupled) @ v_P) < 1e-5


def test_the_route_follows_from_what_the_graph_keeps() -> None:
    coupled = problem(InfoNCE().double(), encoder())
    kept = hessian_operator(coupled, chunk_size=3, memory_limit=1e9).route
    assert (kept.name, kept.chunk_size) == ("kept", N)
    cut = hessian_operator(coupled, chunk_size=5, memory_limit=10).route
    assert (cut.name, cut.chunk_size) == ("chunked", 5)
    assert cut.graph_bytes == kept.graph_bytes
    assert cut.reason.endswith("does not fit")


def test_a_chunk_is_not_smaller_than_the_vectors_of_a_product() -> None:
    coupled = problem(InfoNCE().double(), encoder(), 200)
    route = hessian_operator(coupled, chunk_size=1, memory_limit=10).route
    assert route.graph_bytes is not None
    vectors, each = 2 * coupled.num_parameters * 8, route.graph_bytes / 200
    assert (route.chunk_size - 1) * each < vectors <= route.chunk_size * each


def test_parts_of_a_kept_graph_follow_from_its_size() -> None:
    coupled = problem(InfoNCE().double(), encoder())
    assert part_size(coupled, PART_BYTES) == N
    assert part_size(coupled, 2 * PART_BYTES) == N // 2
    assert part_size(coupled, 100 * PART_BYTES) == 1
    v_P = torch.linspace(-1, 1, coupled.num_parameters, dtype=torch.float64)
    for size in range(1, N + 1):
        assert relative(kept_products(coupled, part_size=size) @ v_P, kept_products(coupled) @ v_P) < BITS


def test_an_encoder_that_mixes_samples_is_not_cut() -> None:
    coupled = problem(InfoNCE().double(), encoder())
    mixing = CoupledLoss(coupled.encode, coupled.loss, coupled.parameters, coupled.inputs, is_separable=False)
    assert hessian_operator(mixing, chunk_size=2, memory_limit=0).route.name == "kept"
    with pytest.raises(ValueError, match="mixes the samples"):
        chunked_products(mixing, 2)


def test_a_chunk_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        hessian_operator(problem(InfoNCE().double(), encoder()), chunk_size=0, memory_limit=1e9)


def test_a_penalty_on_all_parameters_shifts_every_product() -> None:
    coupled = problem(InfoNCE().double(), encoder())
    shift = 0.7

    def penalised(parameters: dict[str, Tensor], z: Tensor) -> Tensor:
        return coupled.loss(parameters, z) + shift / 2 * sum(p.square().sum() for p in parameters.values())

    other = CoupledLoss(coupled.encode, penalised, coupled.parameters, coupled.inputs)  # pyright: ignore[reportArgumentType]
    v_P = torch.linspace(-1, 1, coupled.num_parameters, dtype=torch.float64)
    expected = kept_products(coupled) @ v_P + shift * v_P
    for operator in (kept_products(other), chunked_products(other, 2)):
        assert relative(operator @ v_P, expected) < BITS


def test_a_loss_without_curvature_gives_zero() -> None:
    coupled = problem(InfoNCE().double(), encoder())
    linear = CoupledLoss(
        lambda p, x: x[0] @ p["w"], lambda p, z: z.sum(), {"w": torch.ones(4, 2).double()}, coupled.inputs
    )
    for operator in (kept_products(linear), chunked_products(linear, 2)):
        assert not bool((operator @ torch.ones(8).double()).any())


def test_a_product_that_is_no_number_is_refused() -> None:
    at_zero = CoupledLoss(
        lambda p, x: x[0] @ p["w"],
        lambda p, z: z.norm(),
        {"w": torch.zeros(4, 2).double()},
        (torch.ones(3, 4).double(),),
    )
    with pytest.raises(NonFiniteError, match="no second derivative"):
        _ = kept_products(at_zero) @ torch.ones(8).double()


def test_a_product_that_is_not_symmetric_is_found() -> None:
    coupled = problem(make("infonce"), encoder())
    for operator in (kept_products(coupled), chunked_products(coupled, 2)):
        assert symmetry(operator).holds
    skew = 1e-3 * torch.randn(coupled.num_parameters, coupled.num_parameters, dtype=torch.float64)
    wrong = replace(operator, product=lambda v: operator.product(v) + skew @ v)
    assert not symmetry(wrong).holds
