"""Wilson's interval against the equation it solves, closed forms and its coverage."""

import math
from statistics import NormalDist

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.evaluation.metric_types import Z_95, Proportion, accuracy, wilson
from hit_rows import packed
from oracles import class_votes as oracle
from oracles.number_checks import assert_numbers

SQUARE = Z_95**2
counts = st.integers(1, 5000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


def test_the_quantile_is_the_normal_distributions() -> None:
    assert_numbers(Z_95, NormalDist().inv_cdf(0.975))


@given(counts)
def test_the_interval_solves_wilsons_equation(count: tuple[int, int]) -> None:
    interval = wilson(*count)
    low, high = oracle.wilson_interval(*count)
    assert_numbers([interval.low, interval.high], [max(0.0, low), min(1.0, high)])
    assert (interval.correct, interval.total, interval.value) == (*count, count[0] / count[1])


@given(counts)
def test_the_interval_holds_the_share_and_stays_a_share(count: tuple[int, int]) -> None:
    interval = wilson(*count)
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0


@pytest.mark.parametrize("total", [1, 3, 7, 10, 27, 360])
def test_none_and_all_right_have_closed_forms(total: int) -> None:
    none, every = wilson(0, total), wilson(total, total)
    assert (none.low, every.high) == (0.0, 1.0)
    assert_numbers(none.high, SQUARE / (total + SQUARE))
    assert_numbers(every.low, total / (total + SQUARE))


@given(counts)
def test_right_and_wrong_mirror_each_other(count: tuple[int, int]) -> None:
    correct, total = count
    ours, mirrored = wilson(correct, total), wilson(total - correct, total)
    assert_numbers([ours.low, ours.high], [1 - mirrored.high, 1 - mirrored.low])


def test_more_trials_narrow_the_interval() -> None:
    widths = [wilson(n // 2, n).high - wilson(n // 2, n).low for n in (2, 10, 100, 1000)]
    assert widths == sorted(widths, reverse=True)
    assert_numbers(widths[-1], 2 * Z_95 / math.sqrt(1000 * 4) / math.sqrt(1 + SQUARE / 1000))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9])
def test_it_covers_the_truth_about_as_often_as_it_says(share: float) -> None:
    """Exact, by summing the binomial distribution of 200 trials."""
    weights = [math.comb(200, c) * share**c * (1 - share) ** (200 - c) for c in range(201)]
    covered = math.fsum(w for c, w in enumerate(weights) if wilson(c, 200).low <= share <= wilson(c, 200).high)
    assert 0.93 < covered < 0.97


@pytest.mark.parametrize(("correct", "total"), [(-1, 5), (6, 5), (0, 0), (1, 0)])
def test_impossible_counts_are_refused(correct: int, total: int) -> None:
    with pytest.raises(ValueError, match=rf"correct must lie between 0 and total >= 1, got {correct} of {total}"):
        wilson(correct, total)


@pytest.mark.parametrize("total", [1, 8, 9, 360, 1001])
def test_a_share_keeps_which_queries_were_right(total: int) -> None:
    labels = torch.arange(total) % 7
    predicted = torch.where(torch.arange(total) % 3 == 0, labels + 1, labels)
    right = [place for place in range(total) if place % 3]
    found = accuracy(predicted, labels, {}).outcome
    assert isinstance(found, Proportion)
    assert (found.correct, found.total, found.hits) == (len(right), total, packed(right, total))
    assert len(found.hits or "") <= total / 6 + 4  # six queries a character
