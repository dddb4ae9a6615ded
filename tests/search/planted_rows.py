"""Vectors whose neighbours are known by construction, for the tests of indexes."""

import numpy as np


def clustered(num_rows: int, width: int = 16, *, num_clusters: int = 20, seed: int = 0) -> np.ndarray:
    """Rows around a few directions."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(num_clusters, width))
    rows = centres[rng.integers(num_clusters, size=num_rows)] + 0.3 * rng.normal(size=(num_rows, width))
    return rows.astype(np.float32)


def by_loop(rows: np.ndarray, query: np.ndarray, k: int) -> list[int]:
    """Rows with the largest cosines in float64, of equal ones the first."""
    unit = rows.astype(np.float64)
    lengths = np.linalg.norm(unit, axis=1, keepdims=True)
    unit = np.divide(unit, lengths, out=np.zeros_like(unit), where=lengths > 0)
    cosine = unit @ (query / np.linalg.norm(query))
    return sorted(range(len(rows)), key=lambda row: (-round(float(cosine[row]), 6), row))[:k]
