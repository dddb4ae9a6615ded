"""Few-shot accuracy: the draws, Student's interval, and what is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.metric import loaded_metrics
from counterpoint.evaluation.few_shot import draw_shots, few_shot_score
from counterpoint.evaluation.metric_types import IntervalEstimate, Labelled, t_interval
from oracles.number_checks import assert_numbers

LABELS = torch.arange(120) % 3

METRICS = loaded_metrics("evaluation")


def known(features_N: Tensor) -> Labelled:
    return Labelled(features_N, LABELS, features_N, LABELS, k=1, temperature=0.1)


def test_a_draw_has_so_many_of_each_class_and_more_contain_the_fewer() -> None:
    few, more = (draw_shots(LABELS, shots, seed=3) for shots in (2, 7))
    assert LABELS[few].bincount().tolist() == [2, 2, 2]
    assert LABELS[more].bincount().tolist() == [7, 7, 7]
    assert set(few.tolist()) < set(more.tolist())
    assert torch.equal(draw_shots(LABELS, 7, seed=3), more)
    assert not torch.equal(draw_shots(LABELS, 7, seed=4), more)


def test_every_sample_is_drawn_about_equally_often() -> None:
    counts = torch.zeros(120)
    for seed in range(50):
        counts[draw_shots(LABELS, 10, seed=seed)] += 1
    # 50 draws at 1 in 4: mean 12.5, deviation 3.1.
    assert 0 < float(counts.min()) <= float(counts.max()) < 27


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
@settings(max_examples=30)
def test_the_interval_is_students(values: list[float]) -> None:
    found, centre = t_interval(values), sum(values) / len(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=centre, scale=1.0)
    half = stats.tstd(values) / len(values) ** 0.5 if len(set(values)) > 1 else 0.0
    assert_numbers([found.low, found.high], [centre - (high - low) / 2 * half, centre + (high - low) / 2 * half])


def test_one_value_has_no_interval() -> None:
    assert t_interval([0.4]) == IntervalEstimate(0.4)


def test_perfect_and_constant_features() -> None:
    perfect = few_shot_score(known(torch.eye(3)[LABELS]), 1)
    assert perfect.outcome == IntervalEstimate(1.0, 1.0, 1.0)
    constant = few_shot_score(known(torch.ones(120, 2)), 5)
    assert_numbers(constant.outcome.value, 1 / 3)


def test_more_shots_are_better_and_the_score_says_what_was_drawn() -> None:
    features = 2 * torch.eye(3)[LABELS] + torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    one, many = METRICS["1-shot"].measure(known(features)), METRICS["20-shot"].measure(known(features))
    assert one.outcome.value < many.outcome.value
    assert isinstance(one.outcome, IntervalEstimate)
    assert one.outcome.low is not None
    assert one.outcome.low < one.outcome.value
    stated = {"shots": 1, "repetitions": 10, "seeds": "0 to 9"}
    assert stated.items() <= one.settings.items()
    assert one.settings["standard deviation"] > 0


def test_classes_with_too_few_samples_are_named() -> None:
    labels = torch.tensor([0, 0, 1, 2, 2, 2, 4])
    with pytest.raises(UsageError, match="2-shot accuracy needs 2 labelled samples of each class; 2 of 4 have fewer"):
        draw_shots(labels, 2, seed=0)
    with pytest.raises(UsageError, match="class 1 has 1, class 4 has 1; ask for fewer shots"):
        draw_shots(labels, 2, seed=0)
