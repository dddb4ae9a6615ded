"""Indexes: the cosines of a loop in its order, what was written is read back, and damage refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, RunError
from counterpoint.core.files import read_sealed, sha256_of, write_sealed
from counterpoint.core.stored_rows import StoredRows
from counterpoint.search.vector_index import CARD, VECTORS, VectorIndex, build_index, open_index
from search.planted_rows import by_loop, clustered


def built(rows: np.ndarray, folder: Path, **options: Any) -> VectorIndex:
    folder.mkdir(exist_ok=True)
    return build_index(torch.from_numpy(rows), folder, names=list(map(str, range(len(rows)))), **options)


def opened(folder: Path) -> VectorIndex:
    found = open_index(folder)
    assert found is not None
    return found


def test_hits_are_those_of_a_loop(tmp_path: Path) -> None:
    rows, queries = clustered(600), clustered(5, seed=1)
    index = built(rows, tmp_path / "index")
    found = index.search(torch.from_numpy(queries), 10)
    assert found.positions_QK.tolist() == [by_loop(rows, query, 10) for query in queries]
    again = opened(tmp_path / "index").search(torch.from_numpy(queries), 10)
    assert torch.equal(again.similarity_QK, found.similarity_QK)


def test_copies_come_in_the_order_of_their_rows(tmp_path: Path) -> None:
    rows = clustered(300)
    copies = [3, 50, 51, 120, 299]
    rows[copies] = rows[3]
    found = built(rows, tmp_path).search(torch.from_numpy(rows[3:4]), 5)
    assert found.positions_QK.tolist() == [copies]
    assert len(found.similarity_QK.unique()) == 1


def test_a_table_on_disk_gives_the_index_of_the_table_in_memory(tmp_path: Path) -> None:
    rows = clustered(5000, 8)
    np.save(tmp_path / "rows.npy", rows)
    tables = [torch.from_numpy(rows), StoredRows(tmp_path / "rows.npy")]
    indexes = []
    for place, each in enumerate(tables):
        (tmp_path / str(place)).mkdir()
        indexes.append(build_index(each, tmp_path / str(place), names=list(map(str, range(5000)))))
    content = [(index.folder / VECTORS).read_bytes() for index in indexes]
    assert len(set(content)) == 1
    assert torch.allclose(
        indexes[0].vectors(slice(10, 20)), torch.nn.functional.normalize(torch.from_numpy(rows[10:20]))
    )


def test_an_index_with_a_graph_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    rows = clustered(100)
    built(rows, tmp_path)
    (tmp_path / "graph.usearch").write_bytes(b"graph")
    card = read_sealed(tmp_path / CARD)
    files = {**card["files"], "graph.usearch": {"sha256": sha256_of(tmp_path / "graph.usearch")}}
    write_sealed(tmp_path / CARD, {**card, "method": "hnsw", "recall": 0.9, "files": files})
    assert opened(tmp_path).search(torch.from_numpy(rows[:1]), 1).positions_QK.tolist() == [[0]]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), "row 1 holds NaN"),
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(rows: np.ndarray, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=complaint):
        built(rows, tmp_path / "index")
    assert not (tmp_path / "index" / CARD).exists()


def test_as_many_hits_as_rows(tmp_path: Path) -> None:
    index = built(clustered(5), tmp_path)
    assert index.search(torch.ones(1, 16), 5).positions_QK.sort().values.tolist() == [[0, 1, 2, 3, 4]]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    built(clustered(5), tmp_path)
    content = bytearray((tmp_path / VECTORS).read_bytes())
    content[-1] ^= 1
    (tmp_path / VECTORS).write_bytes(content)
    with pytest.raises(RunError, match=r"vectors.npy is missing or damaged; make the index again with --rebuild"):
        open_index(tmp_path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    built(clustered(5), tmp_path)
    write_sealed(tmp_path / CARD, {**read_sealed(tmp_path / CARD), "format": 99})
    with pytest.raises(RunError, match="has format 99; this version reads 3"):
        open_index(tmp_path)
