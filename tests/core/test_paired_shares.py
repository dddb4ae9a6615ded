"""Paired shares against definitions, published numbers, coverage, and the case that intervals cannot tell."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from counterpoint.core.paired_shares import (
    LEVEL,
    Z_95,
    compare_hits,
    corrected,
    holm,
    mcnemar,
    score_interval,
    written_p,
)
from counterpoint.evaluation.metric_types import wilson
from oracles import paired_tests as oracle
from oracles.number_checks import assert_numbers

pairs = st.integers(1, 200).flatmap(
    lambda total: st.integers(0, total).flatmap(
        lambda b: st.tuples(st.just(b), st.integers(0, total - b), st.just(total))
    )
)


@given(pairs)
def test_p_is_the_share_of_coin_throws_as_uneven(pair: tuple[int, int, int]) -> None:
    b, c, _ = pair
    assert_numbers(mcnemar(b, c), float(oracle.mcnemar_p(b, c)))
    assert mcnemar(b, c) == mcnemar(c, b) <= 1.0


@pytest.mark.parametrize(("b", "c"), [(0, 0), (4, 4), (1, 0), (0, 6), (1500, 1640), (30_000, 30_600), (0, 3000)])
def test_p_is_that_of_scipys_binomial_test(b: int, c: int) -> None:
    expected = stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert math.isclose(mcnemar(b, c), expected, rel_tol=1e-9, abs_tol=1e-300)


def test_the_example_of_the_paper_on_mcnemars_test() -> None:
    """fagerland2013, table 1: 1 and 7 of 21 children changed; p of the exact conditional test is 0.070."""
    assert round(mcnemar(1, 7), 3) == 0.070


@settings(max_examples=40)
@given(pairs)
def test_the_interval_holds_the_differences_that_the_score_test_allows(pair: tuple[int, int, int]) -> None:
    assert_numbers(score_interval(*pair), oracle.score_interval(*pair))


@given(pairs)
def test_the_interval_mirrors_and_leaves_out_zero_where_mcnemars_statistic_does(pair: tuple[int, int, int]) -> None:
    b, c, total = pair
    low, high = score_interval(b, c, total)
    assert -1.0 <= low <= (b - c) / total <= high <= 1.0
    mirrored = score_interval(c, b, total)
    assert_numbers([low, high], [-mirrored[1], -mirrored[0]])
    statistic = abs(b - c) / math.sqrt(b + c) if b + c else 0.0
    if abs(statistic - Z_95) > 1e-6:
        assert (low > 0 or high < 0) == (statistic > Z_95)


@pytest.mark.parametrize("total", [1, 10, 360, 10_000])
def test_no_query_apart_has_a_closed_form(total: int) -> None:
    """N delta^2 = z^2 delta (1 - delta)."""
    end = Z_95**2 / (total + Z_95**2)
    assert_numbers(score_interval(0, 0, total), (-end, end))


@pytest.mark.parametrize(("first", "second"), [(0.1, 0.05), (0.02, 0.02), (0.3, 0.1)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(first: float, second: float) -> None:
    """Exact, over all counts of 60 queries."""
    total, covered = 60, 0.0
    for b in range(total + 1):
        for c in range(total - b + 1):
            rest = (1 - first - second) ** (total - b - c)
            weight = math.comb(total, b) * math.comb(total - b, c) * first**b * second**c * rest
            if weight > 1e-9:
                low, high = score_interval(b, c, total)
                covered += weight * (low <= first - second <= high)
    assert 0.93 < covered < 0.985


def test_shares_whose_intervals_overlap_are_told_apart_in_pairs() -> None:
    """6.7 points below pixels: 34 queries speak for pixels and 10 against them, of 360."""
    pixels, learned = (1 << 317) - 1, ((1 << 293) - 1) << 34
    learned = (learned & ~(((1 << 10) - 1) << 317)) | (((1 << 10) - 1) << 317)
    assert (pixels.bit_count(), learned.bit_count()) == (317, 293)
    assert wilson(317, 360).low < wilson(293, 360).high
    found = compare_hits(learned, pixels, 360)
    assert_numbers(found.value, -24 / 360)
    assert_numbers(found.p_value, float(oracle.mcnemar_p(10, 34)))
    assert_numbers([found.low, found.high], oracle.score_interval(10, 34, 360))
    assert found.is_told_apart
    assert found.p_value < 0.001
    assert found.high < 0


def test_the_same_queries_right_make_no_difference() -> None:
    found = compare_hits(0b1011, 0b1011, 4)
    assert (found.value, found.p_value, found.is_told_apart) == (0.0, 1.0, False)
    assert found.low == -found.high < 0


def test_the_second_minus_the_first_is_the_same_difference_turned_round() -> None:
    found = compare_hits(0b111100, 0b000111, 6)
    assert_numbers(
        [found.reversed.value, found.reversed.low, found.reversed.high],
        [getattr(compare_hits(0b000111, 0b111100, 6), name) for name in ("value", "low", "high")],
    )


@given(st.lists(st.floats(0, 1), max_size=8))
def test_corrected_p_is_the_least_level_that_rejects(p_values: list[float]) -> None:
    assert_numbers(list(holm(p_values)), oracle.holm(p_values))


def test_what_was_not_tested_is_not_counted_among_the_tests() -> None:
    sure, unsure = compare_hits(0b1111111, 0, 7), compare_hits(0b111, 0b110, 7)
    found = corrected([None, sure, None, unsure])
    assert found[0] is found[2] is None
    assert found[1] is not None
    assert found[3] is not None
    assert_numbers([found[1].p, found[3].p], oracle.holm([sure.p_value, unsure.p_value]))
    assert_numbers(sure.p, 2 / 128)
    assert found[1].is_told_apart
    assert found[1].p <= LEVEL < found[3].p


@pytest.mark.parametrize("counts", [(-1, 2, 5), (3, 3, 5), (0, -1, 5)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="counts of queries must be >= 0 and at most all"):
        score_interval(*counts)


@pytest.mark.parametrize(("p", "words"), [(1.0, "= 1"), (0.0, "< 0.001"), (0.05, "= 0.05"), (0.0312, "= 0.031")])
def test_p_is_written_with_two_digits(p: float, words: str) -> None:
    assert written_p(p) == words
