"""A table of vectors with names and labels: a file (.npz, .csv, .parquet), shards, or a source of samples."""

# N samples, D features

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.core.array_layout import to_samples
from counterpoint.core.arrow_files import TableFile, vector_writer
from counterpoint.core.errors import DataError, UsageError, first_line
from counterpoint.core.files import sha256_of
from counterpoint.core.schemas import FEATURES
from counterpoint.core.settings import PartSettings, SourceSettings
from counterpoint.core.table_columns import ColumnPlan
from counterpoint.core.user_files import as_path, is_shard_folder, open_regular
from counterpoint.data.formats.arrow_and_csv import is_columns, open_columns
from counterpoint.data.formats.labels import is_missing, labels_as_asked
from counterpoint.data.formats.npz_files import npz_keys, read_npy, read_npz
from counterpoint.data.source import Source, fingerprint, source_of
from counterpoint.data.sources import of_classes
from counterpoint.data.stores import MemoryStore
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.shard_files import MANIFEST, open_shards

# A spreadsheet runs a cell that has a sign, also in full width, at its start or behind what may end a cell elsewhere
# (a line end, a tab, a semicolon), blanks and quotes of our own before it or not. A quote in front makes it text.
_START, _SIGN = r"(?:^|(?<=[\r\n\t;,|]))", r"(?='*[^\S\r\n\t]*[=+\-@＝＋－＠\t\r])"
_RUNNABLE, _QUOTED = re.compile(_START + _SIGN), re.compile(_START + "'" + _SIGN)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Table:
    """Embeddings with the samples they belong to, in the source's order.

    Attributes:
        names: names of the samples (file names relative to the folder, or positions).
        vectors: embeddings, float32 (n, d).
        labels: class name of each sample, or None.
        layer: layer of the encoder, such as representation; None if a file does not say.
        path: file of the table; None if there is none.
        plan: plan by which the columns of a file became the vectors; None for other files.
    """

    names: tuple[str, ...]
    vectors: np.ndarray = field(repr=False)
    labels: tuple[str | None, ...] | None
    layer: str | None = None
    path: Path | None = None
    plan: ColumnPlan | None = None

    def __len__(self) -> int:
        return len(self.names)


def read_table(path: Path, *, only_finite: bool = True) -> Table:
    """Read a table that ``embed`` wrote, a file or a folder of shards, or the bare vectors of a ``.npy``.

    Args:
        path: a path for which ``is_table`` is true.
        only_finite: True refuses rows that hold NaN or infinity; False keeps the vectors as the file has them.

    Raises:
        DataError: the table is damaged, without vectors, or with rows that are not finite; the first is named.
        RunError: shards are missing or damaged; they are named.
    """
    # The checks below hold for every form of file.
    names, labels, vectors_ND = (_read_shards if is_shard_folder(path) else READERS[path.suffix.lower()])(path)
    if vectors_ND.ndim != 2 or vectors_ND.dtype.kind not in "fiub" or 0 in vectors_ND.shape:
        raise DataError(f"{path} must hold vectors (n, d), got {vectors_ND.dtype} of shape {vectors_ND.shape}")
    for kind, column in (("names", names), ("labels", labels)):
        if len(column) not in (0, len(vectors_ND)):
            raise DataError(f"{path} holds {len(column)} {kind} for {len(vectors_ND)} vectors")
    # .npz and .csv write an unknown label as empty text, Parquet as null.
    classes = tuple(None if is_missing(label) else str(label) for label in labels)
    sample_names = tuple(map(str, names)) or tuple(map(str, range(len(vectors_ND))))
    checked_ND = to_samples(vectors_ND, "vectors", name=str(path)).numpy() if only_finite else vectors_ND
    return Table(sample_names, checked_ND, classes if any(classes) else None, path=path)


def is_table(path: Path) -> bool:
    """Tell whether a path is a folder of shards, has the name of a file of vectors, or is one of columns."""
    return path.suffix.lower() in READERS or is_shard_folder(path) or is_columns(path)


def is_embedded(path: Path) -> bool:
    """Tell whether an ``.npz`` or ``.csv`` is a table that ``embed`` wrote, and no file of samples."""
    suffix = path.suffix.lower()
    return "vectors" in npz_keys(path) if suffix == ".npz" else suffix == ".csv" and not is_columns(path)


Columns = tuple[Sequence[Any], Sequence[Any], np.ndarray]  # names and labels, perhaps empty, and vectors


def _read_npz(path: Path) -> Columns:
    arrays = read_npz(path, ("names", "vectors", "labels"))
    if "vectors" not in arrays:
        raise DataError(f"{path} has no array named vectors, as `counterpoint embed` writes it")
    empty = np.empty(0, str)
    return arrays.get("names", empty).tolist(), arrays.get("labels", empty).tolist(), arrays["vectors"]


def _read_csv(path: Path) -> Columns:
    try:
        # Names of files are bytes, which need not be UTF-8.
        with io.TextIOWrapper(open_regular(path), "utf-8-sig", errors="surrogateescape", newline="") as stream:
            # [[]]: an empty file has an empty header, which is then refused.
            header, *rows = list(csv.reader(stream)) or [[]]
        if header[:2] != ["name", "label"] or len(header) < 3:
            raise DataError(f"{path} must have the columns name, label, v0 ..., as `counterpoint embed` writes them")
        if odd := next((number for number, row in enumerate(rows, start=2) if len(row) != len(header)), None):
            raise DataError(f"{path}: row {odd} must have {len(header)} cells, as the header has")
        vectors_ND = np.array([row[2:] for row in rows], dtype=np.float64)
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} is not a readable table: {first_line(error)}") from None
    return [from_cell(row[0]) for row in rows], [from_cell(row[1]) for row in rows], vectors_ND


def _read_parquet(path: Path) -> Columns:
    table = TableFile(path)
    if table.kinds.get("vector") != "vector":
        raise DataError(f"{path} has no column of vectors named vector, as `counterpoint embed` writes it")
    names, labels = ([] if column not in table.kinds else table.column(column) for column in ("name", "label"))
    try:
        parts = [table.values("vector", chunk) for chunk in range(table.num_chunks)]
        return names, labels, np.concatenate([part for part in parts if len(part)]) if parts else np.empty(0)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: its vectors cannot be read: {first_line(error)}") from None


def _read_shards(path: Path) -> Columns:
    folder = open_shards(path)
    blocks = list(folder.blocks())
    names = [name for block in blocks for name in block.names]
    labels = [label for block in blocks for label in block.labels] if folder.plan.has_labels else []
    return names, labels, np.concatenate([block.vectors_ND for block in blocks])


def _write_npz(table: Table, path: Path) -> None:
    arrays: dict[str, np.ndarray] = {"names": np.array(table.names), "vectors": table.vectors}
    if table.labels is not None:
        arrays["labels"] = np.array([label if label is not None else "" for label in table.labels])
    # A stream, since NumPy would add .npz to a path that ends otherwise, such as that of a temporary file.
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # pyright: ignore[reportArgumentType]


def _write_csv(table: Table, path: Path) -> None:
    """Write columns name, label, v0 ... ; text that a spreadsheet would take for a formula gets a quote in front."""
    # Names of files are bytes, which need not be UTF-8: they are written as they are.
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
        writer = csv.writer(stream)
        writer.writerow(["name", "label", *(f"v{i}" for i in range(table.vectors.shape[1]))])
        for i, name in enumerate(table.names):
            label = table.labels[i] if table.labels is not None else ""
            # Nine digits give every float32 back exactly.
            writer.writerow([as_cell(name), as_cell(label or ""), *(f"{value:.9g}" for value in table.vectors[i])])


def _write_parquet(table: Table, path: Path) -> None:
    labels = list(table.labels) if table.labels is not None else [None] * len(table)
    with vector_writer(path, table.vectors.shape[1]) as write:
        write(table.names, labels, table.vectors)


WRITERS: Mapping[str, Callable[[Table, Path], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
READERS: Mapping[str, Callable[[Path], Columns]] = {
    ".npy": lambda path: ((), (), read_npy(path)),
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def columns_table(path: Path, look: PartSettings, reporter: Reporter, plan: ColumnPlan | None = None) -> Table:
    """Read a file of columns as vectors, by the plan of another file if given, and say how they are encoded."""
    options = look.model_dump(include={"label_column", "drop_columns"}, exclude_none=True)
    source = open_columns(path, SourceSettings(**options), reporter.bar, plan=plan)
    reporter.say(f"{path}: {source.notes['source.columns']}")
    vectors_ND = source.store.fetch(range(len(source))).numpy()
    return Table(tuple(source.sample_names), vectors_ND, source.classes(), path=path, plan=source.table)


def features_source(
    features: Any, labels: Any, look: PartSettings, reporter: Reporter, plan: ColumnPlan | None = None
) -> Source:
    """Open features as samples with labels: those that are given count more than those of the file.

    A file of columns is taken by the ``plan`` of another one, if given.
    """
    if isinstance(features, str | Path):
        path = as_path(features)
        if not is_table(path):
            raise UsageError(f"{path} is neither a run folder nor a file of features ({', '.join(READERS)})")
        table = columns_table(path, look, reporter, plan) if is_columns(path) else read_table(path)
        rows, name = torch.from_numpy(table.vectors), path.name
        digest = sha256_of(path / MANIFEST if is_shard_folder(path) else path)
    else:
        table = features if isinstance(features, Table) else Table((), features, None)
        rows = to_samples(table.vectors, "vectors", name="features")
        name, digest = FEATURES, fingerprint([rows.numpy()], None)
    names = table.names or tuple(map(str, range(len(rows))))
    source_labels = labels_as_asked(table.labels if labels is None else labels, names, lambda: None)
    source_facts = {"fingerprint": digest[:16], "sample_names": names, "table": table.plan}
    source = source_of(name, MemoryStore(rows), (rows.shape[1],), source_labels, **source_facts)
    return source if look.classes is None else of_classes(source, look.classes)


def as_cell(text: str) -> str:
    """Put a quote in front of text that a spreadsheet would take for a formula; numbers stay.

    >>> as_cell("=1+1"), as_cell("-2.5"), as_cell("cat")
    ("'=1+1", '-2.5', 'cat')
    """
    return text if _NUMBER.fullmatch(text) else _RUNNABLE.sub("'", text)


def from_cell(cell: str) -> str:
    """Undo ``as_cell``: only quotes that it could have set are removed, so that 'tis stays."""
    return _QUOTED.sub("", cell)
