"""Exact neighbours: every block size and number of threads finds those of a stable sort, with ties in order."""

# N bank samples, Q queries, D features

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.evaluation import knn as search
from counterpoint.evaluation.knn import DOT, largest, nearest
from oracles import class_votes as oracle
from oracles.number_checks import assert_numbers


def draw(n: int, seed: int, *, num_features: int = 3) -> Tensor:
    return torch.randn(n, num_features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def copies(n: int, num_kinds: int, seed: int, *, num_features: int = 3) -> Tensor:
    """Samples that are copies of a few."""
    kinds = torch.randint(num_kinds, (n,), generator=torch.Generator().manual_seed(seed))
    return draw(num_kinds, seed, num_features=num_features)[kinds]


@pytest.mark.parametrize("num_kinds", [3, 1000])
def test_neighbours_are_those_of_the_loop_in_its_order(num_kinds: int) -> None:
    bank, queries = copies(40, num_kinds, 0), draw(6, 1)
    for k in (1, 7, 39, 40):
        found = nearest(bank, queries, k)
        expected = [oracle.neighbours(bank.tolist(), query, k) for query in queries.tolist()]
        assert found.positions_QK.tolist() == expected
        values = [
            [oracle.cosine(bank[i].tolist(), q.tolist()) for i in row] for q, row in zip(queries, expected, strict=True)
        ]
        assert_numbers(found.similarity_QK, values)


@pytest.mark.parametrize("num_rows", [40, 500])
@pytest.mark.parametrize("num_queries", [1, 40])
def test_products_of_unit_rows_find_what_cosines_do(
    num_rows: int, num_queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few queries, for which threads take blocks, and many, for which they take queries."""
    monkeypatch.setattr(search, "BANK_BLOCK", 200)
    monkeypatch.setattr(search, "QUERY_CHUNK", 8)
    bank, queries = (unit_rows(draw(n, n, num_features=5)) for n in (num_rows, num_queries))
    found, expected = nearest(bank, queries, 7, similarity=DOT), nearest(bank, queries, 7)
    assert torch.equal(found.positions_QK, expected.positions_QK)
    assert_numbers(found.similarity_QK, expected.similarity_QK.tolist())


@given(
    num_columns=st.sampled_from([5, 60, 400, 2001]),
    num_values=st.sampled_from([1, 2, 30, 10**6]),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_the_largest_are_the_first_of_a_stable_sort(num_columns: int, num_values: int, share: float, seed: int) -> None:
    """Also where they are searched by groups, and where many are equal."""
    k = 1 + int(share * (num_columns - 1))
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(num_values, (4, num_columns), generator=generator).float()
    found, expected = largest(values, k), values.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found.similarity_QK, expected.values[:, :k])
    assert torch.equal(found.positions_QK, expected.indices[:, :k])


@pytest.mark.parametrize("similarity", ["cosine", DOT])
@pytest.mark.parametrize("size", [1, 4, 7, 29, 30])
def test_blocks_of_any_size_find_the_same(similarity: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies lie in different blocks, and the last block is shorter."""
    bank, queries = copies(30, 5, 3), draw(9, 4)
    whole = nearest(bank, queries, 8, similarity=similarity)
    monkeypatch.setattr(search, "BANK_BLOCK", size)
    monkeypatch.setattr(search, "QUERY_CHUNK", 4)
    parts = nearest(bank, queries, 8, similarity=similarity)
    assert torch.equal(parts.positions_QK, whole.positions_QK)
    assert_numbers(parts.similarity_QK, whole.similarity_QK)


@pytest.mark.parametrize("num_queries", [1, 2, 257])
@pytest.mark.parametrize("num_features", [16, 100, 512])
def test_copies_are_equally_near_in_float32(num_queries: int, num_features: int) -> None:
    """A product of one row with a matrix rounds its last columns in another way."""
    bank = copies(301, 4, 5, num_features=num_features).float()
    found = nearest(bank, draw(num_queries, 6, num_features=num_features).float(), 301)
    for similarity_N, positions_N in zip(found.similarity_QK, found.positions_QK, strict=True):
        assert len(similarity_N.unique()) <= 4
        for value in similarity_N.unique():
            assert positions_N[similarity_N == value].diff().gt(0).all()


def test_any_number_of_threads_finds_the_same_bits() -> None:
    bank, queries = draw(500, 7, num_features=33).float(), draw(600, 8, num_features=33).float()
    usual, found = torch.get_num_threads(), []
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            found.append(nearest(bank, queries, 20))
    finally:
        torch.set_num_threads(usual)
    for other in found[1:]:
        assert torch.equal(other.similarity_QK, found[0].similarity_QK)
        assert torch.equal(other.positions_QK, found[0].positions_QK)
