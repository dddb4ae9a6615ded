"""Neural collapse from papyan2020 and minority collapse from fang2021, in NumPy and loops. Imports no tensor code."""

import math

import numpy as np
from numpy.typing import NDArray

from oracles.feature_measures import Matrix, unit


def classes_of(z: Matrix, labels: list[int]) -> list[Matrix]:
    """Unit rows of each class, in the order of class numbers; those without a class left out."""
    u = unit(z)
    numbers = sorted({label for label in labels if label >= 0})
    return [np.array([row for row, label in zip(u, labels, strict=True) if label == c]) for c in numbers]


def centred_means(groups: list[Matrix]) -> Matrix:
    """mu_c - mu, with mu the mean of the class means."""
    means = [[math.fsum(column) / len(group) for column in group.T.tolist()] for group in groups]
    centre = [math.fsum(column) / len(means) for column in zip(*means, strict=True)]
    return np.array([[x - m for x, m in zip(mean, centre, strict=True)] for mean in means])


def scatters(groups: list[Matrix]) -> tuple[Matrix, Matrix]:
    """Sigma_W and Sigma_B as averages of outer products, each class alike."""
    width = groups[0].shape[1]
    within, between = np.zeros((width, width)), np.zeros((width, width))
    for group, mean in zip(groups, centred_means(groups), strict=True):
        between += np.outer(mean, mean) / len(groups)
        for row in group:
            step = row - group.mean(axis=0)
            within += np.outer(step, step) / (len(groups) * len(group))
    return within, between


def nc1(z: Matrix, labels: list[int], definition: str) -> float:
    """papyan2020, Fig. 6: Tr(Sigma_W pinv(Sigma_B)) / C; or Tr(Sigma_W) / Tr(Sigma_B)."""
    groups = classes_of(z, labels)
    if len(groups) < 2 or all(len(group) == 1 for group in groups):
        return math.nan
    within, between = scatters(groups)
    if definition == "trace ratio":
        return float(np.trace(within) / np.trace(between))
    return float(np.trace(within @ np.linalg.pinv(between, rcond=1e-12, hermitian=True)) / len(groups))


def nc2_lengths(z: Matrix, labels: list[int]) -> float:
    """papyan2020, Fig. 2: Std_c |mu_c - mu| / Avg_c |mu_c - mu|."""
    lengths = [math.sqrt(math.fsum(x * x for x in mean)) for mean in centred_means(classes_of(z, labels)).tolist()]
    if len(lengths) < 2:
        return math.nan
    average = math.fsum(lengths) / len(lengths)
    return math.sqrt(math.fsum((x - average) ** 2 for x in lengths) / len(lengths)) / average


def cosines(means: list[NDArray[np.float64]]) -> list[float]:
    """Of every ordered pair of different rows."""
    return [
        float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
        for i, a in enumerate(means)
        for j, b in enumerate(means)
        if i != j
    ]


def nc2_angles(z: Matrix, labels: list[int]) -> float:
    """papyan2020, Fig. 4: average of |cos + 1 / (C - 1)| over different classes."""
    means = list(centred_means(classes_of(z, labels)))
    if len(means) < 2:
        return math.nan
    shifted = [abs(cosine + 1 / (len(means) - 1)) for cosine in cosines(means)]
    return math.fsum(shifted) / len(shifted)


def nc4(z: Matrix, labels: list[int]) -> float:
    """papyan2020, Fig. 7, for labels: share of rows with argmin_c |h - mu_c| = y; k equally near ones count 1 / k."""
    groups = classes_of(z, labels)
    if len(groups) < 2 or all(len(group) == 1 for group in groups):
        return math.nan
    means, found = [group.mean(axis=0) for group in groups], 0.0
    for c, group in enumerate(groups):
        for row in group:
            distances = [math.dist(row, mean) for mean in means]
            nearest = [d for d, distance in enumerate(distances) if distance <= min(distances) + 1e-12]
            found += (c in nearest) / len(nearest)
    return found / sum(len(group) for group in groups)


def minority_cosine(z: Matrix, labels: list[int]) -> float:
    """fang2021: mean cosine of the rarer classes less that of the others, cut where counts differ near the middle."""
    groups = classes_of(z, labels)
    order = sorted(range(len(groups)), key=lambda c: len(groups[c]))
    possible = [k for k in range(2, len(order) - 1) if len(groups[order[k - 1]]) != len(groups[order[k]])]
    if not possible:
        return math.nan
    middle = min(abs(k - len(order) / 2) for k in possible)
    cut = next(k for k in possible if abs(k - len(order) / 2) == middle)
    means = centred_means(groups)
    rare, frequent = (cosines([means[c] for c in part]) for part in (order[:cut], order[cut:]))
    return math.fsum(rare) / len(rare) - math.fsum(frequent) / len(frequent)
