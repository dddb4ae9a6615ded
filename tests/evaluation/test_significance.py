"""Differences over queries and over seeds against definitions, scipy.stats, enumeration and simulation."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from counterpoint.core.paired_shares import POWER
from counterpoint.evaluation.significance import NUM_RESAMPLES, over_seeds, paired_bootstrap, power, seeds_needed
from oracles import paired_tests as oracle
from oracles.number_checks import assert_numbers

FIGURES = [0.912, 0.905, 0.921, 0.917, 0.899]
OTHERS = [0.894, 0.901, 0.903, 0.896, 0.889]


def p_of(test: Any) -> Any:
    """Of what scipy returns."""
    return test.pvalue


def test_the_bootstrap_is_that_of_all_resamples() -> None:
    """5^5 resamples, enumerated; 10,000 draws of a probability have a standard error of 0.005."""
    first, second = [0.9, 0.4, 0.8, 0.7, 0.5], [0.6, 0.5, 0.5, 0.75, 0.2]
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    every = oracle.all_resampled_means(gaps)
    found = paired_bootstrap(first, second)
    assert_numbers(found.value, math.fsum(gaps) / 5)
    assert abs(found.p_value - 2 * sum(mean <= 1e-12 for mean in every) / len(every)) < 5 * 2 * 0.005
    for end, quantile in ((found.low, 0.025), (found.high, 0.975)):
        # The end lies where the exact distribution has this quantile, give or take five standard errors.
        below, until = (sum(mean < end - 1e-9 for mean in every), sum(mean <= end + 1e-9 for mean in every))
        error = 5 * math.sqrt(0.025 * 0.975 / NUM_RESAMPLES)
        assert below / len(every) - error <= quantile <= until / len(every) + error


def test_the_bootstrap_of_many_queries_is_the_normal_interval(rng: np.random.Generator) -> None:
    first = rng.normal(size=500)
    second = first + rng.normal(0.08, 1.0, size=500)
    found, gaps = paired_bootstrap(first, second), first - second
    half = 1.96 * gaps.std() / math.sqrt(500)
    np.testing.assert_allclose([found.low, found.high], [gaps.mean() - half, gaps.mean() + half], atol=0.1 * half)
    expected = p_of(stats.ttest_rel(first, second))
    assert abs(found.p_value - expected) < 0.02


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([], [], "one value for each query"),
        ([1.0, 2.0], [1.0], "one value for each query"),
        ([math.nan, 2.0], [1.0, 1.0], "finite"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(first: list[float], second: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        paired_bootstrap(first, second)


@pytest.mark.parametrize("is_paired", [True, False])
def test_seeds_are_compared_as_scipy_does(is_paired: bool) -> None:
    found = over_seeds(FIGURES, OTHERS, is_paired=is_paired)
    assert found is not None
    test: Any = stats.ttest_rel(FIGURES, OTHERS) if is_paired else stats.ttest_ind(FIGURES, OTHERS, equal_var=False)
    interval = test.confidence_interval(0.95)
    expected = [np.mean(FIGURES) - np.mean(OTHERS), interval.low, interval.high, test.pvalue]
    assert_numbers([found.value, found.low, found.high, found.p_value], expected)


@pytest.mark.parametrize(
    ("first", "second", "is_paired"),
    [([0.9], [0.8], True), ([0.9], [0.8, 0.7], False), ([0.9, 0.8], [0.7, 0.6], True), ([0.9] * 3, [0.8] * 3, False)],
    ids=["one seed", "one seed of one", "equal gaps", "no scatter"],
)
def test_without_scatter_nothing_is_said(first: list[float], second: list[float], is_paired: bool) -> None:
    assert over_seeds(first, second, is_paired=is_paired) is None
    assert seeds_needed(first, second, is_paired=is_paired) is None


@pytest.mark.parametrize(("effect", "num_seeds", "is_paired"), [(1.0, 10, True), (0.5, 34, True), (2.0, 3, False)])
def test_power_is_that_of_the_noncentral_t(effect: float, num_seeds: int, is_paired: bool) -> None:
    freedom = (num_seeds - 1) * (1 if is_paired else 2)
    bound = stats.t.ppf(0.975, freedom)
    known = stats.nct(freedom, effect * math.sqrt(num_seeds))
    assert_numbers(power(effect, num_seeds, is_paired=is_paired), float(known.sf(bound) + known.cdf(-bound)))
    assert power(5.093, 56, is_paired=True) == 1.0  # where SciPy's noncentral t is NaN


def test_the_table_of_the_book_on_power_is_met() -> None:
    """A paired t test at 5 % with power 0.8: an effect of 0.5 standard deviations needs 34 pairs, of 0.8 needs 15."""
    for effect, expected in ((0.5, 34), (0.8, 15)):
        gaps = np.array([-1.0, 1.0, -1.0, 1.0]) * math.sqrt(0.75) + effect  # mean: the effect; deviation: 1
        assert seeds_needed(gaps.tolist(), [0.0] * 4, is_paired=True) == expected


@pytest.mark.parametrize("is_paired", [True, False])
def test_seeds_needed_are_the_fewest_that_reach_the_power(is_paired: bool) -> None:
    needed = seeds_needed(FIGURES, OTHERS, is_paired=is_paired)
    assert needed is not None
    spread = (
        stats.tstd(np.subtract(FIGURES, OTHERS)) if is_paired else math.hypot(stats.tstd(FIGURES), stats.tstd(OTHERS))
    )
    effect = float((np.mean(FIGURES) - np.mean(OTHERS)) / spread)
    assert power(effect, needed, is_paired=is_paired) >= POWER
    assert needed == 2 or power(effect, needed - 1, is_paired=is_paired) < POWER
