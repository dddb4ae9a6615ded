"""Indexes: every method gives the cosines of a loop in its order, reads back what it wrote, and refuses damage."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.search import vector_index
from counterpoint.search.vector_index import CARD, VECTORS, VectorIndex, build_index, open_index
from search.planted_rows import by_loop, clustered

METHODS = ("exact", "hnsw")


def needs_usearch(method: str) -> None:
    if method == "hnsw":
        pytest.importorskip("usearch", reason="usearch (extra `search`) is not installed")


def opened(folder: Path) -> VectorIndex:
    found = open_index(folder)
    assert found is not None
    return found


@pytest.mark.parametrize("method", METHODS)
def test_hits_are_those_of_a_loop(method: str, tmp_path: Path) -> None:
    needs_usearch(method)
    rows, queries = clustered(600), clustered(5, seed=1)
    index = build_index(rows, tmp_path / "index", method=method)
    found = index.search(torch.from_numpy(queries), 10, exact=method != "exact")
    assert found.positions_QK.tolist() == [by_loop(rows, query, 10) for query in queries]
    again = opened(tmp_path / "index").search(torch.from_numpy(queries), 10)
    if method != "hnsw":
        assert torch.equal(again.similarity_QK, index.search(torch.from_numpy(queries), 10).similarity_QK)
    # What an approximate method finds has the same cosines, to the bit.
    exact = dict(zip(found.positions_QK[0].tolist(), found.similarity_QK[0].tolist(), strict=True))
    both = [row for row in again.positions_QK[0].tolist() if row in exact]
    assert len(both) >= 8
    assert all(
        exact[row] == value
        for row, value in zip(again.positions_QK[0].tolist(), again.similarity_QK[0].tolist(), strict=True)
        if row in exact
    )


@pytest.mark.parametrize("method", METHODS)
def test_copies_come_in_the_order_of_their_rows(method: str, tmp_path: Path) -> None:
    needs_usearch(method)
    rows = clustered(300)
    copies = [3, 50, 51, 120, 299]
    rows[copies] = rows[3]
    index = build_index(rows, tmp_path, method=method)
    found = index.search(torch.from_numpy(rows[3:4]), 5)
    assert found.positions_QK.tolist() == [copies]
    assert len(found.similarity_QK.unique()) == 1


def test_a_table_on_disk_gives_the_index_of_the_table_in_memory(tmp_path: Path) -> None:
    rows = clustered(5000, 8)
    np.save(tmp_path / "rows.npy", rows)
    indexes = [
        build_index(each, tmp_path / str(place))
        for place, each in enumerate([rows, tmp_path / "rows.npy", torch.from_numpy(rows)])
    ]
    content = [(index.folder / VECTORS).read_bytes() for index in indexes]
    assert len(set(content)) == 1
    assert torch.allclose(
        indexes[0].vectors(slice(10, 20)), torch.nn.functional.normalize(torch.from_numpy(rows[10:20]))
    )


def test_an_approximate_index_knows_its_recall(tmp_path: Path) -> None:
    needs_usearch("hnsw")
    rows = clustered(3200, 12)
    rows, queries = rows[:3000], rows[3000:]
    index = build_index(rows, tmp_path, method="hnsw")
    recall = index.card.recall
    assert recall is not None
    assert recall.low <= recall.value <= recall.high <= 1
    assert recall.value >= 0.99
    assert index.how().startswith(f"hnsw, approximate: recall@10 {recall.value:.3f} ({recall.low:.3f} to ")
    assert index.how(exact=True) == "every row compared"
    found = index.search(torch.from_numpy(queries), 10).positions_QK.tolist()
    truth = [by_loop(rows, query, 10) for query in queries]
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, truth, strict=True)])
    assert share >= recall.low - 0.01


def test_above_the_border_the_graph_is_taken_or_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = clustered(100)
    monkeypatch.setattr(vector_index, "MOST_COMPARED", rows.size)
    small = build_index(rows, tmp_path / "small")
    assert (small.card.method, small.advice()) == ("exact", ())
    monkeypatch.setattr(vector_index, "MOST_COMPARED", rows.size - 1)
    monkeypatch.setattr(vector_index, "has_usearch", lambda: False)
    without = build_index(rows, tmp_path / "without")
    assert (without.card.method, without.graph) == ("exact", None)
    assert len(without.advice()) == 1
    assert "pip install 'counterpoint[search]'" in without.advice()[0]
    needs_usearch("hnsw")
    monkeypatch.undo()
    monkeypatch.setattr(vector_index, "MOST_COMPARED", rows.size - 1)
    large = build_index(rows, tmp_path / "large")
    assert (large.card.method, large.advice()) == ("hnsw", ())
    assert opened(tmp_path / "large").graph is not None
    monkeypatch.setattr(vector_index, "has_usearch", lambda: False)  # on another machine
    moved, queries = opened(tmp_path / "large"), torch.from_numpy(rows[:3])
    assert (moved.how(), moved.advice()) == ("every row compared", without.advice())
    assert torch.equal(moved.search(queries, 5).positions_QK, without.search(queries, 5).positions_QK)


def test_zeros_are_like_nothing_and_are_counted(tmp_path: Path) -> None:
    rows = clustered(30)
    rows[[4, 9]] = 0
    index = build_index(rows, tmp_path)
    assert index.card.num_zero == 2
    found = index.search(torch.from_numpy(rows[:1]), 30)
    assert found.similarity_QK[0][found.positions_QK[0] == 4].tolist() == [0.0]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), "row 1 holds NaN"),
        (np.zeros((0, 4)), r"shape \(n, d\)"),
        (np.zeros(4), r"shape \(n, d\)"),
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(rows: np.ndarray, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=complaint):
        build_index(rows, tmp_path / "index")
    assert not (tmp_path / "index" / CARD).exists()


@pytest.mark.parametrize("k", [0, 6])
def test_k_beyond_the_collection_is_refused(k: int, tmp_path: Path) -> None:
    index = build_index(clustered(5), tmp_path)
    with pytest.raises(UsageError, match=f"k must be between 1 and 5, .*got {k}"):
        index.search(torch.ones(1, 16), k)
    assert index.search(torch.ones(1, 16), 5).positions_QK.sort().values.tolist() == [[0, 1, 2, 3, 4]]


def test_queries_of_another_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"shape \(n, 16\), got \(1, 3\)"):
        build_index(clustered(5), tmp_path).search(torch.ones(1, 3), 1)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    build_index(clustered(5), tmp_path)
    content = bytearray((tmp_path / VECTORS).read_bytes())
    content[-1] ^= 1
    (tmp_path / VECTORS).write_bytes(content)
    with pytest.raises(RunError, match=r"vectors.npy is missing or damaged; make the index again with --rebuild"):
        open_index(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    build_index(clustered(5), tmp_path)
    write_sealed(tmp_path / CARD, {**read_sealed(tmp_path / CARD), "format": 99})
    with pytest.raises(RunError, match="has format 99; this version reads 2"):
        open_index(tmp_path)


def test_without_usearch_one_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    monkeypatch.setitem(sys.modules, "usearch", None)
    with pytest.raises(UsageError, match=r"needs usearch; install it with: pip install 'counterpoint\[search\]'"):
        build_index(clustered(5), tmp_path / "index", method="hnsw")
    assert not (tmp_path / "index").exists()
