"""Run folders that hold no more than a comparison reads: status, settings and an evaluation with known hits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterpoint.core.files import write_sealed
from hit_rows import FINGERPRINT, hit_values

REPRESENTATION = ("representation", "knn")


def write_evaluated(
    path: Path,
    rights: Mapping[tuple[str, str], Sequence[int]],
    *,
    seed: int = 0,
    method: str = "simclr",
    total: int = 100,
    fingerprint: str | None = FINGERPRINT,
) -> Path:
    """Write a run of a method.

    Args:
        path: of the folder.
        rights: queries that were right, by features and protocol.
        seed: of the run.
        method: a setting; runs of one method differ in the seed alone.
        total: number of queries.
        fingerprint: of the queries.
    """
    path.mkdir(parents=True)
    (path / "run.json").write_text(f'{{"format": 1, "status": "finished", "seed": {seed}}}', encoding="utf-8")
    (path / "resolved.yaml").write_text(f"method: {method}\nseed: {seed}\nout: {path.name}\n", encoding="utf-8")
    rows = [hit_values(features, protocol, right, total) for (features, protocol), right in rights.items()]
    write_evaluation(path / "evaluation.json", rows, total=total, fingerprint=fingerprint)
    return path


def write_evaluation(
    file: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    total: int = 100,
    fingerprint: str | None = FINGERPRINT,
    encoder: Mapping[str, Any] | None = None,
) -> Path:
    """Write an evaluation with these rows; ``encoder`` has the facts of one trained elsewhere."""
    split = {"source": "digits", "num_queries": total, "how": "20% of each class, held out of training"}
    facts = {} if encoder is None else {"encoder": dict(encoder)}
    write_sealed(
        file, {**facts, "split": {**split, "query_fingerprint": fingerprint}, "rows": [dict(row) for row in rows]}
    )
    return file
