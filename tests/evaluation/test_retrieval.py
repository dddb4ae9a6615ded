"""Average precision in its two definitions: loops, torchmetrics, and figures known beforehand."""

# N bank samples, Q queries, D features

import math
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.retrieval import RetrievalPrecision

import counterpoint as cp
from counterpoint.core.errors import DataError
from counterpoint.core.metric import loaded_metrics
from counterpoint.evaluation.metric_types import IntervalEstimate, Labelled
from counterpoint.evaluation.retrieval import (
    Definition,
    average_precision,
    mean_over_queries,
)
from oracles import retrieval_oracle as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_estimate

DEFINITIONS: tuple[Definition, ...] = get_args(Definition)
CAPPED, PAPER = DEFINITIONS


def draw(n: int, seed: int, width: int = 4) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_labels(n: int, seed: int, num_classes: int = 4) -> Tensor:
    return torch.randint(num_classes, (n,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("definition", DEFINITIONS)
@given(n=st.integers(2, 30), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=15)
def test_every_definition_is_its_loop(definition: Definition, n: int, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    queries, labels, bank, bank_labels = draw(6, seed), draw_labels(6, seed), draw(n, seed + 1), draw_labels(n, seed)
    ours = average_precision(queries, labels, bank, bank_labels, k=k, definition=definition)
    loops = oracle.average_precisions(
        queries.tolist(), labels.tolist(), bank.tolist(), bank_labels.tolist(), k, definition
    )
    assert_numbers(ours, loops)
    counted = [value for value in loops if not math.isnan(value)]
    assert_numbers(ours.nanmean(), math.fsum(counted) / len(counted) if counted else math.nan)


@pytest.mark.parametrize("k", [1, 5, 10])
def test_torchmetrics_says_the_same(k: int) -> None:
    queries, bank = draw(40, 1), draw(70, 2)
    labels, bank_labels = draw_labels(40, 1, 9), draw_labels(70, 2, 8)  # class 8 is not in the bank
    cosines = torch.cosine_similarity(queries[:, None], bank[None], dim=2)
    asked = {
        "preds": (2.0 + cosines).flatten(),  # it would take those at or below 0 for irrelevant
        "target": (labels[:, None] == bank_labels).flatten(),
        "indexes": torch.arange(40).repeat_interleave(70),
    }
    theirs = float(RetrievalPrecision(top_k=k)(**asked))
    ours = float(average_precision(queries, labels, bank, bank_labels, k=k, definition=PAPER).mean())
    assert_numbers(ours, theirs, dtype=torch.float32)


def test_perfect_features_reach_the_most_that_each_definition_allows() -> None:
    """10 classes of 6 samples: 6 are relevant, of 10 that are retrieved."""
    labels = torch.arange(60) % 10
    perfect = torch.eye(10)[labels]
    for k, most in ((10, [1.0, 0.6]), (2, [1.0, 1.0])):
        found = [average_precision(perfect, labels, perfect, labels, k=k, definition=each) for each in DEFINITIONS]
        assert_numbers([float(each.mean()) for each in found], most)


def test_constant_features_retrieve_the_first_samples() -> None:
    """Classes 0, 1, 0, 1, ...: the first ten of the bank, whatever is asked."""
    labels = torch.arange(40) % 2
    constant = torch.ones(40, 3)
    for definition in DEFINITIONS:
        found = average_precision(torch.ones(2, 3), torch.tensor([0, 1]), constant, labels, definition=definition)
        hits = [[place % 2 == label for place in range(10)] for label in (0, 1)]
        assert_numbers(found, [oracle.average_precision(each, 20, definition) for each in hits])


def test_random_features_have_the_precision_of_chance() -> None:
    labels = draw_labels(2000, 0, 4)
    value = float(average_precision(draw(500, 1), labels[:500], draw(2000, 2), labels, definition=PAPER).mean())
    rates = torch.bincount(labels).double() / 2000
    chance = float(rates[labels[:500]].mean())
    # Twice the deviation of independent draws: queries near to each other share neighbours.
    assert_estimate(value, chance, 2 * math.sqrt(chance * (1 - chance) / 5000))


def test_a_hit_at_the_first_rank_alone_shows_what_the_definitions_hide() -> None:
    bank = torch.eye(5, dtype=torch.float64)[[0, 1, 2, 3, 4]] + 0.01
    query, label = bank[:1] + torch.tensor([[0.0, 0.4, 0.3, 0.2, 0.1]]), torch.tensor([0])
    labels = torch.tensor([0, 1, 1, 0, 0])  # ranks 1, 4 and 5 are relevant
    found = [average_precision(query, label, bank, labels, k=3, definition=each).item() for each in DEFINITIONS]
    assert_numbers(found, [1 / 3, 1 / 3])


def test_a_query_whose_class_the_bank_lacks_is_left_out_or_counts_zero() -> None:
    features = draw(3, 0), torch.tensor([0, 1, 7]), draw(9, 1), torch.arange(9) % 2
    for definition in DEFINITIONS:
        last = average_precision(*features, k=4, definition=definition)[2]
        assert math.isnan(last) if definition == CAPPED else last == 0.0
    lone = draw(3, 0), torch.tensor([7, 8, 9]), *features[2:]
    assert average_precision(*lone, k=4).isnan().all()


@pytest.mark.thorough
def test_a_run_is_evaluated_by_retrieval_and_by_a_quarter_only_where_they_are_named(run: cp.Run) -> None:
    names = ["mAP@10", "precision@10", "quarter kept"]
    rows = [row for row in cp.evaluate(run, metrics=names, quiet=True).rows if row.features == "representation"]
    assert [row.protocol for row in rows] == names
    assert all(row.low is not None for row in rows)
    assert not {row.protocol for row in cp.evaluate(run, quiet=True).rows} & set(names)


@pytest.mark.parametrize("name", ["mAP@10", "precision@10"])
def test_a_score_has_its_interval_and_names_its_definition(name: str) -> None:
    metric = loaded_metrics("evaluation")[name]
    bank, labels = draw(60, 1), draw_labels(60, 1)
    score = metric.measure(Labelled(bank, labels, draw(25, 2), draw_labels(25, 2), k=20, temperature=0.1))
    definition = score.settings["definition"]
    value_Q = average_precision(draw(25, 2), draw_labels(25, 2), bank, labels, definition=definition)
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
    assert mean_over_queries(torch.tensor([0.5])) == IntervalEstimate(0.5)
    with pytest.raises(DataError, match="no query can be scored: the bank has no sample of their classes"):
        mean_over_queries(torch.tensor([math.nan]))


def test_a_small_bank_is_refused() -> None:
    few = Labelled(draw(9, 0), draw_labels(9, 0), draw(12, 1), draw_labels(12, 1), k=5, temperature=0.1)
    with pytest.raises(DataError, match="10 samples are to be retrieved, but the bank has only 9 with a label"):
        loaded_metrics("evaluation")["mAP@10"].measure(few)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"definition": "mean"}, "definition must be one of pytorch-geometric, ncl2024, got"),
    ({"labels_Q": torch.tensor([0, 1])}, r"labels must be one per sample, shape \(5,\), got \(2,\)"),
    ({"labels_N": torch.tensor([0, 1, -1, 0])}, "labels must be >= 0, got -1; leave samples without a label out"),
    ({"labels_Q": torch.tensor([0, 1, -2, 0, 0])}, "labels must be >= 0, got -2"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    good = {"queries_QD": draw(5, 0), "labels_Q": torch.arange(5), "bank_ND": draw(4, 1), "labels_N": torch.arange(4)}
    with pytest.raises(ValueError, match=sentence):
        average_precision(**{**good, "k": 2, **wrong})  # pyright: ignore[reportArgumentType]
