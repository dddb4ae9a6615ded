"""Class means and the scatters of papyan2020, in NumPy and loops. Imports no tensor code."""

import math

import numpy as np

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
