"""How well a figure is known that has no formula: each group of samples is left out once."""

import math
import statistics
from collections.abc import Sequence

from scipy.special import stdtrit


def jackknife_half_width(left_out: Sequence[float]) -> float:
    r"""Half of Student's 95 % interval of a figure, from what it is without each of G groups of samples.

    .. math:: t_{G-1} \, s, \qquad s^2 = \frac{G - 1}{G} \sum_g (\hat\theta_{(g)} - \bar\theta)^2

    Source: efron1993, chapter 11.

    Args:
        left_out: without each group, at least two finite figures.

    >>> round(jackknife_half_width([2.5, 2.0, 1.5]), 3)
    2.484
    """
    num = len(left_out)
    # The sum of squares around the mean is the variance times one less than their number.
    return float(stdtrit(num - 1, 0.975)) * (num - 1) * statistics.stdev(left_out) / math.sqrt(num)
