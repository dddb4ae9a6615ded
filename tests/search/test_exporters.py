"""What is exported is read back by the database itself, which finds the same ten nearest."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.errors import RunError, UsageError
from counterpoint.search.exporters.faiss_file import write_faiss
from counterpoint.search.exporters.lance_table import write_lancedb
from counterpoint.search.exporters.pgvector_files import index_statement, write_pgvector
from counterpoint.search.exporters.qdrant_points import write_qdrant
from counterpoint.search.index_export import _check_room
from counterpoint.search.vector_index import VectorIndex, build_index
from search.planted_rows import clustered
from search.postgres_server import running_server, why_no_server, why_no_vectors

ROWS, QUERIES = clustered(5000, 12), clustered(6, 12, seed=4)
# What a text form could break on: tabs, backslashes, quotes, line ends, other scripts, bytes that are no UTF-8, NUL.
ODD = ["a\tb", "c\\N", 'say "x"', "line\nend", "Grüße 猫", "caf\udce9.png", "nul\0.png", "=1+1", ""]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> VectorIndex:
    """An index with cells, so that stored order is not that of rows, in more than one batch."""
    names = [*ODD, *(f"{row}.png" for row in range(len(ODD), len(ROWS)))]
    labels = [None if row % 7 == 0 else f"class {row % 3}" for row in range(len(ROWS))]
    folder = tmp_path_factory.mktemp("index")
    return build_index(ROWS, folder, names=names, labels=labels, method="cells")


@pytest.fixture(scope="module")
def expected(index: VectorIndex) -> list[list[int]]:
    """The ten nearest of each query."""
    return index.search(torch.from_numpy(QUERIES), 10, exact=True).positions_QK.tolist()


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_faiss_reads_the_file_and_finds_the_same(index: VectorIndex, expected: list[list[int]], tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    write_faiss(index, tmp_path)
    read = faiss.read_index(str(tmp_path / "index.faiss"))
    assert (read.ntotal, read.d, read.metric_type) == (5000, 12, faiss.METRIC_INNER_PRODUCT)
    assert np.array_equal(read.reconstruct_n(0, 5000), index.vectors().numpy())
    assert read.search(unit(QUERIES), 10)[1].tolist() == expected
    faiss.write_index(read, str(tmp_path / "again.faiss"))
    assert (tmp_path / "again.faiss").read_bytes() == (tmp_path / "index.faiss").read_bytes()
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["id", "name", "label"]
    assert rows[1] == ["0", "a\tb", ""]
    assert rows[6][1] == "caf\\udce9.png"
    assert [int(row[0]) for row in rows[1:]] == list(range(5000))


def test_qdrant_loads_the_points_and_finds_the_same(
    index: VectorIndex, expected: list[list[int]], tmp_path: Path
) -> None:
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    write_qdrant(index, tmp_path)
    lines = (tmp_path / "points.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5000
    assert json.loads(lines[3])["payload"] == {"name": "line\nend", "label": "class 0"}
    # A tenth of the points: the client's own storage takes a while for each.
    (tmp_path / "points.jsonl").write_text("\n".join(lines[:500]) + "\n", encoding="utf-8")
    words = [sys.executable, str(tmp_path / "load_points.py"), str(tmp_path / "storage")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["500", "points"], done.stderr
    from qdrant_client import QdrantClient  # deferred: may not be installed

    client = QdrantClient(path=str(tmp_path / "storage"))
    try:
        first = index.vectors(slice(0, 500)).double().numpy() @ unit(QUERIES).T
        for column, query in enumerate(QUERIES):
            points = client.query_points("embeddings", query=query.tolist(), limit=10, with_payload=True).points
            assert [point.id for point in points] == np.argsort(-first[:, column], kind="stable")[:10].tolist()
            assert all((point.payload or {})["label"] in (None, "class 0", "class 1", "class 2") for point in points)
    finally:
        client.close()


def test_lancedb_opens_the_table_and_finds_the_same(
    index: VectorIndex, expected: list[list[int]], tmp_path: Path
) -> None:
    lancedb = pytest.importorskip("lancedb", reason="lancedb is not installed")
    write_lancedb(index, tmp_path)
    table = lancedb.connect(str(tmp_path)).open_table("embeddings")
    assert table.count_rows() == 5000
    assert table.schema.field("vector").type.list_size == 12
    for query, rows in zip(QUERIES, expected, strict=True):
        found = table.search(query).distance_type("cosine").limit(10).to_list()
        assert [row["id"] for row in found] == rows
    assert table.search(QUERIES[0]).limit(1).to_list()[0].keys() >= {"id", "name", "label", "vector"}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A connection to a server of our own."""
    psycopg: Any = pytest.importorskip("psycopg", reason="psycopg is not installed")
    if why := why_no_server():
        pytest.skip(why)
    with running_server() as socket, psycopg.connect(host=str(socket), user="postgres", autocommit=True) as found:
        yield found


def copied(server: Any, folder: Path) -> list[tuple[str, str | None]]:
    """Load the rows as a table of that schema; names and labels of the first ones."""
    with server.cursor() as cursor, cursor.copy("COPY embeddings FROM STDIN") as copy:
        copy.write((folder / "rows.tsv").read_bytes())
    return server.execute("SELECT name, label FROM embeddings WHERE id < 9 ORDER BY id").fetchall()


def check_names(stored: list[tuple[str, str | None]]) -> None:
    assert [name for name, _ in stored] == [*ODD[:5], "caf\\udce9.png", "nul\\x00.png", "=1+1", ""]
    assert [label for _, label in stored[:2]] == [None, "class 1"]


def test_postgres_copies_the_rows(server: Any, index: VectorIndex, expected: list[list[int]], tmp_path: Path) -> None:
    """Without pgvector: vectors come as text, and products are computed by the server in plain SQL."""
    write_pgvector(index, tmp_path)
    server.execute("CREATE TABLE embeddings (id bigint PRIMARY KEY, name text NOT NULL, label text, embedding text)")
    check_names(copied(server, tmp_path))
    text = server.execute("SELECT embedding FROM embeddings WHERE id = 17").fetchone()[0]
    assert np.array_equal(np.array(json.loads(text), np.float32), index.vectors(slice(17, 18))[0].numpy())
    product = (
        "SELECT id FROM embeddings, LATERAL (SELECT sum(a * b) AS cosine FROM unnest(translate(embedding, '[]', '{}')"
        "::float8[], %s::float8[]) AS pairs(a, b)) AS found ORDER BY cosine DESC LIMIT 10"
    )
    for query, rows in zip(unit(QUERIES), expected, strict=True):
        assert [row for (row,) in server.execute(product, (query.astype(float).tolist(),)).fetchall()] == rows
    server.execute("DROP TABLE embeddings")


@pytest.mark.skipif(why_no_vectors() != "", reason=why_no_vectors() or "there is a server")
def test_pgvector_takes_schema_rows_and_index_and_finds_the_same(
    server: Any, index: VectorIndex, expected: list[list[int]], tmp_path: Path
) -> None:
    write_pgvector(index, tmp_path)
    server.execute((tmp_path / "schema.sql").read_text(encoding="utf-8"))
    check_names(copied(server, tmp_path))
    server.execute((tmp_path / "index.sql").read_text(encoding="utf-8"))
    server.execute("SET enable_indexscan = off")  # the exact answer: an index is approximate
    for query, rows in zip(QUERIES, expected, strict=True):
        statement = "SELECT id FROM embeddings ORDER BY embedding <=> %s::vector LIMIT 10"
        assert [row for (row,) in server.execute(statement, (str(query.tolist()),)).fetchall()] == rows
    text = server.execute("SELECT embedding::text FROM embeddings WHERE id = 17").fetchone()[0]
    assert np.array_equal(np.array(json.loads(text), np.float32), index.vectors(slice(17, 18))[0].numpy())
    server.execute("DROP TABLE embeddings")


@pytest.mark.parametrize(
    ("width", "expected_words"), [(2000, "vector_cosine_ops"), (2001, "halfvec(2001)"), (4001, "-- no index")]
)
def test_the_index_of_pgvector_is_one_that_takes_so_many_dimensions(width: int, expected_words: str) -> None:
    assert expected_words in index_statement(width)


def test_more_dimensions_than_a_column_takes_are_refused(tmp_path: Path) -> None:
    wide = build_index(np.eye(2, 16_001, dtype=np.float32), tmp_path / "index")
    with pytest.raises(UsageError, match="pgvector takes at most 16,000 dimensions, got 16,001; shorten with --dims"):
        write_pgvector(wide, tmp_path)


def test_without_lancedb_one_is_told_how_to_get_it(
    index: VectorIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(UsageError, match="needs lancedb; install it with: pip install lancedb"):
        write_lancedb(index, tmp_path)


def test_a_folder_that_holds_something_else_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for overwrite, complaint in ((False, "holds files"), (True, "is no earlier export")):
        with pytest.raises(RunError, match=complaint):
            _check_room(tmp_path, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
