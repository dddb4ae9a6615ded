"""Write a run's embeddings as a table: .npz, .csv, or .parquet (extra ``search``)."""

# N samples, D features

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from counterpoint.core.arrow_files import require_arrow, write_vectors
from counterpoint.core.errors import RunError, UsageError, unknown_name
from counterpoint.core.files import write_atomically
from counterpoint.core.rundir import Run
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import raw_chunks
from counterpoint.evaluation.trained_run import open_trained

Layer = Literal["representation", "embedding"]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run such a cell


@dataclass(frozen=True)
class Table:
    """Embeddings with the samples they belong to, in the source's order.

    Attributes:
        names: one per sample (file names relative to the folder, or positions).
        vectors: float32 (n, d).
        labels: class names, or None.
        layer: representation or embedding.
        path: where it was written.
    """

    names: tuple[str, ...]
    vectors: np.ndarray = field(repr=False)
    labels: tuple[str | None, ...] | None
    layer: Layer
    path: Path | None

    def __len__(self) -> int:
        return len(self.names)


def embed(
    run: Run | str | Path,
    data: Any = None,
    *,
    out: str | Path | None = None,
    layer: Layer = "representation",
    overwrite: bool = False,
    quiet: bool = False,
) -> Table:
    """Embed every sample.

    Args:
        run: the run or its folder; ``Run(path, encoder=module)`` if it was trained with your own module.
        data: samples (anything ``train`` takes); None takes the run's own.
        out: file to write, by its suffix .npz, .csv or .parquet; None writes nothing.
        layer: the representation (best for most uses) or the embedding that the loss compared.
        overwrite: replace ``out`` if it exists.
        quiet: show no progress.

    Raises:
        UsageError: unknown suffix or layer, or a missing extra.
        RunError: ``out`` exists, or its folder does not.
    """
    if layer not in ("representation", "embedding"):
        raise unknown_name("layer", layer, ["representation", "embedding"])
    path = None if out is None else _check_target(Path(out), overwrite)
    reporter = Reporter(quiet=quiet)
    trained = open_trained(run, data=data, reporter=reporter)
    source = trained.source
    with reporter.bar(f"embedding {len(source):,} samples", len(source)) as advance:
        chunks = []
        for samples in raw_chunks(source):
            chunks.append(trained.encoder.both(samples)[0 if layer == "representation" else 1].numpy())
            for _ in range(len(samples)):
                advance()
    labels = None
    if source.labels is not None:
        labels = tuple(source.class_names[number] if number >= 0 else None for number in source.labels.tolist())
    table = Table(source.sample_names, np.concatenate(chunks).astype(np.float32), labels, layer, path)
    if path is not None:
        write_atomically(path, lambda temporary: WRITERS[path.suffix](table, temporary))
        reporter.say(f"wrote {len(table):,} x {table.vectors.shape[1]} {layer}s to {path}")
    return table


def _check_target(path: Path, overwrite: bool) -> Path:
    """Refuse a file that cannot or must not be written."""
    if path.suffix not in WRITERS:
        raise UsageError(f"--out must end in {', '.join(WRITERS)}, got {str(path)!r}")
    if path.exists() and not overwrite:
        raise RunError(f"{path} exists; replace it with --overwrite, or choose another --out")
    if not path.parent.is_dir():
        raise RunError(f"the folder {path.parent} does not exist")
    if path.suffix == ".parquet":
        require_arrow(path.suffix)
    return path


def _write_npz(table: Table, path: Path) -> None:
    """Arrays names, vectors and (if known) labels."""
    arrays: dict[str, np.ndarray] = {"names": np.array(table.names), "vectors": table.vectors}
    if table.labels is not None:
        arrays["labels"] = np.array([label if label is not None else "" for label in table.labels])
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # pyright: ignore[reportArgumentType]


def _write_csv(table: Table, path: Path) -> None:
    """Columns name, label, v0 ... ; cells that a spreadsheet would take for a formula get a leading quote."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["name", "label", *(f"v{i}" for i in range(table.vectors.shape[1]))])
        for i, name in enumerate(table.names):
            label = table.labels[i] if table.labels is not None else ""
            writer.writerow([_as_text(name), _as_text(label or ""), *(f"{value:.9g}" for value in table.vectors[i])])


def _write_parquet(table: Table, path: Path) -> None:
    """Columns name, label and vector, a fixed-size list of float32."""
    labels = list(table.labels) if table.labels is not None else [None] * len(table)
    write_vectors(path, table.names, labels, table.vectors)


def _as_text(cell: str) -> str:
    return "'" + cell if cell.startswith(FORMULA_STARTS) else cell


WRITERS: Mapping[str, Callable[[Table, Path], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
