"""Verdicts of claims: Student's own example, the three answers, and what cannot be judged."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from reproductions.verdicts import FAILS, HOLDS, LOOKS, UNTOLD, judge, judge_in_turn, told_p, told_p_in_turn

# student1908: additional hours of sleep by two drugs, ten patients
FIRST = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
SECOND = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)


def test_students_sleep_data_give_the_textbook_interval() -> None:
    judged = judge(SECOND, FIRST, relation="greater")
    assert (judged.difference, judged.low, judged.high) == pytest.approx((1.58, 0.7001142, 2.4598858), abs=1e-6)
    assert judged.verdict == HOLDS
    assert judge(FIRST, SECOND, relation="greater").verdict == FAILS
    assert judge(FIRST, SECOND, relation="smaller").verdict == HOLDS


def test_counts_that_agree_over_seeds_have_an_interval() -> None:
    judged = judge([10.0, 10.0, 10.0], [11.0, 11.0, 11.0], relation="smaller")
    assert judged.high - judged.low == pytest.approx(2 * 4.302653 * math.sqrt(1 / 6 / 3))
    assert judged.verdict == UNTOLD
    assert judge([10.0] * 3, [13.0] * 3, relation="smaller").verdict == HOLDS
    # Shares of 1 and 0 are no counts.
    assert judge([1.0, 1.0], [1.0, 1.0], relation="greater", than=-0.01).verdict == HOLDS


def test_the_smallest_difference_that_can_be_told_is_that_of_the_power_table() -> None:
    # cohen1988 and R's power.t.test(n = 10, power = 0.8, type = "paired"): 0.9960 standard deviations
    judged = judge(SECOND, FIRST, relation="greater")
    assert judged.smallest == pytest.approx(0.9960 * 1.229995, rel=1e-3)


@pytest.mark.parametrize(
    ("gaps", "relation", "than", "verdict"),
    [
        ((1.0, 1.1, 0.9), "greater", 0.0, HOLDS),
        ((1.0, 1.1, 0.9), "greater", 1.0, UNTOLD),
        ((1.0, 1.1, 0.9), "greater", 2.0, FAILS),
        ((1.0, 1.1, 0.9), "smaller", 2.0, HOLDS),
        ((1.0, -1.0, 0.5), "greater", 0.0, UNTOLD),
        ((0.001, -0.001, 0.0), "within", 0.01, HOLDS),
        ((1.0, 1.1, 0.9), "within", 0.1, FAILS),
        ((1.0, 1.1, 0.9), "within", 1.0, UNTOLD),
        ((0.5, 0.5, 0.5), "greater", 0.0, HOLDS),
        ((0.0, 0.0, 0.0), "greater", 0.0, UNTOLD),
    ],
)
def test_each_relation_has_three_answers(gaps: tuple[float, ...], relation: str, than: float, verdict: str) -> None:
    judged = judge(gaps, [0.0] * len(gaps), relation=relation, than=than)  # pyright: ignore[reportArgumentType]
    assert judged.verdict == verdict
    p = told_p(gaps, [0.0] * len(gaps), relation=relation, than=than)  # pyright: ignore[reportArgumentType]
    assert (p <= 0.05) == (verdict != UNTOLD)


def test_the_p_of_a_verdict_is_students() -> None:
    assert told_p(SECOND, FIRST, relation="greater") == pytest.approx(0.002833, abs=1e-6)  # R: t.test(paired = TRUE)
    gaps = [1.0, -1.0, 0.5, 0.2]
    ends = [student.sf((3 - sign * np.mean(gaps)) / (np.std(gaps, ddof=1) / 2), 3) for sign in (1, -1)]
    assert told_p(gaps, [0.0] * 4, relation="within", than=3.0) == pytest.approx(2 * max(ends))


def test_seeds_that_do_not_scatter_have_an_interval_of_no_width() -> None:
    judged = judge([0.7, 0.7], [0.2, 0.2], relation="greater")
    assert (judged.low, judged.high, judged.smallest) == (judged.difference, judged.difference, None)


@pytest.mark.parametrize("values", [([1.0], [0.0]), ([1.0, 2.0], [0.0]), ([1.0, math.nan], [0.0, 0.0])])
def test_what_cannot_be_judged_is_refused(values: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match=r"seeds|finite"):
        judge(*values, relation="greater")


def told_rate(mean: float, draws: int = 2000) -> dict[str, float]:
    """Share of draws around a mean, scattered by 1, that looks in turn tell to be above or below 0, or not at all."""
    gaps_NS = np.random.default_rng(7).normal(mean, 1.0, (draws, max(LOOKS)))
    verdicts = [judge_in_turn(gaps_S, [0.0] * len(gaps_S), relation="greater").verdict for gaps_S in gaps_NS.tolist()]
    return {word: verdicts.count(word) / draws for word in (HOLDS, FAILS, UNTOLD)}


def test_looking_in_turn_tells_a_claim_without_difference_in_one_case_of_twenty_at_most() -> None:
    rates = told_rate(0.0)
    assert rates[HOLDS] + rates[FAILS] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    # What stopping at the first interval of 95 % would do.
    gaps_NS = np.random.default_rng(7).normal(0.0, 1.0, (2000, max(LOOKS))).tolist()
    careless = [any(told_p(g[:look], [0.0] * look, relation="greater") <= 0.05 for look in LOOKS) for g in gaps_NS]
    assert np.mean(careless) > 0.1


@pytest.mark.thorough
def test_looking_in_turn_tells_a_difference_of_one_deviation_and_hardly_ever_the_wrong_way() -> None:
    rates = told_rate(1.0)
    assert rates[HOLDS] > 0.9
    assert rates[FAILS] < 0.005


def test_a_verdict_that_was_told_stays_whatever_later_seeds_say() -> None:
    early = [5.0, 5.1, 4.9]
    judged = judge_in_turn([*early, *[-9.0] * 17], [0.0] * 20, relation="greater")
    assert (judged.verdict, judged.num_seeds) == (HOLDS, 3)
    assert judged == judge(early, [0.0] * 3, relation="greater", level=0.005)
    with pytest.raises(ValueError, match="first look has 3 seeds, got 2"):
        judge_in_turn([1.0, 2.0], [0.0, 0.0], relation="greater")


@pytest.mark.parametrize("mean", [0.0, 0.8, 2.0])
def test_the_p_of_looks_is_at_most_005_exactly_where_a_look_tells(mean: float) -> None:
    for gaps in np.random.default_rng(3).normal(mean, 1.0, (200, 12)).tolist():
        told = judge_in_turn(gaps, [0.0] * 12, relation="greater").verdict != UNTOLD
        assert (told_p_in_turn(gaps, [0.0] * 12, relation="greater") <= 0.05) == told
