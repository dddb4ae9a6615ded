"""The planted neighbours of the benchmark of search are the nearest."""

import numpy as np
import pytest


def test_planted_rows_are_among_the_nearest() -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    import search_peers as benchmark  # deferred: needs faiss

    data = benchmark.planted(2000, 20, 64)
    assert data.planted_QK is not None
    cosine = data.rows_ND @ data.queries_QD.T
    found = np.argsort(-cosine, axis=0)[: benchmark.K].T
    shares = [len(set(own) & set(near)) / benchmark.K for own, near in zip(data.planted_QK, found, strict=True)]
    assert np.mean(shares) > 0.8  # others of the cloud come as near as the farthest planted ones
