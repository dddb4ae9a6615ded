"""A flat index of inner products in the file format of faiss, written without it, and the names of its rows."""

import struct
from pathlib import Path

from counterpoint.core.written_tables import csv_table
from counterpoint.search.exporters.export_rows import batches
from counterpoint.search.vector_index import VectorIndex

INDEX, ROWS = "index.faiss", "rows.csv"
FILES = (INDEX, ROWS)
INNER_PRODUCT = 0  # of faiss's metrics
UNUSED = 1 << 20  # two numbers of the header that faiss writes and does not read


def write_faiss(index: VectorIndex, folder: Path) -> list[str]:
    """Write ``index.faiss`` (IndexFlatIP over rows at unit length: cosines) and ``rows.csv``."""
    num_rows, width = len(index), index.card.width
    # As write_index_header and write_InvertedLists of faiss 1.7 to 1.15 have it: dimensions, rows, two unused numbers,
    # is_trained, metric; then the number of floats, and the floats.
    header = b"IxFI" + struct.pack("<iqqq?i", width, num_rows, UNUSED, UNUSED, True, INNER_PRODUCT)
    with (folder / INDEX).open("wb") as stream, (folder / ROWS).open("w", encoding="utf-8", newline="") as names:
        stream.write(header + struct.pack("<Q", num_rows * width))
        names.write("id,name,label\n")
        for batch in batches(index):
            stream.write(batch.vectors_BD.astype("<f4").tobytes())
            table = csv_table(["id"], zip(batch.ids, batch.names, batch.labels, strict=True))
            names.write(table.partition("\n")[2])
    return [f"read it with: faiss.read_index({str(folder / INDEX)!r}); queries must be at unit length"]
