"""Indexes give the cosines of a loop in its order, read back what was written, and refuse damage."""

from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.core.stored_rows import StoredRows
from counterpoint.search.vector_index import CARD, VECTORS, VectorIndex, build_index, open_index
from search.planted_rows import by_loop, clustered


def built(rows: np.ndarray, folder: Path) -> VectorIndex:
    folder.mkdir(exist_ok=True)
    return build_index(torch.from_numpy(rows), folder, names=list(map(str, range(len(rows)))))


def opened(folder: Path) -> VectorIndex:
    found = open_index(folder)
    assert found is not None
    return found


def test_hits_are_those_of_a_loop(tmp_path: Path) -> None:
    rows, queries = clustered(600), clustered(5, seed=1)
    found = built(rows, tmp_path / "index").search(torch.from_numpy(queries), 10)
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


@pytest.mark.parametrize("k", [0, 6])
def test_k_beyond_the_collection_is_refused(k: int, tmp_path: Path) -> None:
    index = built(clustered(5), tmp_path)
    with pytest.raises(UsageError, match=f"k must be between 1 and 5, .*got {k}"):
        index.search(torch.ones(1, 16), k)
    assert index.search(torch.ones(1, 16), 5).positions_QK.sort().values.tolist() == [[0, 1, 2, 3, 4]]


def test_queries_of_another_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"shape \(n, 16\), got \(1, 3\)"):
        built(clustered(5), tmp_path).search(torch.ones(1, 3), 1)


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
