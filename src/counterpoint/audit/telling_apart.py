"""Whether there are enough samples for a verdict: how exactly an accuracy, and a difference of two, could be told."""

import math

import numpy as np

from counterpoint.audit.audit_record import Precision
from counterpoint.runs.resolve import HOLDOUT

Z_95, Z_80 = 1.959964, 0.841621  # two-sided 5 %; a power of 80 %
DISAGREEMENT = 0.2  # share of the queries that exactly one of two encoders gets right, usual for kNN of small runs


def precision_of(labels_N: np.ndarray | None, is_test_N: np.ndarray) -> Precision | None:
    """How exactly an accuracy could be told.

    Args:
        labels_N: class numbers of the samples that can be used; -1 where unknown.
        is_test_N: samples of a test part; where there is none, a fifth is held out, as training does by itself.

    Returns:
        None without labels.
    """
    if labels_N is None or not (labels_N >= 0).any():
        return None
    known = labels_N[(labels_N >= 0) & (is_test_N if is_test_N.any() else True)]
    if len(known) == 0:
        return Precision(num_queries=0)
    share = 1.0 if is_test_N.any() else HOLDOUT
    counts = np.bincount(known)
    number = round(share * len(known))
    smallest = round(share * int(counts[counts > 0].min()))
    return Precision(
        num_queries=number,
        half_width=half_width(number),
        smallest_class=smallest,
        smallest_half_width=half_width(smallest),
        difference=smallest_difference(number),
    )


def half_width(number: int) -> float:
    """Half of Wilson's 95 % interval of an accuracy of one half, the widest there is.

    >>> round(half_width(100), 3), half_width(0)
    (0.096, 0.5)
    """
    return 0.5 if number == 0 else Z_95 * math.sqrt(0.25 / number + Z_95**2 / (4 * number**2)) / (1 + Z_95**2 / number)


def smallest_difference(number: int) -> float:
    r"""Smallest difference of two accuracies on the same queries that McNemar's test finds in 8 of 10 cases.

    .. math:: \Delta = (z_{0.975} + z_{0.8}) \sqrt{d / n}

    with :math:`d` = 0.2, the share of queries that exactly one of the two gets right.

    >>> round(smallest_difference(1000), 3)
    0.04
    """
    return min(1.0, (Z_95 + Z_80) * math.sqrt(DISAGREEMENT / max(number, 1)))
