"""The benchmark of search runs at a small size, checks before it times, and its planted neighbours are the nearest."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COMMAND = Path(__file__).parents[2] / "benchmarks" / "search_peers.py"


@pytest.mark.thorough
def test_a_small_size_prints_both_tables() -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    flags = ["--rows", "3000", "--queries", "40", "--width", "16", "--threads", "1"]
    done = subprocess.run([sys.executable, str(COMMAND), *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "| " in line]
    for name in ("clustered", "broad", "planted"):
        own = [row for row in rows if row[0] == name]
        assert [row[1] for row in own[:2]] == ["exact, one query", "exact, batch of 40"]
        built = next(row for row in own if row[1] == "exact")
        assert float(built[3].split()[0].rstrip(",")) == 1
        assert sum(row[1].startswith("faiss HNSW") for row in own) == 4


def test_planted_rows_are_among_the_nearest() -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    import search_peers as benchmark  # deferred: needs faiss

    data = benchmark.planted(2000, 20, 64)
    assert data.planted_QK is not None
    cosine = data.rows_ND @ data.queries_QD.T
    found = np.argsort(-cosine, axis=0)[: benchmark.K].T
    shares = [len(set(own) & set(near)) / benchmark.K for own, near in zip(data.planted_QK, found, strict=True)]
    assert np.mean(shares) > 0.8  # others of the cloud come as near as the farthest planted ones
