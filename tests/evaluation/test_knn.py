"""Nearest-neighbour votes against a loop over samples; every block size and number of threads finds the same."""

# N bank samples, Q queries, D features

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightly.utils.benchmarking.knn import knn_predict as lightly_predict
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.evaluation import knn
from counterpoint.evaluation.knn import DOT, Vote, knn_predict, largest, nearest
from counterpoint.evaluation.metric_types import Labelled
from draws import draw
from oracles import class_votes as oracle
from oracles.number_checks import assert_numbers

BANK = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
LABELS = torch.tensor([2, 1, 1, 0])


@given(
    n=st.integers(1, 30),
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.001, 0.07, 0.5, 10.0]),
    is_tied=st.booleans(),
    data=st.data(),
)
@settings(max_examples=40)
def test_predictions_are_those_of_the_loop(
    n: int, seed: int, temperature: float, is_tied: bool, data: st.DataObject
) -> None:
    """Of samples that are copies of 4, which of them are the nearest k decides the vote."""
    k, generator = data.draw(st.integers(1, n)), torch.Generator().manual_seed(seed)
    bank = draw(4, 3, seed)[torch.randint(4, (n,), generator=generator)] if is_tied else draw(n, 3, seed)
    labels, queries = torch.randint(0, 3, (n,), generator=generator, dtype=torch.int32), draw(5, 3, seed + 1)
    vote = Vote(k, temperature)
    expected = [oracle.knn_class(bank.tolist(), labels.tolist(), query, **vars(vote)) for query in queries.tolist()]
    predicted = knn_predict(bank, labels, queries, vote)
    assert predicted.tolist() == expected
    assert predicted.dtype == torch.int64


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_lightly_predicts_the_same(temperature: float) -> None:
    bank, queries, labels = draw(60, 3, 5).float(), draw(40, 3, 6).float(), torch.arange(60) % 7
    unit = [torch.nn.functional.normalize(part) for part in (queries, bank)]
    theirs = lightly_predict(unit[0], unit[1].T, labels, 7, knn_k=11, knn_t=temperature)[:, 0]
    assert torch.equal(knn_predict(bank, labels, queries, Vote(11, temperature)), theirs)


@pytest.mark.parametrize("temperature", [0.1, 0.01, 0.005, 0.001])
def test_a_low_temperature_trusts_only_the_nearest_however_far_it_is(temperature: float) -> None:
    """All cosines are below 0: exp((cos - 1) / T) of 1e-300 and less must not make the votes vanish."""
    bank = torch.tensor([[-1.0, 0.0], [-0.6, -0.8], [-0.8, 0.6]])
    queries = torch.tensor([[1.0, 0.0]])
    assert knn_predict(bank, torch.tensor([0, 1, 2]), queries, Vote(k=3, temperature=temperature)).tolist() == [1]


def test_queries_are_answered_in_order_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, queries, labels = draw(9, 3, 3), draw(7, 3, 4), torch.arange(9)
    whole = knn_predict(bank, labels, queries, Vote(k=1))
    monkeypatch.setattr(knn, "QUERY_CHUNK", 3)
    assert torch.equal(knn_predict(bank, labels, queries, Vote(k=1)), whole)
    assert len(set(whole.tolist())) > 2


def labelled(num_bank: int, **vote: Any) -> Labelled:
    """Clusters along two axes, of which all queries belong to one."""
    labels = torch.arange(num_bank) % 2
    queries = torch.tensor([[3.0, 0.1, 0.0]]).expand(10, 3)
    return Labelled(
        torch.eye(3)[labels], labels, queries, torch.zeros(10).long(), **{"k": 1, "temperature": 0.1, **vote}
    )


def test_the_score_is_by_the_vote_that_was_asked_for_and_says_so() -> None:
    assert knn.knn_score(labelled(4, k=3)).settings == {"k": 3, "temperature": 0.1, "similarity": "cosine"}


BAD_VOTES: list[tuple[dict[str, Any], str]] = [
    ({"k": 0}, r"k must be >= 1, got 0; 20 and 200 are usual"),
    ({"temperature": 0.0}, r"temperature .*; 0\.07 to 0\.1 is usual"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD_VOTES, ids=[case[1][:40] for case in BAD_VOTES])
def test_a_bad_vote_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Vote(**wrong)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"vote": Vote(k=5)}, r"k must be between 1 and the number of bank samples, 4, got 5"),
    ({"labels_N": torch.tensor([0, 1])}, r"labels .*\(4,\), got \(2,\)"),
    ({"labels_N": torch.tensor([0, 1, -1, 0])}, r"labels must be >= 0, got -1"),
    ({"labels_N": torch.ones(4)}, r"labels .*torch\.float32"),
    ({"queries_QD": torch.ones(2, 3)}, r"queries must have as many features as the bank, 2, got 3"),
    ({"queries_QD": torch.tensor([[1.0, math.nan]])}, r"queries .*row 0"),
    (
        {"bank_ND": torch.full((8, 2), math.inf)},
        r"row 0 holds NaN or infinity, as do 7 more rows: 1, 2, 3, 4, 5, \.\.\.",
    ),
    ({"bank_ND": BANK[:, 0]}, r"bank must have shape \(samples, features\), got \(4,\)"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"bank_ND": BANK, "labels_N": LABELS, "queries_QD": BANK, "vote": Vote(k=2)}
    with pytest.raises(ValueError, match=sentence):
        knn_predict(**{**good, **wrong})


def test_two_precisions_are_refused() -> None:
    with pytest.raises(TypeError, match=r"queries and bank .*torch\.float64"):
        knn_predict(BANK, LABELS, BANK.double(), Vote(k=1))


# --- the neighbours themselves


def copies(n: int, num_kinds: int, seed: int, *, num_features: int = 3) -> Tensor:
    """Samples that are copies of a few."""
    kinds = torch.randint(num_kinds, (n,), generator=torch.Generator().manual_seed(seed))
    return draw(num_kinds, num_features, seed)[kinds]


@pytest.mark.parametrize("num_kinds", [3, 1000])
def test_neighbours_are_those_of_the_loop_in_its_order(num_kinds: int) -> None:
    bank, queries = copies(40, num_kinds, 0), draw(6, 3, 1)
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
    monkeypatch.setattr(knn, "BANK_BLOCK", 200)
    monkeypatch.setattr(knn, "QUERY_CHUNK", 8)
    bank, queries = (unit_rows(draw(n, 5, n)) for n in (num_rows, num_queries))
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
    bank, queries = copies(30, 5, 3), draw(9, 3, 4)
    whole = nearest(bank, queries, 8, similarity=similarity)
    monkeypatch.setattr(knn, "BANK_BLOCK", size)
    monkeypatch.setattr(knn, "QUERY_CHUNK", 4)
    parts = nearest(bank, queries, 8, similarity=similarity)
    assert torch.equal(parts.positions_QK, whole.positions_QK)
    assert_numbers(parts.similarity_QK, whole.similarity_QK)


@pytest.mark.parametrize("num_queries", [1, 2, 257])
@pytest.mark.parametrize("num_features", [16, 100, 512])
def test_copies_are_equally_near_in_float32(num_queries: int, num_features: int) -> None:
    """A product of one row with a matrix rounds its last columns in another way."""
    bank = copies(301, 4, 5, num_features=num_features).float()
    found = nearest(bank, draw(num_queries, num_features, 6).float(), 301)
    for similarity_N, positions_N in zip(found.similarity_QK, found.positions_QK, strict=True):
        assert len(similarity_N.unique()) <= 4
        for value in similarity_N.unique():
            assert positions_N[similarity_N == value].diff().gt(0).all()


def test_any_number_of_threads_finds_the_same_bits() -> None:
    bank, queries = draw(500, 33, 7).float(), draw(600, 33, 8).float()
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
