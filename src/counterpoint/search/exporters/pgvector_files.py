"""A table for PostgreSQL with pgvector: its schema, its rows as COPY reads them, and an index of the kind that fits."""

from pathlib import Path

from counterpoint.core.errors import UsageError
from counterpoint.search.exporters.export_rows import batches
from counterpoint.search.vector_index import VectorIndex

MOST_DIMS, MOST_INDEXED, MOST_HALF = 16_000, 2_000, 4_000  # of a column, of its index, of an index of half precision
SCHEMA, ROWS, INDEX, LOAD = "schema.sql", "rows.tsv", "index.sql", "load.sql"
FILES = (SCHEMA, ROWS, INDEX, LOAD)
# What the text form of COPY gives a meaning.
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def write_pgvector(index: VectorIndex, folder: Path) -> list[str]:
    """Write schema, rows and index.

    Raises:
        UsageError: more dimensions than a column takes.
    """
    width = index.card.width
    if width > MOST_DIMS:
        raise UsageError(f"pgvector takes at most {MOST_DIMS:,} dimensions, got {width:,}; shorten with --dims")
    table = f"id bigint PRIMARY KEY, name text NOT NULL, label text, embedding vector({width}) NOT NULL"
    (folder / SCHEMA).write_text(
        f"CREATE EXTENSION IF NOT EXISTS vector;\nCREATE TABLE embeddings ({table});\n", encoding="utf-8"
    )
    with (folder / ROWS).open("w", encoding="utf-8", newline="\n") as stream:
        for batch in batches(index):
            for row, name, label, vector_D in zip(batch.ids, batch.names, batch.labels, batch.vectors_BD, strict=True):
                # Nine digits give every float32 back exactly.
                vector = ",".join(f"{value:.9g}" for value in vector_D)
                cells = (str(row), name.translate(ESCAPES), "\\N" if label is None else label.translate(ESCAPES))
                stream.write("\t".join([*cells, f"[{vector}]"]) + "\n")
    (folder / INDEX).write_text(index_statement(width), encoding="utf-8")
    (folder / LOAD).write_text(
        f"\\i {SCHEMA}\n\\copy embeddings FROM '{ROWS}'\n\\i {INDEX}\nANALYZE embeddings;\n", encoding="utf-8"
    )
    lines = [f"load it with: cd {folder} && psql DATABASE -f {LOAD}"]
    if width > MOST_INDEXED:
        kind = "half precision" if width <= MOST_HALF else "no index at all: every search reads the whole table"
        lines.append(
            f"an index of pgvector takes {MOST_INDEXED:,} dimensions, {MOST_HALF:,} in half precision; this table of "
            f"{width:,} gets {kind} (--dims shortens)"
        )
    return lines


def index_statement(width: int) -> str:
    """The index for so many dimensions.

    >>> print(index_statement(128), index_statement(3000), index_statement(5000), sep="")
    CREATE INDEX ON embeddings USING hnsw (embedding vector_cosine_ops);
    CREATE INDEX ON embeddings USING hnsw ((embedding::halfvec(3000)) halfvec_cosine_ops);
    -- no index: pgvector takes at most 4000 dimensions, these are 5000
    """
    if width <= MOST_INDEXED:
        return "CREATE INDEX ON embeddings USING hnsw (embedding vector_cosine_ops);\n"
    if width <= MOST_HALF:
        return f"CREATE INDEX ON embeddings USING hnsw ((embedding::halfvec({width})) halfvec_cosine_ops);\n"
    return f"-- no index: pgvector takes at most {MOST_HALF} dimensions, these are {width}\n"
