"""Confidence intervals for proportions."""

import math
from dataclasses import dataclass

Z_95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


@dataclass(frozen=True)
class Proportion:
    """A share with its 95 % interval."""

    correct: int
    total: int
    value: float
    low: float
    high: float


def wilson(correct: int, total: int) -> Proportion:
    r"""Wilson's score interval, which stays inside [0, 1] and is right for shares near 0 and 1.

    .. math:: \frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}

    Source: wilson1927.

    Args:
        correct: successes, 0 <= correct <= total.
        total: trials, >= 1.

    Raises:
        ValueError: counts out of range.

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4902, 0.9433)
    """
    if not 0 <= correct <= total or total < 1:
        raise ValueError(f"correct must lie between 0 and total >= 1, got {correct} of {total}")
    share = correct / total
    spread = Z_95 * math.sqrt(share * (1 - share) / total + Z_95**2 / (4 * total**2))
    centre, scale = share + Z_95**2 / (2 * total), 1 + Z_95**2 / total
    low = (centre - spread) / scale if correct > 0 else 0.0  # exactly: the ends must hold the share
    high = (centre + spread) / scale if correct < total else 1.0
    return Proportion(correct, total, share, low, high)
