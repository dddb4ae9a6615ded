"""Accuracies that count classes alike: scikit-learn's, known answers, intervals; the error under corruptions."""

# N labelled samples, Q queries

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, recall_score
from torch import Tensor

from counterpoint.core.metric import loaded_metrics
from counterpoint.evaluation import linear_probe
from counterpoint.evaluation.class_accuracy import balanced, corruption_error
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy, mean_share, wilson
from oracles.number_checks import assert_numbers

LABELS = torch.arange(200) % 5
PREDICTED = torch.where(torch.arange(200) % 3 == 0, (LABELS + 1) % 5, LABELS)

METRICS = loaded_metrics("evaluation")


def tail(sizes: Sequence[int]) -> Tensor:
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def known(features_N: Tensor, labels_N: Tensor) -> Labelled:
    return Labelled(features_N, labels_N, features_N, labels_N, k=3, temperature=0.1)


def test_class_shares_and_their_mean_are_scikit_learns() -> None:
    score = accuracy(PREDICTED[:173], LABELS[:173], {})
    shares = [score.classes[label].value for label in range(5)]
    assert_numbers(
        shares,
        [recall_score((LABELS[:173] == label).numpy(), (PREDICTED[:173] == label).numpy()) for label in range(5)],
    )
    assert_numbers(balanced(score, LABELS).outcome.value, balanced_accuracy_score(LABELS[:173], PREDICTED[:173]))
    assert sum(share.total for share in score.classes.values()) == 173


def test_the_interval_of_one_share_is_its_own_and_all_right_has_a_width() -> None:
    one = mean_share([wilson(7, 9)])
    assert_numbers([one.low, one.value, one.high], [wilson(7, 9).low, 7 / 9, wilson(7, 9).high])
    every = mean_share([wilson(10, 10)] * 4)
    assert every.low is not None
    assert (every.value, every.high) == (1.0, 1.0)
    assert_numbers(every.low, 1 - (1 - wilson(10, 10).low) / 2)


@pytest.mark.parametrize("truth", [(0.9, 0.6, 0.3), (0.99, 0.95, 0.5)])
def test_the_interval_covers_the_mean_as_often_as_it_says(truth: Sequence[float]) -> None:
    generator, hits = torch.Generator().manual_seed(0), 0
    for _ in range(400):
        drawn = [int((torch.rand(n, generator=generator) < p).sum()) for n, p in zip((50, 30, 15), truth, strict=True)]
        found = mean_share([wilson(count, n) for count, n in zip(drawn, (50, 30, 15), strict=True)])
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= sum(truth) / 3 <= found.high
    assert 0.92 < hits / 400 < 0.99


def test_the_probe_is_fitted_once_for_all_that_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, calls = tail([40, 10, 5]), []
    features, fit = torch.eye(3)[labels], linear_probe.fit_probe
    monkeypatch.setattr(linear_probe, "fit_probe", lambda *data, **rest: calls.append(data) or fit(*data, **rest))
    shared = known(features, labels)
    for score in (linear_probe.probe_score, METRICS["balanced probe"].measure):
        score(shared)
    assert len(calls) == 1
    # Other features are another probe.
    linear_probe.probe_score(replace(shared, bank_ND=features.flip(1)))
    assert len(calls) == 2


def test_a_class_without_a_labelled_sample_counts_as_wrong_and_is_named() -> None:
    score = accuracy(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2]), {})
    found = balanced(score, torch.tensor([0, 1]))
    assert_numbers(found.outcome.value, 2 / 3)
    assert found.settings["classes without a labelled sample"] == "2"


def test_a_class_without_a_query_has_no_share() -> None:
    score: Score = accuracy(torch.tensor([0, 0]), torch.tensor([0, 2]), {})
    assert list(score.classes) == [0, 2]
    assert_numbers(balanced(score, torch.tensor([0, 1, 2])).outcome.value, 0.5)


# --- the error under corruptions


def scores(is_right_QK: np.ndarray) -> list[Score]:
    return [accuracy(torch.from_numpy(each.astype(int)), torch.ones(len(each)).long(), {}) for each in is_right_QK.T]


def test_the_error_is_a_mean_within_its_interval() -> None:
    is_right = np.random.default_rng(0).random((200, 6)) < [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    found = corruption_error(scores(is_right))
    assert abs(found.value - (1 - is_right.mean())) < 1e-12
    assert found.low is not None
    assert found.high is not None
    # Conditions are independent here, so that the error's deviation is that of a mean over queries.
    half = 1.96 * is_right.mean(axis=1).std() / 200**0.5
    assert abs((found.high - found.low) / 2 - half) < 0.1 * half
    assert corruption_error(scores(is_right)) == found


def test_no_error_and_only_errors_have_no_width() -> None:
    for value in (0.0, 1.0):
        found = corruption_error(scores(np.full((20, 3), value == 0.0)))
        assert (found.value, found.low, found.high) == (value, value, value)
