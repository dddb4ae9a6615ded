"""Nearest rows of searched samples: the cosines of a loop in its order, of tables in memory and on disk."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.core.stored_rows import Rows, StoredRows
from counterpoint.engine.progress import Reporter
from counterpoint.search.searched_samples import SearchedSamples
from search.planted_rows import by_loop, clustered


def searched(rows_ND: Rows) -> SearchedSamples:
    unasked: Any = None  # encoder and samples, which nearest rows do not need
    return SearchedSamples("run", unasked, "embedding", None, rows_ND, Reporter(quiet=True))


def test_hits_are_those_of_a_loop() -> None:
    rows, queries = clustered(600), clustered(5, seed=1)
    found = searched(torch.from_numpy(rows)).search(torch.from_numpy(queries), 10)
    assert found.positions_QK.tolist() == [by_loop(rows, query, 10) for query in queries]


def test_copies_come_in_the_order_of_their_rows() -> None:
    rows = clustered(300)
    copies = [3, 50, 51, 120, 299]
    rows[copies] = rows[3]
    found = searched(torch.from_numpy(rows)).search(torch.from_numpy(rows[3:4]), 5)
    assert found.positions_QK.tolist() == [copies]
    assert len(found.similarity_QK.unique()) == 1


def test_a_table_on_disk_gives_the_hits_of_the_table_in_memory(tmp_path: Path) -> None:
    rows = clustered(5000, 8)
    np.save(tmp_path / "rows.npy", rows)
    own, stored = searched(torch.from_numpy(rows)), searched(StoredRows(tmp_path / "rows.npy"))
    hits = [each.search(torch.from_numpy(rows[:50]), 5) for each in (own, stored)]
    assert torch.equal(hits[0].positions_QK, hits[1].positions_QK)
    assert torch.equal(hits[0].similarity_QK, hits[1].similarity_QK)
    assert torch.allclose(stored.vectors(slice(10, 20)), torch.nn.functional.normalize(torch.from_numpy(rows[10:20])))


def test_as_many_hits_as_rows() -> None:
    samples = searched(torch.from_numpy(clustered(5)))
    assert samples.search(torch.ones(1, 16), 5).positions_QK.sort().values.tolist() == [[0, 1, 2, 3, 4]]
