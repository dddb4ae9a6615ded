"""Tests and intervals of differences (mcnemar1947, tango1998, holm1979, efron1993), by their definitions, slowly."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist


def mcnemar_p(only_first: int, only_second: int) -> Fraction:
    """Probability that a fair coin falls at least as unevenly, over every number of heads."""
    n, seen = only_first + only_second, abs(only_first - only_second)
    uneven = sum(math.comb(n, heads) for heads in range(n + 1) if abs(2 * heads - n) >= seen)
    return Fraction(uneven, 2**n)


def likeliest_second(b: int, c: int, total: int, delta: float) -> float:
    """The probability q of "only the second" that is likeliest where that of "only the first" is q + delta."""

    def slope(q: float) -> float:
        # Of b log(q + delta) + c log q + (N - b - c) log(1 - 2q - delta), which is concave.
        rest = 2 * (total - b - c) / (1 - 2 * q - delta) if total > b + c else 0.0
        return (b / (q + delta) if b else 0.0) + (c / q if c else 0.0) - rest

    low, high = max(0.0, -delta), (1 - delta) / 2
    for _ in range(70):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def score(b: int, c: int, total: int, delta: float) -> float:
    """tango1998: how many standard deviations the counts lie above what a difference of delta makes of them."""
    q = likeliest_second(b, c, total, delta)
    variance = total * (2 * q + delta * (1 - delta))
    surplus = b - c - total * delta
    return math.copysign(math.inf, surplus) if variance <= 0 else surplus / math.sqrt(variance)


def score_interval(b: int, c: int, total: int) -> tuple[float, float]:
    """The differences whose score lies within the 95 % quantiles, found by bisection from both ends."""
    z = NormalDist().inv_cdf(0.975)

    def end(sign: int) -> float:
        inside, outside = (b - c) / total, float(sign)
        if inside == outside:
            return inside
        for _ in range(70):
            middle = (inside + outside) / 2
            is_inside = abs(score(b, c, total, middle)) <= z
            inside, outside = (middle, outside) if is_inside else (inside, middle)
        return (inside + outside) / 2

    return end(-1), end(1)


def holm(p_values: Sequence[float]) -> list[float]:
    """holm1979: the least level at which the step-down procedure rejects each hypothesis."""
    order = sorted(p_values)
    m = len(order)

    def least_level(p: float) -> float:
        # Rejected where it and all smaller ones pass: p_(j) <= level / (m - j + 1).
        return min(1.0, max((m - j) * order[j] for j in range(m) if order[j] <= p))

    return [least_level(p) for p in p_values]


def all_resampled_means(gaps: Sequence[float]) -> list[float]:
    """The mean of every one of the n^n resamples."""
    return sorted(math.fsum(drawn) / len(gaps) for drawn in itertools.product(gaps, repeat=len(gaps)))
