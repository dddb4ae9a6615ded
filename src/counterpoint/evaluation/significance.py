"""Differences between figures: over queries by a paired bootstrap, over seeds by t; and how many seeds would tell."""

# Q queries, B resamples, V distinct values

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import nctdtr, stdtr, stdtrit

from counterpoint.core.paired_shares import LEVEL, POWER, Difference

PAIRED_BOOTSTRAP, PAIRED_T, WELCH_T = "paired bootstrap", "paired t test", "Welch's t test"
NUM_RESAMPLES = 10_000
CHUNK = 1 << 22  # counts of resamples in memory at once
MAX_SEEDS = 1000  # upper limit: more runs are not practical
ROUNDING = 1e-9  # of figures, relative


def paired_bootstrap(
    first_Q: ArrayLike, second_Q: ArrayLike, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Difference:
    r"""Compare two means over the same queries: queries are drawn again, with replacement, each with both its values.

    The interval lies between the 2.5 % and 97.5 % quantiles of the resampled differences d*, and

    .. math:: p = \min\Big(1,\; 2\,\frac{1 + \min(\#\{d^* \le 0\},\; \#\{d^* \ge 0\})}{B + 1}\Big).

    Source: efron1993, sections 13.3 (percentile interval) and 15.4 (its p).

    Args:
        first_Q: a value for each query, such as its average precision, or the share of seeds that got it right.
        second_Q: values of the same queries, in the same order.
        num_resamples: number B of resamples; p is at least 2 / (B + 1).
        seed: seed of the resamples.

    Raises:
        ValueError: no queries, other queries, or a value that is not finite.

    >>> paired_bootstrap([1.0, 0.5, 1.0, 0.0], [0.0, 0.5, 0.0, 0.0]).value
    0.5
    """
    first, second = np.asarray(first_Q, np.float64), np.asarray(second_Q, np.float64)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise ValueError(f"both need one value for each query, got shapes {first.shape} and {second.shape}")
    gap_Q = first - second
    if not np.isfinite(gap_Q).all():
        raise ValueError("values of queries must be finite")
    # How often each value is drawn, not which query: shares of seeds have few values, whatever the number of queries.
    gap_V, count_V = np.unique(gap_Q, return_counts=True)
    generator, rows = np.random.default_rng(seed), max(1, CHUNK // len(gap_V))
    drawn_B = np.concatenate(
        [
            generator.multinomial(len(gap_Q), count_V / len(gap_Q), size=min(rows, num_resamples - start)) @ gap_V
            for start in range(0, num_resamples, rows)
        ]
    ) / len(gap_Q)
    low, high = np.quantile(drawn_B, [LEVEL / 2, 1 - LEVEL / 2])
    # A sum that rounding moves off 0 is on both sides of it.
    slack = 1e-12 * np.abs(gap_V).max()
    fewer = min(int((drawn_B <= slack).sum()), int((drawn_B >= -slack).sum()))
    p_value = min(1.0, 2 * (1 + fewer) / (num_resamples + 1))
    return Difference(float(gap_Q.mean()), float(low), float(high), p_value, PAIRED_BOOTSTRAP)


def over_seeds(first: Sequence[float], second: Sequence[float], *, is_paired: bool) -> Difference | None:
    """Compare a figure of two methods over seeds, by their t-interval and test.

    Args:
        first: the figure of each seed of the first method.
        second: the figure of each seed of the second one.
        is_paired: True if both have the same seeds in order; then seeds are compared one by one (student1908), else
            by Welch's test, which takes no deviations to be equal (welch1947).

    Returns:
        The difference; None without two seeds on each side, or if seeds do not scatter, so that nothing can be said.

    Raises:
        ValueError: paired, and not as many on both sides.
    """
    error, freedom = _standard_error(first, second, is_paired=is_paired)
    if not error > 0:
        return None
    value = float(np.mean(first) - np.mean(second))
    half = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
    p_value = 2 * float(stdtr(freedom, -abs(value) / error))
    return Difference(value, value - half, value + half, p_value, PAIRED_T if is_paired else WELCH_T)


def seeds_needed(first: Sequence[float], second: Sequence[float], *, is_paired: bool) -> int | None:
    """Number of seeds a side to detect a difference of the size found, with probability ``POWER`` at level ``LEVEL``.

    Power is that of the two-sided t test (noncentral t, cohen1988), as if difference and deviations were those found;
    few seeds give a rough idea of them.

    Args:
        first: the figure of each seed of the first method.
        second: the figure of each seed of the second one.
        is_paired: whether both have the same seeds in the same order; see ``over_seeds``.

    Returns:
        At least 2; None if more than ``MAX_SEEDS`` would be needed, or if seeds do not scatter.
    """
    error, _ = _standard_error(first, second, is_paired=is_paired)
    value = abs(float(np.mean(first) - np.mean(second)))
    if not error > 0 or not value > 0:
        return None
    sides = [np.subtract(first, second)] if is_paired else [first, second]
    effect = value / math.sqrt(sum(float(np.var(side, ddof=1)) for side in sides))
    return next((n for n in range(2, MAX_SEEDS + 1) if power(effect, n, is_paired=is_paired) >= POWER), None)


def power(effect: float, num_seeds: int, *, is_paired: bool, level: float = LEVEL) -> float:
    """Probability that a two-sided t test tells two methods apart.

    Args:
        effect: true difference over the standard deviation of one pair of seeds.
        num_seeds: number of seeds of each method, >= 2.
        is_paired: whether seeds are compared one by one.
        level: level of the test, > 0 and < 1.

    >>> round(power(1.0, 10, is_paired=True), 3)
    0.803
    """
    freedom = (num_seeds - 1) * (1 if is_paired else 2)
    bound, shift = float(stdtrit(freedom, 1 - level / 2)), effect * math.sqrt(num_seeds)
    # Far from the shift SciPy has NaN for probabilities that are smaller than float64.
    below, far = (0.0 if math.isnan(p) else float(p) for p in (nctdtr(freedom, shift, t) for t in (bound, -bound)))
    return 1 - below + far


def _standard_error(first: Sequence[float], second: Sequence[float], *, is_paired: bool) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom; 0 if nothing can be said."""
    if is_paired and len(first) != len(second):
        raise ValueError(f"paired seeds must have the same number on both sides, got {len(first)} and {len(second)}")
    sides = [np.subtract(first, second)] if is_paired else [np.asarray(first), np.asarray(second)]
    if min(map(len, sides)) < 2:
        return 0.0, 0.0
    variances = [float(np.var(side, ddof=1)) / len(side) for side in sides]
    # Seeds that are equal up to rounding do not scatter.
    if sum(variances) <= (ROUNDING * max(float(np.abs(side).max()) for side in sides)) ** 2:
        return 0.0, 0.0
    # welch1947: the degrees of freedom of Satterthwaite's approximation; of one side, its own.
    parts = [variance**2 / (len(side) - 1) for variance, side in zip(variances, sides, strict=True)]
    return math.sqrt(sum(variances)), sum(variances) ** 2 / sum(parts)
