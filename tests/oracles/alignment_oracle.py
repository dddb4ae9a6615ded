"""Principal angles between singular subspaces, by deflation. Imports no tensor code."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def leading(matrix: Matrix, count: int) -> Matrix:
    """Eigenvectors of M M' with the largest eigenvalues, as columns: left singular vectors."""
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    return vectors[:, np.argsort(-values)[:count]]


def principal_cosines(below: Matrix, above: Matrix, live_below: int, live_above: int) -> list[float]:
    """bjorck1973: square roots of the eigenvalues of the product of both projections, the largest ones."""
    first, second = leading(below, live_below), leading(above.T, live_above)
    product = (first @ first.T) @ (second @ second.T)
    values = sorted(np.linalg.eigvals(product).real.tolist(), reverse=True)
    return [min(1.0, max(0.0, value)) ** 0.5 for value in values[: min(live_below, live_above)]]
