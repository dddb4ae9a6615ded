"""Average precision in its two definitions: loops, torchmetrics, and figures known beforehand."""

# N bank samples, Q queries, D features

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.retrieval import RetrievalPrecision

from counterpoint.core.errors import DataError
from counterpoint.core.metric import loaded_metrics
from counterpoint.diagnostics.evidence import Interval
from counterpoint.evaluation.metric_types import Labelled
from counterpoint.evaluation.retrieval import average_precision, mean_over_queries, retrieved_hits
from draws import draw
from oracles import retrieval_oracle as oracle
from oracles.number_checks import assert_numbers

CAPPED, PAPER = "pytorch-geometric", "ncl2024"


def draw_labels(n: int, seed: int, num_classes: int = 4) -> Tensor:
    return torch.randint(num_classes, (n,), generator=torch.Generator().manual_seed(seed))


def precision_and_average(
    queries: Tensor, labels: Tensor, bank: Tensor, bank_labels: Tensor, k: int
) -> dict[str, Tensor]:
    """A value for each query, by the name of its definition."""
    hits = retrieved_hits(queries, labels, bank, bank_labels, k=k)
    relevant = (labels[:, None] == bank_labels).sum(dim=1)
    return {CAPPED: average_precision(hits, relevant), PAPER: hits.mean(dim=1)}


@given(n=st.integers(2, 30), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=20)
def test_every_definition_is_its_loop(n: int, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    queries, bank = draw(6, 4, seed), draw(n, 4, seed + 1)
    labels, bank_labels = draw_labels(6, seed, 5), draw_labels(n, seed)  # one class is rare
    for definition, found in precision_and_average(queries, labels, bank, bank_labels, k).items():
        loops = oracle.average_precisions(
            queries.tolist(), labels.tolist(), bank.tolist(), bank_labels.tolist(), k, definition
        )
        assert_numbers(found, loops)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_torchmetrics_says_the_same(k: int) -> None:
    queries, bank = draw(40, 4, 1), draw(70, 4, 2)
    labels, bank_labels = draw_labels(40, 1, 9), draw_labels(70, 2, 8)  # class 8 is not in the bank
    cosines = torch.cosine_similarity(queries[:, None], bank[None], dim=2)
    asked = {
        "preds": (2.0 + cosines).flatten(),  # it would take those at or below 0 for irrelevant
        "target": (labels[:, None] == bank_labels).flatten(),
        "indexes": torch.arange(40).repeat_interleave(70),
    }
    theirs = float(RetrievalPrecision(top_k=k)(**asked))
    ours = float(retrieved_hits(queries, labels, bank, bank_labels, k=k).mean())
    assert_numbers(ours, theirs, dtype=torch.float32)


@pytest.mark.parametrize("name", ["mAP@10", "precision@10"])
def test_a_score_has_its_interval_and_names_its_definition(name: str) -> None:
    metric = loaded_metrics("evaluation")[name]
    bank, labels = draw(60, 4, 1), draw_labels(60, 1)
    score = metric.measure(Labelled(bank, labels, draw(25, 4, 2), draw_labels(25, 2), k=20, temperature=0.1))
    definition = score.settings["definition"]
    value_Q = precision_and_average(draw(25, 4, 2), draw_labels(25, 2), bank, labels, 10)[definition]
    mean, spread = float(value_Q.mean()), 1.959963984540054 * float(value_Q.std()) / 5
    outcome = score.outcome
    assert_numbers([outcome.value, outcome.low, outcome.high], [mean, mean - spread, mean + spread])
    assert score.settings == {
        "definition": PAPER if name == "precision@10" else CAPPED,
        "k": 10,
        "similarity": "cosine",
    }
    assert metric.on_request


def test_an_interval_stays_a_share_and_needs_two_queries() -> None:
    metric, labels = loaded_metrics("evaluation")["precision@10"], torch.arange(40) % 2
    bank = torch.eye(2)[labels]
    bank[1] = bank[0]  # one of its ten neighbours is wrong for each query of class 0
    score = metric.measure(Labelled(bank, labels, bank[:12], labels[:12], k=20, temperature=0.1))
    assert 0.8 < score.outcome.value < score.outcome.high == 1.0
    assert mean_over_queries(torch.tensor([0.5])) == Interval(0.5)
    with pytest.raises(DataError, match="no query can be scored: the bank has no sample of their classes"):
        mean_over_queries(torch.tensor([math.nan]))


def test_a_small_bank_is_refused() -> None:
    few = Labelled(draw(9, 4, 0), draw_labels(9, 0), draw(12, 4, 1), draw_labels(12, 1), k=5, temperature=0.1)
    with pytest.raises(DataError, match="10 samples are to be retrieved, but the bank has only 9 with a label"):
        loaded_metrics("evaluation")["mAP@10"].measure(few)


@pytest.mark.parametrize(
    ("labels_Q", "sentence"),
    [
        ([0, 1], r"labels .*\(5,\), got \(2,\)"),
        ([0, 1, -2, 0, 0], "labels must be >= 0, got -2; leave samples without a label out"),
    ],
)
def test_bad_labels_of_queries_are_named(labels_Q: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        retrieved_hits(draw(5, 4, 0), torch.tensor(labels_Q), draw(4, 4, 1), torch.arange(4), k=2)


def test_a_hit_at_the_first_rank_alone_shows_what_the_definitions_hide() -> None:
    bank = torch.eye(5, dtype=torch.float64) + 0.01
    query, label = bank[:1] + torch.tensor([[0.0, 0.4, 0.3, 0.2, 0.1]]), torch.tensor([0])
    labels = torch.tensor([0, 1, 1, 0, 0])  # ranks 1, 4 and 5 are relevant
    found = precision_and_average(query, label, bank, labels, 3)
    assert_numbers([found[CAPPED].item(), found[PAPER].item()], [1 / 3, 1 / 3])
