"""The snippets of docs/search.md put a table into a database, which finds the same ten nearest as an exact search."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.arrow_files import vector_writer
from counterpoint.evaluation.knn import nearest
from document_blocks import ROOT, blocks_of, run_python
from search.planted_rows import clustered

BLOCKS = blocks_of(ROOT / "docs" / "search.md")
LIBRARIES = {block.needs: block for block in BLOCKS if block.needs}


def test_there_are_snippets_for_four_libraries() -> None:
    assert set(LIBRARIES) == {"faiss", "usearch", "lancedb", "qdrant_client"}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.sampled(2)
def test_a_database_finds_the_same_ten_nearest(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    rows, names = clustered(500, 12), [f"Gr\u00fc\u00dfe {row}.png" for row in range(500)]
    np.savez("table.npz", names=np.array(names), vectors=rows)
    pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
    Path("shards").mkdir()
    for first in (0, 300):  # as `embed --shards 300` writes them
        part = slice(first, first + 300)
        with vector_writer(Path("shards") / f"shard-{first // 300:06d}.parquet", rows.shape[1], first) as write:
            write(names[part], [None] * len(names[part]), rows[part])
    shared: dict[str, Any] = {"__name__": "a_page"}
    run_python(next(block for block in BLOCKS if "table.npz" in block.text and block.language == "python"), shared)
    run_python(LIBRARIES[library], shared)
    expected = nearest(torch.from_numpy(rows), torch.from_numpy(rows[3:4]), 10)
    assert shared["found"] == expected.positions_QK[0].tolist()
