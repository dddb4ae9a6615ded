"""Binary logistic regression with a squared penalty, by Newton's method in NumPy: |w|^2 / 2 + C * sum of log losses."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def standardised(train: Matrix, other: Matrix) -> tuple[Matrix, Matrix]:
    """Both in deviations of the training samples; a constant feature becomes 0."""
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    return (train - mean) / deviation, (other - mean) / deviation


def fit(x: Matrix, is_second: Matrix, inverse_penalty: float) -> tuple[Matrix, float]:
    """Weights and intercept; the intercept is not penalised."""
    design = np.column_stack([x, np.ones(len(x))])
    penalty = np.diag([*[1.0] * x.shape[1], 0.0])
    weights, slope = np.zeros(design.shape[1]), np.full(design.shape[1], np.inf)
    for _ in range(50):
        share = 1 / (1 + np.exp(-design @ weights))
        slope = penalty @ weights + inverse_penalty * design.T @ (share - is_second)
        curvature = penalty + inverse_penalty * (design.T * (share * (1 - share))) @ design
        weights = weights - np.linalg.solve(curvature, slope)
    assert np.abs(slope).max() < 1e-9
    return weights[:-1], float(weights[-1])
