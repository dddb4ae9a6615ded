"""Nearest neighbours against exact fractions, with ties, near ties, and any number of threads."""

# N bank samples, Q queries, D features

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from counterpoint.evaluation import nearest as module
from counterpoint.evaluation.nearest import nearest
from oracles.retrieval_oracle import order_by_cosine

# Codes of zeros and ones have many equal rows, zero rows, and equal cosines of different rows.
codes = arrays.arrays(
    np.float64, st.tuples(st.integers(3, 30), st.integers(1, 5)), elements=st.sampled_from([0.0, 1.0])
)


def draw(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def expected(bank: Tensor, k: int, places: range) -> list[list[int]]:
    """Neighbours of some of the bank's own samples."""
    rows = bank.tolist()
    return [order_by_cosine(rows[place], rows, place)[:k] for place in places]


@given(codes, st.data())
@settings(max_examples=25)
def test_ties_go_to_the_smaller_position(z: np.ndarray, data: st.DataObject) -> None:
    features = torch.from_numpy(z)
    k = data.draw(st.integers(1, len(z) - 1))
    assert nearest(features, k=k).tolist() == expected(features, k, range(len(z)))
    found = [order_by_cosine(row, z.tolist())[:k] for row in z[:3].tolist()]
    assert nearest(features[:3], features, k=k).tolist() == found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("n", [12, 200])
def test_the_order_is_that_of_exact_cosines(dtype: torch.dtype, n: int) -> None:
    bank, queries = draw(n, 6).to(dtype), draw(9, 6, seed=1).to(dtype)
    found = [order_by_cosine(row, bank.tolist())[:5] for row in queries.tolist()]
    assert nearest(queries, bank, k=5).tolist() == found
    assert nearest(bank, k=5)[::10].tolist() == expected(bank, 5, range(0, n, 10))


@pytest.mark.parametrize("spread", [1e-3, 1e-5])
def test_cosines_that_float32_cannot_tell_apart_are_ordered(spread: float) -> None:
    """A collapsed encoder: the differences from 1 are below 1e-6 or 1e-10."""
    bank = (1.0 + spread * draw(100, 8)).float()
    assert nearest(bank, k=3)[::5].tolist() == expected(bank, 3, range(0, 100, 5))


def test_equal_rows_tie_though_products_depend_on_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """BLAS may sum in another order at the edge of a matrix; here every second column differs in its last bits."""
    distinct = draw(7, 37)
    places = torch.randint(7, (301,), generator=torch.Generator().manual_seed(0))
    multiply = torch.matmul

    def uneven(left: Tensor, right: Tensor) -> Tensor:
        product = multiply(left, right)
        return product * (1 + torch.finfo(product.dtype).eps * (torch.arange(right.shape[1]) % 2).to(product))

    monkeypatch.setattr(Tensor, "__matmul__", uneven)
    neighbours = nearest(distinct, distinct[places], k=20)
    for query in range(7):
        assert neighbours[query].tolist() == (places == query).nonzero()[:20, 0].tolist()


def test_blocks_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = torch.cat([draw(150, 5), draw(150, 5).round()])
    whole = nearest(bank, k=7)
    monkeypatch.setattr(module, "MOST_QUERIES", 13)
    assert torch.equal(nearest(bank, k=7), whole)
    monkeypatch.setattr(module, "MOST_COSINES", 900)  # blocks of three queries
    num_threads = torch.get_num_threads()
    for number in (1, 3):
        torch.set_num_threads(number)
        try:
            assert torch.equal(nearest(bank, k=7), whole)
        finally:
            torch.set_num_threads(num_threads)


def test_lengths_do_not_matter() -> None:
    bank, sizes = draw(60, 4), 2.0 ** torch.arange(-30.0, 30.0, dtype=torch.float64)[:, None]
    assert torch.equal(nearest(bank * sizes, k=9), nearest(bank, k=9))


BANK = draw(4, 2)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"k": 0}, "k must be between 1 and the number of samples to choose from, 4, got 0"),
    ({"k": 5}, "k must be between 1 and the number of samples to choose from, 4, got 5"),
    ({"bank_ND": None, "k": 4}, "k must be between 1 and the number of samples to choose from, 3, got 4"),
    ({"queries_QD": torch.ones(2, 3)}, "queries must have as many features as the bank, 2, got 3"),
    ({"queries_QD": torch.tensor([[1.0, math.nan]])}, "queries must be finite, but row 0"),
    ({"bank_ND": torch.tensor([[1.0, 0.0], [1.0, math.inf]])}, "bank must be finite, but row 1"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        nearest(**{"queries_QD": BANK, "bank_ND": BANK, "k": 1, **wrong})
