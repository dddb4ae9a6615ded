"""Nearest-neighbour votes against a loop over samples."""

# N bank samples, Q queries, D features

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.evaluation import knn
from counterpoint.evaluation.knn import knn_predict
from oracles import class_votes as oracle

BANK = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
LABELS = torch.tensor([2, 1, 1, 0])


def draw(n: int, seed: int) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(
    n=st.integers(1, 12),
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.001, 0.07, 0.5, 10.0]),
    data=st.data(),
)
@settings(max_examples=60)
def test_predictions_are_those_of_the_loop(n: int, seed: int, temperature: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    bank, queries = draw(n, seed), draw(5, seed + 1)
    labels = torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(seed))
    expected = [oracle.knn_class(bank.tolist(), labels.tolist(), query, k, temperature) for query in queries.tolist()]
    predicted = knn_predict(bank, labels, queries, k=k, temperature=temperature)
    assert predicted.tolist() == expected
    assert predicted.dtype == torch.int64


def test_one_neighbour_is_the_nearest_whatever_the_temperature() -> None:
    queries = torch.tensor([[1.0, 0.1], [0.7, 0.7], [0.1, 1.0]])
    for temperature in (0.01, 0.1, 100.0):
        predicted = knn_predict(BANK, LABELS, queries, k=1, temperature=temperature)
        assert predicted.tolist() == [2, 1, 0]


def test_all_neighbours_at_a_high_temperature_are_a_majority_vote() -> None:
    assert knn_predict(BANK, LABELS, BANK, k=4, temperature=1e4).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("temperature", [0.1, 0.01, 0.005, 0.001])
def test_a_low_temperature_trusts_only_the_nearest_however_far_it_is(temperature: float) -> None:
    """All cosines are below 0: exp((cos - 1) / T) of 1e-300 and less must not make the votes vanish."""
    bank = torch.tensor([[-1.0, 0.0], [-0.6, -0.8], [-0.8, 0.6]])
    queries = torch.tensor([[1.0, 0.0]])
    assert knn_predict(bank, torch.tensor([0, 1, 2]), queries, k=3, temperature=temperature).tolist() == [1]


def test_equal_votes_go_to_the_smaller_class() -> None:
    bank = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    between = torch.tensor([[1.0, 1.0]])
    assert knn_predict(bank, torch.tensor([5, 3]), between, k=2).tolist() == [3]
    assert knn_predict(bank, torch.tensor([3, 5]), between, k=2).tolist() == [3]


def test_two_votes_beat_a_nearer_one_only_if_close_enough() -> None:
    """exp(1 / T) against 2 exp(0.8 / T): the temperature decides, at 0.2 / ln 2 = 0.29."""
    bank = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.8, -0.6]])
    query, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0, 1, 1])
    assert knn_predict(bank, labels, query, k=3, temperature=0.28).tolist() == [0]
    assert knn_predict(bank, labels, query, k=3, temperature=0.30).tolist() == [1]


def test_lengths_do_not_matter() -> None:
    bank, queries = draw(9, 3), draw(4, 4)
    labels = torch.arange(9) % 3
    sizes = torch.linspace(1e-3, 1e3, 9, dtype=torch.float64)[:, None]
    assert torch.equal(knn_predict(bank * sizes, labels, 7 * queries, k=4), knn_predict(bank, labels, queries, k=4))


def test_queries_are_answered_in_order_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, queries, labels = draw(9, 3), draw(7, 4), torch.arange(9)
    whole = knn_predict(bank, labels, queries, k=1)
    monkeypatch.setattr(knn, "QUERY_CHUNK", 3)
    assert torch.equal(knn_predict(bank, labels, queries, k=1), whole)
    assert len(set(whole.tolist())) > 2


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_may_be_any_whole_numbers(dtype: torch.dtype) -> None:
    assert knn_predict(BANK, LABELS.to(dtype), BANK, k=1).tolist() == LABELS.tolist()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"k": 0}, r"k must be between 1 and the number of bank samples, 4, got 0"),
    ({"k": 5}, r"k must be between 1 and the number of bank samples, 4, got 5"),
    ({"temperature": 0.0}, r"temperature must be > 0, got 0\.0; 0\.07 to 0\.1 is usual"),
    ({"labels_N": torch.tensor([0, 1])}, r"labels must be one per sample, shape \(4,\), got \(2,\)"),
    ({"labels_N": torch.tensor([0, 1, -1, 0])}, r"labels must be >= 0, got -1"),
    ({"labels_N": torch.ones(4)}, r"labels must be whole numbers, got torch\.float32"),
    ({"queries_QD": torch.ones(2, 3)}, r"queries must have as many features as the bank, 2, got 3"),
    ({"queries_QD": torch.tensor([[1.0, math.nan]])}, r"queries must be finite, but row 0"),
    ({"bank_ND": BANK[:, 0]}, r"bank must have shape \(samples, features\), got \(4,\)"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"bank_ND": BANK, "labels_N": LABELS, "queries_QD": BANK, "k": 2}
    with pytest.raises(ValueError, match=sentence):
        knn_predict(**{**good, **wrong})
