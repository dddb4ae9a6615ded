"""Paired shares against definitions, published numbers, coverage, and the case that intervals cannot tell."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.core.paired_shares import LEVEL, Z_95, compare_hits, corrected, holm, mcnemar, score_interval
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
