"""Exact search of sparse codes against dense products of all pairs, with ties and rows of zeros."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import counterpoint as cp
from counterpoint.search.sparse_search import CodeIndex


def drawn(seed: int, num: int, units: int, share: float, *, signed: bool = False) -> np.ndarray:
    """Codes of small whole numbers, so that ties are many and products exact."""
    draws = np.random.default_rng(seed)
    values = draws.integers(-2 if signed else 1, 4, (num, units))
    return np.where(draws.random((num, units)) < share, values, 0).astype(np.float32)


def dense(codes: np.ndarray, query: np.ndarray, k: int) -> tuple[list[int], np.ndarray]:
    """All products, and the order of the k largest; of equal ones the first row."""
    products = codes.astype(np.float64) @ query.astype(np.float64)
    best = sorted(range(len(codes)), key=lambda row: (-products[row], row))[:k]
    return best, products[best]


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 12), st.sampled_from([0.0, 0.1, 0.5]), st.booleans())
def test_the_nearest_are_those_of_dense_products(seed: int, num: int, units: int, share: float, signed: bool) -> None:
    codes, queries = drawn(seed, num, units, share, signed=signed), drawn(seed + 1, 3, units, 0.3, signed=signed)
    k = seed % num + 1
    found = CodeIndex(csr_matrix(codes), "dot").search(csr_matrix(queries), k)
    for place, query in enumerate(queries):
        rows, products = dense(codes, query, k)
        assert found.positions_QK[place].tolist() == rows
        assert found.similarity_QK[place].tolist() == products.tolist()


def test_cosines_do_not_know_length_and_copies_tie_by_row() -> None:
    codes = np.random.default_rng(0).random((300, 20)) * (np.random.default_rng(1).random((300, 20)) < 0.2)
    codes[[7, 150, 299]] = codes[42]
    codes[100] = 0
    found = CodeIndex(codes.astype(np.float32)).search(codes[42:43] * 5, 300)
    assert found.positions_QK[0, :4].tolist() == [7, 42, 150, 299]
    assert len(set(found.similarity_QK[0, :4].tolist())) == 1
    assert sorted(found.positions_QK[0].tolist()) == list(range(300))
    lengths = np.linalg.norm(codes, axis=1)
    cosines = np.divide(codes @ codes[42], lengths * lengths[42], out=np.zeros(300), where=lengths > 0)
    np.testing.assert_allclose(found.similarity_QK[0], np.sort(cosines)[::-1], atol=1e-6)


def test_a_query_of_zeros_finds_the_first_rows_and_explicit_zeros_count_as_none() -> None:
    codes = csr_matrix((np.array([0.0, 1.0, 2.0]), np.array([0, 1, 1]), np.array([0, 1, 2, 3])), shape=(3, 2))
    index = CodeIndex(codes)
    assert index.search(np.zeros((1, 2)), 2).positions_QK.tolist() == [[0, 1]]
    assert index.search(np.array([[1.0, 0.0]]), 1).similarity_QK.tolist() == [[0.0]]
    assert CodeIndex(np.array([[3.0, 4.0]])).search(np.array([[3.0, 4.0]]), 1).similarity_QK.tolist() == [[1.0]]
    assert codes.nnz == 3  # as it was given


@pytest.mark.parametrize(
    ("codes", "queries", "k", "words"),
    [
        (np.eye(3), np.eye(3), 4, "between 1 and 3"),
        (np.eye(3), np.eye(3), 0, "between 1 and 3"),
        (np.eye(3), np.eye(3), 1.5, "a whole number between 1 and 3"),
        (np.eye(3), np.eye(3), "3", "got '3'"),
        (np.eye(3), np.eye(3), True, "got True"),
        (np.eye(3), np.eye(2), 1, "2 units"),
        (np.eye(3), np.ones(3), 1, "shape"),
        (np.diag([1.0, np.nan]), np.eye(2), 1, "NaN"),
        (np.eye(2), np.diag([1.0, np.inf]), 1, "NaN or inf"),
        (np.empty((0, 3)), np.eye(3), 1, "no codes"),
    ],
)
def test_what_cannot_be_searched_is_refused(codes: Any, queries: Any, k: Any, words: str) -> None:
    with pytest.raises(cp.CounterpointError, match=words):
        CodeIndex(codes).search(queries, k)
