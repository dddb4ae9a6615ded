"""Indexes: every method gives the cosines of a loop in its order, reads back what it wrote, and refuses damage."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.search.cells import Cells, look_up
from counterpoint.search.vector_index import CARD, VECTORS, build_index, open_index
from search.planted_rows import by_loop, clustered

METHODS = ("exact", "cells", "hnsw")


def needs_usearch(method: str) -> None:
    if method == "hnsw":
        pytest.importorskip("usearch", reason="usearch (extra `search`) is not installed")


@pytest.mark.parametrize("method", METHODS)
def test_hits_are_those_of_a_loop(method: str, tmp_path: Path) -> None:
    needs_usearch(method)
    rows, queries = clustered(600), clustered(5, seed=1)
    index = build_index(rows, tmp_path / "index", method=method)
    found = index.search(torch.from_numpy(queries), 10, exact=method != "exact")
    assert found.positions_QK.tolist() == [by_loop(rows, query, 10) for query in queries]
    again = open_index(tmp_path / "index").search(torch.from_numpy(queries), 10)
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


@pytest.mark.parametrize(("num_queries", "has_halves"), [(1, True), (1, False), (30, True)])
def test_cells_that_are_all_looked_into_give_the_exact_answer(
    num_queries: int, has_halves: bool, tmp_path: Path
) -> None:
    """One query goes through its cells, in float16 first where these are at hand; of many each cell takes its own."""
    rows, queries = clustered(900), torch.from_numpy(clustered(num_queries, seed=2))
    index = build_index(rows, tmp_path, method="cells")
    assert isinstance(index.table_ND, torch.Tensor)
    held = torch.from_numpy(np.load(tmp_path / "centres.npy"))
    halves = index.table_ND.half() if has_halves else None
    cells = Cells(held[:, :-1].float(), torch.cat([held[:, -1].long(), torch.tensor([len(rows)])]), halves)
    unit = torch.nn.functional.normalize(queries, dim=1)
    places = look_up(cells, index.table_ND, unit, 7, len(cells)).positions_QK
    assert index.row_of_N is not None
    found = index.row_of_N[places].sort(dim=1).values
    assert torch.equal(found, index.search(queries, 7, exact=True).positions_QK.sort(dim=1).values)


def test_rows_that_float16_cannot_tell_apart_are_found_all_the_same(rng: np.random.Generator) -> None:
    """500 rows whose cosines with the query differ by 1e-7 and more, and float16 by none."""
    query = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=32)), dim=0)
    noise = torch.from_numpy(rng.normal(size=(500, 32)))
    unit = torch.nn.functional.normalize(query + 0.004 * noise, dim=1)
    truth = (unit @ query).topk(7)
    rows, asked = unit.float(), query.float()
    cells = Cells(asked[None], torch.tensor([0, 500]), rows.half())
    assert len(torch.mv(rows.half(), asked.half()).unique()) < 5
    assert look_up(cells, rows, asked[None], 7, 1).similarity_QK[0].tolist() == pytest.approx(truth.values, abs=2e-7)


@pytest.mark.parametrize("method", ["exact", "cells"])
def test_copies_come_in_the_order_of_their_rows(method: str, tmp_path: Path) -> None:
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
        build_index(each, tmp_path / str(place), method="cells")
        for place, each in enumerate(
            [rows, np.load(tmp_path / "rows.npy", mmap_mode="r"), tmp_path / "rows.npy", torch.from_numpy(rows)]
        )
    ]
    content = [(index.folder / VECTORS).read_bytes() for index in indexes]
    assert len(set(content)) == 1
    assert torch.allclose(
        indexes[0].vectors(slice(10, 20)), torch.nn.functional.normalize(torch.from_numpy(rows[10:20]))
    )


@pytest.mark.parametrize("method", ["cells", "hnsw"])
def test_an_approximate_index_knows_its_recall(method: str, tmp_path: Path) -> None:
    needs_usearch(method)
    rows = clustered(3200, 12)
    rows, queries = rows[:3000], rows[3000:]
    index = build_index(rows, tmp_path, method=method)
    effort = index.card.effort
    assert effort is not None
    assert effort.low <= effort.recall <= effort.high <= 1
    assert effort.recall >= 0.99
    found = index.search(torch.from_numpy(queries), 10).positions_QK.tolist()
    truth = [by_loop(rows, query, 10) for query in queries]
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, truth, strict=True)])
    assert share >= effort.low - 0.01


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
    with pytest.raises(RunError, match="has format 99; this version reads 1"):
        open_index(tmp_path)


def test_without_usearch_one_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    monkeypatch.setitem(sys.modules, "usearch", None)
    with pytest.raises(UsageError, match=r"needs usearch; install it with: pip install 'counterpoint\[search\]'"):
        build_index(clustered(5), tmp_path / "index", method="hnsw")
    assert not (tmp_path / "index").exists()


def test_any_number_of_threads_builds_the_same_index(tmp_path: Path) -> None:
    rows, usual, found = clustered(2000), torch.get_num_threads(), []
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            build_index(rows, tmp_path / str(num_threads), method="cells")
            found.append((tmp_path / str(num_threads) / VECTORS).read_bytes())
    finally:
        torch.set_num_threads(usual)
    assert found[0] == found[1]
