"""Judge claims about two methods by paired differences over seeds: interval, verdict, detectable difference."""

# S seeds

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtr, stdtrit

from counterpoint.core.paired_shares import LEVEL, POWER
from counterpoint.evaluation.significance import power

HOLDS, FAILS, UNTOLD = "holds", "does not hold", "cannot be told"
Relation = Literal["greater", "smaller", "within"]
SeedRule = Literal["fixed", "sequential"]
# Looks of the sequential rule, and the level that each spends: 0.05 in all. By the union bound a claim without
# difference is told at any look with probability 0.05 at most, whatever decides how many seeds are made.
LOOKS: Mapping[int, float] = {3: 0.005, 5: 0.01, 10: 0.01, 20: 0.025}
ROUNDING = 1e-12  # figures whose seeds differ by less, relative to their size, do not scatter


@dataclass(frozen=True)
class Verdict:
    """A claim beside the figures of all seeds.

    Attributes:
        verdict: ``holds``, ``does not hold`` or ``cannot be told``.
        difference: mean over seeds of the first figure minus the second one.
        low: lower end of Student's interval of the paired differences, at 95 % or at the level of the look.
        high: upper end.
        smallest: the difference from the threshold that so many seeds, scattering like these, tell with probability
            0.8; None if seeds do not scatter.
        num_seeds: S, of the look where the verdict was told or of the last one.
    """

    verdict: str
    difference: float
    low: float
    high: float
    smallest: float | None
    num_seeds: int


def judge(
    first_S: Sequence[float],
    second_S: Sequence[float],
    *,
    relation: Relation,
    than: float = 0.0,
    level: float = LEVEL,
) -> Verdict:
    r"""Judge a claim by the paired differences of its seeds.

    .. math:: \bar d \pm t_{1 - \mathrm{level} / 2,\,S-1}\, s_d / \sqrt S

    A claim ``greater`` holds where the whole interval lies above the threshold, and does not hold where it lies below
    it; ``smaller`` the other way round. ``within`` holds where the whole interval lies inside [-than, than] (two
    one-sided tests, schuirmann1987, at half of the level each), and does not hold where it lies outside. Else nothing
    is told.

    A count stands for anything within half of one, a variance of 1/12: where counts of all seeds agree the deviation is
    that of the rounding, and not zero.

    Source: student1908.

    Args:
        first_S: the figure of each seed.
        second_S: of the same seeds, in the same order; zeros compare the first one with the threshold alone.
        relation: of the difference to the threshold.
        than: the threshold.
        level: of the interval, > 0 and < 1.

    Raises:
        ValueError: fewer than two seeds, other seeds, or a figure that is not finite.

    >>> judge([1.2, 2.4, 1.3, 1.3, 0.0], [0.0] * 5, relation="greater").verdict
    'holds'
    """
    paired = _paired_differences(first_S, second_S)
    mean, deviation, num_seeds = paired.mean, paired.deviation, paired.num_seeds
    half = float(stdtrit(num_seeds - 1, 1 - level / 2)) * paired.error
    low, high = mean - half, mean + half
    smallest = deviation * _detectable_effect(num_seeds, level) if deviation > 0 else None
    return Verdict(_verdict_of(low, high, relation, than), mean, low, high, smallest, num_seeds)


def judge_in_turn(
    first_S: Sequence[float], second_S: Sequence[float], *, relation: Relation, than: float = 0.0
) -> Verdict:
    """Judge at each look of ``LOOKS`` that has its seeds: the first verdict that is told counts, else that of the last.

    Seeds beyond a look wait for the next one. Source: a level that looks spend, lan1983; here by the union bound, which
    holds for any dependence between looks.

    Raises:
        ValueError: fewer seeds than the first look has, or as ``judge``.

    >>> judge_in_turn([5.1, 5.0, 4.9, 0.0], [0.0] * 4, relation="greater").num_seeds
    3
    """
    verdict = None
    for look, level in LOOKS.items():
        if look <= len(first_S) and (verdict is None or verdict.verdict == UNTOLD):
            verdict = judge(first_S[:look], second_S[:look], relation=relation, than=than, level=level)
    if verdict is None:
        raise ValueError(f"the first look has {min(LOOKS)} seeds, got {len(first_S)}")
    return verdict


def told_p_in_turn(
    first_S: Sequence[float], second_S: Sequence[float], *, relation: Relation, than: float = 0.0
) -> float:
    """The p of a claim that was judged in turn: at most 0.05 exactly if a look tells it.

    The least over looks of a look's p over its share of the level: the union bound once more.
    """
    p_values = [
        told_p(first_S[:look], second_S[:look], relation=relation, than=than) * LEVEL / level
        for look, level in LOOKS.items()
        if look <= len(first_S)
    ]
    return min(1.0, *p_values)


def told_p(first_S: Sequence[float], second_S: Sequence[float], *, relation: Relation, than: float = 0.0) -> float:
    r"""The p of a claim's verdict: at most 0.05 if ``judge`` tells it, whether it holds or not.

    Of ``greater`` and ``smaller`` Student's two-sided p that the difference is the threshold; of ``within`` twice the
    larger of the p of two one-sided tests, or twice that of a difference outside.

    Raises:
        ValueError: as ``judge``.

    >>> round(told_p([1.9, 0.8, 1.1, 0.1], [0.7, -1.6, -0.2, -1.2], relation="greater"), 3)
    0.012
    """
    paired = _paired_differences(first_S, second_S)

    def beyond(distance: float) -> float:
        """One-sided p of a mean that lies a distance beyond a threshold, if the true mean is the threshold."""
        if paired.error == 0:
            return 0.0 if distance > 0 else 1.0
        return 1 - float(stdtr(paired.num_seeds - 1, distance / paired.error))

    if relation != "within":
        return min(1.0, 2 * beyond(abs(paired.mean - than)))
    inside = max(beyond(than - paired.mean), beyond(than + paired.mean))
    return min(1.0, 2 * min(inside, beyond(abs(paired.mean) - than)))


@dataclass(frozen=True)
class _PairedDifferences:
    """Paired differences of seeds: mean, deviation and number."""

    mean: float
    deviation: float
    num_seeds: int

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(self.num_seeds)


def _paired_differences(first_S: Sequence[float], second_S: Sequence[float]) -> _PairedDifferences:
    """Mean and deviation of the differences, that of counts at least the deviation of their rounding."""
    first, second = np.asarray(first_S, np.float64), np.asarray(second_S, np.float64)
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        raise ValueError(f"two seeds or more are needed, the same on both sides, got {first.shape} and {second.shape}")
    gap_S = first - second
    if not np.isfinite(gap_S).all():
        raise ValueError("figures of seeds must be finite")
    mean, deviation = float(gap_S.mean()), float(gap_S.std(ddof=1))
    if deviation <= ROUNDING * max(float(np.abs(first).max()), float(np.abs(second).max())):
        deviation = 0.0
    are_counts = [bool((side == side.round()).all()) for side in (first, second)]
    if all(are_counts) and max(float(np.abs(first).max()), float(np.abs(second).max())) > 1:  # counts, not shares
        deviation = max(deviation, math.sqrt((1 + bool(second.any())) / 12))
    return _PairedDifferences(mean, deviation, len(gap_S))


def _verdict_of(low: float, high: float, relation: Relation, than: float) -> str:
    """The verdict that the interval from ``low`` to ``high`` gives."""
    if relation == "within":
        is_true, is_false = -than <= low and high <= than, high < -than or low > than
    elif relation == "greater":
        is_true, is_false = low > than, high < than
    else:
        is_true, is_false = high < than, low > than
    return HOLDS if is_true else FAILS if is_false else UNTOLD


def _detectable_effect(num_seeds: int, level: float) -> float:
    """The smallest effect, in standard deviations of a pair, that a paired t test tells with probability ``POWER``."""

    def missing(effect: float) -> float:
        return power(effect, num_seeds, is_paired=True, level=level) - POWER

    high = 0.1
    while missing(high) < 0:  # a bracket close by: far out SciPy has no value
        high *= 2
    return cast(float, brentq(missing, 1e-6, high))
