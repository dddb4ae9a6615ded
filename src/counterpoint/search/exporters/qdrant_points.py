"""Points for Qdrant as JSON lines, and a program of a few lines that loads them."""

import json
from pathlib import Path

from counterpoint.core.errors import UsageError
from counterpoint.search.exporters.export_rows import batches
from counterpoint.search.vector_index import VectorIndex

MOST_DIMS = 65_536  # of a dense vector
POINTS, LOADER = "points.jsonl", "load_points.py"
FILES = (POINTS, LOADER)
PROGRAM = '''"""Load points.jsonl into Qdrant: python load_points.py [ADDRESS or FOLDER]; needs qdrant-client."""

import json
import sys
from itertools import islice
from pathlib import Path

from qdrant_client import QdrantClient, models

place = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:6333"
client = QdrantClient(url=place) if place.startswith("http") else QdrantClient(path=place)
size = {width}
vectors = models.VectorParams(size=size, distance=models.Distance.COSINE)
client.create_collection("embeddings", vectors_config=vectors)
with Path(__file__).with_name("points.jsonl").open(encoding="utf-8") as lines:
    while batch := [json.loads(line) for line in islice(lines, 256)]:
        client.upsert("embeddings", [models.PointStruct(**point) for point in batch])
print(client.count("embeddings").count, "points")
client.close()
'''


def write_qdrant(index: VectorIndex, folder: Path) -> list[str]:
    """Write points with id, vector, and name and label as payload.

    Raises:
        UsageError: more dimensions than Qdrant takes.
    """
    if index.card.width > MOST_DIMS:
        raise UsageError(
            f"Qdrant takes at most {MOST_DIMS:,} dimensions, got {index.card.width:,}; shorten with --dims"
        )
    with (folder / POINTS).open("w", encoding="utf-8") as stream:
        for batch in batches(index):
            for row, name, label, vector_D in zip(batch.ids, batch.names, batch.labels, batch.vectors_BD, strict=True):
                payload = {"name": name, "label": label}
                point = {"id": row, "vector": [float(f"{value:.9g}") for value in vector_D], "payload": payload}
                stream.write(json.dumps(point, ensure_ascii=False) + "\n")
    (folder / LOADER).write_text(PROGRAM.replace("{width}", str(index.card.width)), encoding="utf-8")
    return [f"load them with: python {folder / LOADER} http://localhost:6333"]
