"""Minority collapse from imbalanced2026, section 6 and A.13 to A.18, in plain loops. Imports no tensor code."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

Matrix = list[list[float]]


def curve(a: float, num_classes: int) -> Matrix:
    """Lemma 8, Eq. 43: cosine a with the first class, b between the others."""
    b = (a * a * (num_classes - 1) - 1) / (num_classes - 2)
    return [[1.0 if i == j else (a if 0 in (i, j) else b) for j in range(num_classes)] for i in range(num_classes)]


def one_majority(share: float, num_classes: int) -> list[float]:
    return [share] + [(1 - share) / (num_classes - 1)] * (num_classes - 1)


def counts(total: int, num_parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write total as an ordered sum of num_parts whole numbers >= 0."""
    if num_parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in counts(total - first, num_parts - 1):
            yield (first, *rest)


def risk(gram: Matrix, shares: Sequence[float], k: float, supervised: bool, temperature: float = 1.0) -> float:
    """Eq. 14 with Eq. 23 by multinomial counts of the negatives' classes; Eq. 10 for infinitely many."""
    total = 0.0
    for i, anchor in enumerate(shares):
        weight = [0.0 if supervised and j == i else share for j, share in enumerate(shares)]
        weight = [w / sum(weight) for w in weight]
        terms = [math.exp((gram[i][j] - 1) / temperature) for j in range(len(shares))]
        if math.isinf(k):
            total += anchor * math.log(1 + sum(w * x for w, x in zip(weight, terms, strict=True)))
            continue
        for count in counts(int(k), len(shares)):
            chance = multinomial(count, weight)
            total += anchor * chance * math.log(1 + sum(n * x for n, x in zip(count, terms, strict=True)) / k)
    return total


def multinomial(count: Sequence[int], weight: Sequence[float]) -> float:
    chance = float(math.factorial(sum(count)))
    for n, w in zip(count, weight, strict=True):
        chance *= w**n / math.factorial(n)
    return chance


def least(function: Callable[[float], float], low: float, high: float, steps: int = 90) -> float:
    """Golden-section search of a function that falls, then rises."""
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (low + high) / 2


def event_1(num_classes: int, k: int) -> Iterator[tuple[int, ...]]:
    """Labels (y, y_1 ... y_k) of E_1, A.16: a majority anchor with a minority negative, or the other way for all."""
    for labels in itertools.product(range(num_classes), repeat=k + 1):
        anchor, negatives = labels[0], labels[1:]
        if (anchor == 0 and any(negatives)) or (anchor != 0 and not any(negatives)):
            yield labels


def probability_of_event_1(share: float, num_classes: int, k: int) -> float:
    shares = one_majority(share, num_classes)
    return sum(math.prod(shares[label] for label in labels) for labels in event_1(num_classes, k))


def condition_18(share: float, num_classes: int, k: int) -> float:
    """Right side of (18) by going through all labels, A.14 and A.16; at temperature 1."""
    shares, total = one_majority(share, num_classes), 0.0
    for labels in event_1(num_classes, k):
        u = [int(negative != labels[0]) for negative in labels[1:]]
        delta = sum(x * slope for x, slope in zip(u, infonce_slope([-2.0 * x for x in u]), strict=True))  # Lemma 9
        total += math.prod(shares[label] for label in labels) * delta
    gamma, delta_2 = 2 * (num_classes - 1) / (num_classes - 2), 1 / (2 * math.sqrt(k))
    mean = total / probability_of_event_1(share, num_classes, k)
    return 1 / (1 + mean / (gamma * math.sqrt(k) * delta_2))


def condition_18_by_counts(share: float, num_classes: int, k: int) -> float:
    """The same from the number l of negatives of other classes, which is binomial; for any k."""
    rest, contrast = 1 - share, math.exp(2)
    delta = [x / (2 * k * contrast - (contrast - 1) * x) for x in range(k + 1)]
    weights = [share * math.comb(k, x) * rest**x * share ** (k - x) for x in range(1, k + 1)]
    weights[-1] += rest * share**k  # a minority anchor, all negatives of the majority
    mean = sum(w * d for w, d in zip(weights, delta[1:], strict=True)) / sum(weights)
    return 1 / (1 + mean * (num_classes - 2) / (num_classes - 1))


def infonce_slope(t: Sequence[float]) -> list[float]:
    """Gradient of Eq. 23."""
    weight = len(t) + sum(math.exp(x) for x in t)
    return [math.exp(x) / weight for x in t]


def same_view_risk(features: Sequence[Sequence[float]]) -> float:
    """Eq. 9 where each sample is its own positive and negatives are uniform over all samples, k infinite."""
    return sum(
        math.log(sum(1 + math.exp(dot(x, n) - dot(x, x)) for n in features) / len(features)) for x in features
    ) / len(features)


def independent_view_risk(features: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """Eq. 9 where the positive is any sample of the anchor's class, drawn independently of it, k infinite."""
    total = 0.0
    for x, label in zip(features, labels, strict=True):
        positives = [p for p, other in zip(features, labels, strict=True) if other == label]
        for p in positives:
            mean = sum(math.exp(dot(x, n) - dot(x, p)) for n in features) / len(features)
            total += math.log(1 + mean) / len(positives)
    return total / len(features)


def dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def simplex(num_vectors: int) -> list[list[float]]:
    """Unit vectors with equal inner products -1/(n-1)."""
    scale = math.sqrt(num_vectors / (num_vectors - 1))
    return [[scale * ((i == j) - 1 / num_vectors) for j in range(num_vectors)] for i in range(num_vectors)]


def slope_at_merged(share: float, num_classes: int, k: float, supervised: bool, step: float = 1e-4) -> float:
    """Derivative of S(A(a)) for a at a = -1, one-sided, its error of the order of step^3."""
    shares = one_majority(share, num_classes)
    values = [risk(curve(-1 + n * step, num_classes), shares, k, supervised) for n in range(4)]
    return (-11 * values[0] + 18 * values[1] - 9 * values[2] + 2 * values[3]) / (6 * step)


def threshold(num_classes: int, k: float, supervised: bool) -> float:
    """Share at which that derivative changes its sign, by bisection."""
    low, high = 0.4, 0.99
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if slope_at_merged(middle, num_classes, k, supervised) >= 0 else (middle, high)
    return (low + high) / 2
