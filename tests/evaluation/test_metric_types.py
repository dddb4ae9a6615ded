"""Wilson's interval against the equation it solves; which queries were right is kept."""

from statistics import NormalDist

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from counterpoint.evaluation.metric_types import Z_95, Proportion, accuracy, wilson
from hit_rows import packed
from oracles import class_votes as oracle
from oracles.number_checks import assert_numbers

counts = st.integers(1, 5000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


def test_the_quantile_is_the_normal_distributions() -> None:
    assert_numbers(Z_95, NormalDist().inv_cdf(0.975))


@given(counts)
@example((0, 27))
@example((27, 27))
def test_the_interval_solves_wilsons_equation(count: tuple[int, int]) -> None:
    interval = wilson(*count)
    low, high = oracle.wilson_interval(*count)
    assert_numbers([interval.low, interval.high], [max(0.0, low), min(1.0, high)])
    assert (interval.correct, interval.total, interval.value) == (*count, count[0] / count[1])
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0


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
