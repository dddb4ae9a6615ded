"""Uncertainty of figures: two shares compared query by query, several tests, a figure without a formula."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEVEL = 0.05  # two figures are told apart where p is at most this
POWER = 0.8  # probability of detecting a true difference, for the number of seeds needed
Z_95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution
Z_POWER = 0.8416212335729143  # quantile of the normal distribution at ``POWER``
EXACT_MCNEMAR = "exact McNemar test"
BISECTIONS = 64  # halvings of an interval of length 2: below the spacing of float64


@dataclass(frozen=True)
class Difference:
    """A difference of two figures, the first minus the second, with its 95 % interval and its two-sided p.

    Attributes:
        value: the difference, in the unit of the figures; shares in [-1, 1].
        low: lower end of the interval, of this one comparison.
        high: upper end.
        p_value: p of the test that there is no difference.
        test: name of the test.
        adjusted_p: p corrected for the other comparisons of a table; None for a single comparison.
        apart: share of the queries that just one of the two got right; None for figures that are not shares.
    """

    value: float
    low: float
    high: float
    p_value: float
    test: str
    adjusted_p: float | None = None
    apart: float | None = None

    @property
    def p(self) -> float:
        """The p that counts: corrected if there are several comparisons."""
        return self.p_value if self.adjusted_p is None else self.adjusted_p

    @property
    def reversed(self) -> "Difference":
        """The second figure minus the first."""
        return replace(self, value=-self.value, low=-self.high, high=-self.low)

    @property
    def is_told_apart(self) -> bool:
        """True if the test separates the two figures, at the level ``LEVEL``."""
        return self.p <= LEVEL


def compare_hits(first: int, second: int, total: int) -> Difference:
    """Compare two shares of the same queries.

    Args:
        first: bits of the queries that the first one got right.
        second: bits of those that the second one got right.
        total: number of queries, >= 1.

    >>> compare_hits(0b11111000, 0b10000100, 8).value
    0.375
    """
    only_first, only_second = (first & ~second).bit_count(), (second & ~first).bit_count()
    low, high = score_interval(only_first, only_second, total)
    value = (only_first - only_second) / total
    p_value, apart = mcnemar(only_first, only_second), (only_first + only_second) / total
    return Difference(value, low, high, p_value, EXACT_MCNEMAR, apart=apart)


def queries_to_tell(size: float, apart: float) -> int:
    r"""Number of queries that McNemar's test needs to tell a difference, with probability ``POWER`` at level ``LEVEL``.

    .. math:: n = \frac{(z_{\alpha/2} \sqrt{\psi} + z_\beta \sqrt{\psi - \delta^2})^2}{\delta^2}

    Source: connor1987.

    Args:
        size: delta > 0, the difference of the two shares.
        apart: psi, share of the queries that just one gets right; at least as large as delta is taken.

    >>> queries_to_tell(0.1, 0.3)
    234
    """
    apart = max(apart, size)
    root = Z_95 * math.sqrt(apart) + Z_POWER * math.sqrt(apart - size**2)
    return math.ceil((root / size) ** 2)


def mcnemar(only_first: int, only_second: int) -> float:
    r"""Two-sided p of the exact McNemar test: of the n queries that just one got right, each one's is a fair coin.

    .. math:: p = \min\Big(1,\; 2 \sum_{k=0}^{\min(b, c)} \binom{n}{k} 2^{-n}\Big), \quad n = b + c

    Source: mcnemar1947; in its exact, conditional form as in fagerland2013. It is not the mid-p version: p is never
    too small, and often too large.

    Args:
        only_first: b >= 0, queries that only the first one got right.
        only_second: c >= 0, queries that only the second one got right.

    Returns:
        p in [0, 1]; 1 if no query tells them apart.

    >>> round(mcnemar(1, 7), 4)
    0.0703
    """
    from scipy.special import bdtr  # deferred: it takes 0.1 s to import

    # If both are equally many, the sum holds the middle term twice.
    num_apart, fewer = only_first + only_second, min(only_first, only_second)
    return min(1.0, 2 * float(bdtr(fewer, num_apart, 0.5)))


def score_interval(only_first: int, only_second: int, total: int) -> tuple[float, float]:
    r"""95 % interval of a difference of two shares of the same queries: the differences that a score test allows.

    .. math:: \frac{|b - c - N \Delta|}{\sqrt{N (2 \tilde q + \Delta (1 - \Delta))}} \le z, \qquad
              \tilde q = \arg\max_q\; b \log(q + \Delta) + c \log q + (N - b - c) \log(1 - 2 q - \Delta)

    It stays inside [-1, 1], is right for shares near 0 and 1, and leaves out 0 just where McNemar's statistic
    :math:`|b - c| / \sqrt{b + c}` exceeds z. The exact test asks for a little more.

    Source: tango1998.

    Args:
        only_first: b, queries that only the first one got right.
        only_second: c, queries that only the second one got right.
        total: N >= 1, all queries, b + c <= N.

    Returns:
        Both ends of the interval.

    >>> [round(end, 3) for end in score_interval(1, 7, 21)]
    [-0.517, -0.026]
    """
    share = (only_first - only_second) / total
    low = -_upper_end(only_second, only_first, total)
    # The ends hold the share, also to the last digit.
    return min(low, share), max(_upper_end(only_first, only_second, total), share)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    r"""Correct the p of several tests, so that the chance of any false difference among them stays below the level.

    The i-th smallest of m becomes :math:`\max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})`.

    Source: holm1979.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return tuple(adjusted)


def corrected(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """The differences of one table with their p corrected by ``holm``; None, which was not tested, stays None."""
    adjusted = iter(holm([difference.p_value for difference in differences if difference]))
    return [replace(difference, adjusted_p=next(adjusted)) if difference else None for difference in differences]


def jackknife_half_width(left_out: Sequence[float]) -> float:
    r"""Half of Student's 95 % interval of a figure, from its values without each of G groups of samples.

    .. math:: t_{G-1} \, s, \qquad s^2 = \frac{G - 1}{G} \sum_g (\hat\theta_{(g)} - \bar\theta)^2

    Source: efron1993, chapter 11.

    Args:
        left_out: the figure without each group, at least two finite values.

    >>> round(jackknife_half_width([2.5, 2.0, 1.5]), 3)
    2.484
    """
    from scipy.special import stdtrit  # deferred: it takes 0.1 s to import

    num = len(left_out)
    # The sum of squares around the mean is the variance times one less than their number.
    return float(stdtrit(num - 1, 0.975)) * (num - 1) * statistics.stdev(left_out) / math.sqrt(num)


def written_p(p: float) -> str:
    """Write p with its relation.

    >>> written_p(0.0131), written_p(0.3), written_p(2e-7)
    ('= 0.013', '= 0.3', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def _upper_end(b: int, c: int, total: int) -> float:
    low, high = (b - c) / total, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        # tango1998: the likeliest shares whose difference is the middle, from the larger root of
        # 2 N q^2 + B q - c delta (1 - delta) = 0, and the variance of a query's difference under them.
        linear, constant = (2 * total - b + c) * middle - b - c, c * middle * (1 - middle)
        root = (math.sqrt(max(linear**2 + 8 * total * constant, 0.0)) - linear) / (4 * total)
        variance = max(2 * root + middle * (1 - middle), 0.0)
        is_allowed = total * middle - (b - c) <= Z_95 * math.sqrt(total * variance)
        low, high = (middle, high) if is_allowed else (low, middle)
    return high
