"""MIG: loops, the reference over the whole grid of dSprites, and codes whose scores are known."""

# N samples, D dimensions of the code, F factors

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draws import draw
from oracles import disentanglement_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.ncl2024.disentanglement import factor_information
from reproductions.ncl2024.sprites import GRID, factors_at

EXACT = 1e-12


def grid(*sizes: int) -> Tensor:
    """Every combination of factor values once."""
    return torch.cartesian_prod(*map(torch.arange, sizes))


SMALL = grid(3, 4, 6, 2)


@given(n=st.integers(6, 30), width=st.integers(2, 4), num_bins=st.integers(2, 8), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_informations_are_those_of_the_loops(n: int, width: int, num_bins: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randint(-1, 3, (n, 2), generator=generator)
    factors[:2] = torch.tensor([[5, 7], [6, 7]])[:, :2] - torch.tensor([[0, 0], [0, 1]])  # at least two values each
    codes = draw(n, width, seed)
    codes[:, 0] = codes[:, 0].round()  # values on the edges of bins
    information = factor_information(codes, factors, num_bins=num_bins)
    table = oracle.informations(codes.numpy(), factors.numpy(), num_bins)
    entropies = [oracle.information(factor, factor) for factor in factors.T.tolist()]
    assert_numbers([[1.0] * 2, *information.information_DF.tolist()], [[1.0] * 2, *table])
    assert_numbers(information.entropy_F, entropies)
    assert_numbers([1.0, information.gap], [1.0, oracle.gap(table, entropies)])


@pytest.mark.thorough
def test_the_gap_is_the_references_over_the_whole_grid_of_dsprites() -> None:
    factors = factors_at(torch.arange(math.prod(GRID)))
    noise = draw(len(factors), 1)
    mixed = factors.double() @ draw(5, 1, seed=1) + noise
    codes = torch.cat([factors.double(), mixed, noise, torch.ones(len(factors), 1)], dim=1)
    ours = factor_information(codes, factors).gap
    assert abs(ours - oracle.reference_gap(codes.numpy(), factors.numpy(), num_bins=20)) <= EXACT


def test_the_factors_themselves_score_one_and_duplicates_and_constants_none() -> None:
    assert abs(factor_information(SMALL.double(), SMALL).gap - 1.0) <= EXACT
    shuffled = factor_information(-7.0 * SMALL[:, [2, 0, 3, 1]].double() + 3.0, SMALL)
    assert abs(shuffled.gap - 1.0) <= EXACT
    assert factor_information(SMALL.double().repeat(1, 2), SMALL).gap == 0.0
    assert factor_information(torch.full((len(SMALL), 3), 0.3), SMALL).gap == 0.0


def test_values_that_float32_can_hardly_tell_apart_get_bins_of_their_own() -> None:
    """A collapsed code: 1 and the two numbers after it."""
    factors = grid(3, 2)
    step = torch.finfo(torch.float32).eps
    code = torch.stack([1 + step * factors[:, 0], 1 + step * factors[:, 1]], dim=1).float()
    assert abs(factor_information(code, factors).gap - 1.0) <= EXACT


BAD: list[tuple[dict[str, Any], str]] = [
    ({"factors_NF": SMALL[:5]}, r"factors must be whole numbers of shape \(144, factors\), got torch.int64 of shape"),
    ({"factors_NF": SMALL.double()}, "factors must be whole numbers of shape .*, got torch.float64"),
    ({"factors_NF": SMALL[:, :1]}, "at least 2 dimensions and 2 factors are compared, got 4 and 1"),
    ({"codes_ND": SMALL[:, :1].float()}, "at least 2 dimensions and 2 factors are compared, got 1 and 4"),
    ({"num_bins": 1}, "num_bins must be >= 2, got 1; 20 is usual"),
    ({"codes_ND": SMALL.double() / 0}, "codes .*row 0"),
    ({"factors_NF": SMALL * torch.tensor([1, 1, 0, 1])}, "factor 2 has one value only, 0; leave its column out"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        factor_information(**{"codes_ND": SMALL.double(), "factors_NF": SMALL, **wrong})
