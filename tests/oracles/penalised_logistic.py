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


def mean_loss(x: Matrix, classes: NDArray[np.int64], coefficients: Matrix, inverse_penalty: float) -> float:
    """Mean log loss of many classes plus |W|^2 / 2 over n C; a row of coefficients is a class, its last the intercept.

    Of two classes one vector is penalised, the difference of their two.
    """
    logits = np.column_stack([x, np.ones(len(x))]) @ coefficients.T
    top = logits.max(axis=1)
    log_sums = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    weights = coefficients[:, :-1]
    squares = float((weights**2).sum() if len(weights) > 2 else ((weights[1] - weights[0]) ** 2).sum())
    return float((log_sums - logits[np.arange(len(x)), classes]).mean()) + squares / (2 * len(x) * inverse_penalty)
