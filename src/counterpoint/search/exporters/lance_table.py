"""A table of LanceDB: the one module that imports lancedb."""

from pathlib import Path

from counterpoint.core.arrow_files import vector_batches
from counterpoint.core.errors import UsageError
from counterpoint.search.exporters.export_rows import batches
from counterpoint.search.vector_index import VectorIndex

TABLE = "embeddings"
FILES = (f"{TABLE}.lance",)


def write_lancedb(index: VectorIndex, folder: Path) -> list[str]:
    """Write a table with the columns id, name, label and vector.

    Raises:
        UsageError: lancedb or pyarrow is missing.
    """
    try:
        import lancedb  # deferred: no part of Counterpoint, and may be absent
    except ImportError:
        raise UsageError("--export lancedb needs lancedb; install it with: pip install lancedb") from None
    rows = ((each.ids, each.names, each.labels, each.vectors_BD) for each in batches(index))
    # A reader of batches: the table is never in memory as a whole.
    lancedb.connect(str(folder)).create_table(TABLE, data=vector_batches(rows, index.card.width))
    return [f"open it with: lancedb.connect({str(folder)!r}).open_table({TABLE!r})"]
