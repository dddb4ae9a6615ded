"""Nearest-neighbour votes against a loop over samples."""

# N bank samples, Q queries, D features

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightly.utils.benchmarking.knn import knn_predict as lightly_predict
from torch import Tensor

from counterpoint.core.metric import loaded_metrics
from counterpoint.evaluation import knn
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.metric_types import Labelled
from oracles import class_votes as oracle

BANK = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
LABELS = torch.tensor([2, 1, 1, 0])

METRICS = loaded_metrics("evaluation")


def draw(n: int, seed: int) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
    bank = draw(4, seed)[torch.randint(4, (n,), generator=generator)] if is_tied else draw(n, seed)
    labels, queries = torch.randint(0, 3, (n,), generator=generator), draw(5, seed + 1)
    vote = Vote(k, temperature)
    expected = [oracle.knn_class(bank.tolist(), labels.tolist(), query, **vars(vote)) for query in queries.tolist()]
    predicted = knn_predict(bank, labels, queries, vote)
    assert predicted.tolist() == expected
    assert predicted.dtype == torch.int64


def test_of_equally_near_samples_the_first_in_the_bank_votes() -> None:
    bank = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    query = torch.tensor([[0.0, 3.0]])
    assert knn_predict(bank, torch.tensor([0, 2, 1, 1]), query, Vote(k=1)).tolist() == [2]
    assert knn_predict(bank, torch.tensor([0, 1, 2, 2]), query, Vote(k=1)).tolist() == [1]


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_lightly_predicts_the_same(temperature: float) -> None:
    bank, queries, labels = draw(60, 5).float(), draw(40, 6).float(), torch.arange(60) % 7
    unit = [torch.nn.functional.normalize(part) for part in (queries, bank)]
    theirs = lightly_predict(unit[0], unit[1].T, labels, 7, knn_k=11, knn_t=temperature)[:, 0]
    assert torch.equal(knn_predict(bank, labels, queries, Vote(11, temperature)), theirs)


@pytest.mark.parametrize("temperature", [0.1, 0.01, 0.005, 0.001])
def test_a_low_temperature_trusts_only_the_nearest_however_far_it_is(temperature: float) -> None:
    """All cosines are below 0: exp((cos - 1) / T) of 1e-300 and less must not make the votes vanish."""
    bank = torch.tensor([[-1.0, 0.0], [-0.6, -0.8], [-0.8, 0.6]])
    queries = torch.tensor([[1.0, 0.0]])
    assert knn_predict(bank, torch.tensor([0, 1, 2]), queries, Vote(k=3, temperature=temperature)).tolist() == [1]


def test_equal_votes_go_to_the_smaller_class() -> None:
    bank = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    between = torch.tensor([[1.0, 1.0]])
    assert knn_predict(bank, torch.tensor([5, 3]), between, Vote(k=2)).tolist() == [3]
    assert knn_predict(bank, torch.tensor([3, 5]), between, Vote(k=2)).tolist() == [3]


def test_two_votes_beat_a_nearer_one_only_if_close_enough() -> None:
    """exp(1 / T) against 2 exp(0.8 / T): the temperature decides, at 0.2 / ln 2 = 0.29."""
    bank = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.8, -0.6]])
    query, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0, 1, 1])
    assert knn_predict(bank, labels, query, Vote(k=3, temperature=0.28)).tolist() == [0]
    assert knn_predict(bank, labels, query, Vote(k=3, temperature=0.30)).tolist() == [1]


def test_queries_are_answered_in_order_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, queries, labels = draw(9, 3), draw(7, 4), torch.arange(9)
    whole = knn_predict(bank, labels, queries, Vote(k=1))
    monkeypatch.setattr(knn, "QUERY_CHUNK", 3)
    assert torch.equal(knn_predict(bank, labels, queries, Vote(k=1)), whole)
    assert len(set(whole.tolist())) > 2


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_may_be_any_whole_numbers(dtype: torch.dtype) -> None:
    assert knn_predict(BANK, LABELS.to(dtype), BANK, Vote(k=1)).tolist() == LABELS.tolist()


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
    ({"temperature": 0.0}, r"temperature must be > 0, got 0\.0; 0\.07 to 0\.1 is usual"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD_VOTES, ids=[case[1][:40] for case in BAD_VOTES])
def test_a_bad_vote_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Vote(**wrong)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"vote": Vote(k=5)}, r"k must be between 1 and the number of bank samples, 4, got 5"),
    ({"labels_N": torch.tensor([0, 1])}, r"labels must be one per sample, shape \(4,\), got \(2,\)"),
    ({"labels_N": torch.tensor([0, 1, -1, 0])}, r"labels must be >= 0, got -1"),
    ({"labels_N": torch.ones(4)}, r"labels must be whole numbers, got torch\.float32"),
    ({"queries_QD": torch.ones(2, 3)}, r"queries must have as many features as the bank, 2, got 3"),
    ({"queries_QD": torch.tensor([[1.0, math.nan]])}, r"queries must be finite, but row 0"),
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
    with pytest.raises(TypeError, match=r"queries and bank must have the same dtype, got torch\.float64 and torch\.f"):
        knn_predict(BANK, LABELS, BANK.double(), Vote(k=1))
