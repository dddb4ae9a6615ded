"""Merge a folder of shards into one file, row group by row group: the memory it takes is that of one group."""

# N rows, D features

import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.arrow_files import GROUP_ROWS, vector_writer
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import temporary_file, write_atomically
from counterpoint.core.output_paths import check_new_file
from counterpoint.core.stored_rows import StoredRows, new_array, npy_header, row_slices
from counterpoint.core.user_files import is_shard_folder
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.shard_files import ShardBlock, ShardFolder, TablePlan, check_same, open_shards


def merge_shards(folder: str | Path, out: str | Path, *, overwrite: bool = False, quiet: bool = False) -> Path:
    """Write all rows of a folder of shards to one file, after each shard was compared with its hash.

    Args:
        folder: that ``embed_shards`` filled.
        out: .parquet, the bytes that ``embed`` writes in one process; .npz, the same arrays; or .npy, vectors alone,
            which an index reads without holding them.
        overwrite: replace ``out`` if it exists.
        quiet: show no progress.

    Returns:
        ``out``.

    Raises:
        UsageError: another suffix.
        RunError: no such folder; shards that are missing, damaged or of another table, or rows that are not there once
            each (all are named); ``out`` exists or cannot be written, and is then as it was.
    """
    path = Path(out)
    check_new_file(path, WRITERS, overwrite=overwrite)
    if not is_shard_folder(folder):
        raise RunError(f"{folder} is no folder of shards: it has no plan.json; embed with --shards first")
    opened, reporter = open_shards(Path(folder)), Reporter(quiet=quiet)
    opened.check()
    plan = opened.plan
    with reporter.bar(f"merging {plan.num_shards} shards of {plan.num_rows:,} rows", plan.num_rows) as advance:
        write_atomically(path, lambda temporary: WRITERS[path.suffix](opened, temporary))
        advance()
    reporter.say(f"wrote {plan.num_rows:,} rows to {path}")
    return path


def shards_of(folder: Path, asked: TablePlan) -> ShardFolder:
    """A folder of shards that holds what is asked for.

    Args:
        folder: of shards.
        asked: what they must be of; shards may be of any size.

    Raises:
        UsageError: no folder of shards.
        RunError: they are of another encoder, other data or another layer; named.
    """
    if not is_shard_folder(folder):
        raise UsageError(f"{folder} is no folder of shards, as counterpoint embed --shards writes it")
    known = open_shards(folder)
    check_same(known.plan, asked.model_copy(update={"shard_rows": known.plan.shard_rows}), folder)
    return known


@contextmanager
def rows_of_shards(folder: Path, asked: TablePlan) -> Iterator[StoredRows]:
    """The vectors of a folder of shards, as rows on disk that no memory holds; gone at the end.

    Raises:
        UsageError, RunError: as ``shards_of``; shards are missing or damaged; named.
    """
    known = shards_of(folder, asked)
    with temporary_file(folder / "rows.npy") as path:
        _write_npy(known, path)
        yield StoredRows(path)


def regrouped(blocks: Iterator[ShardBlock], size: int = GROUP_ROWS) -> Iterator[ShardBlock]:
    """The same rows in blocks of one size, the last one perhaps shorter, wherever shards begin.

    >>> block = ShardBlock(["a", "b", "c"], [None] * 3, np.zeros((3, 2)))
    >>> [len(each.names) for each in regrouped(iter([block, block]), size=4)]
    [4, 2]
    """
    held: list[ShardBlock] = []
    for block in blocks:
        held.append(block)
        if sum(len(each.names) for each in held) >= size:
            *full, held_back = _slices(_joined(held), size)
            yield from full
            held = [held_back]
    if held:
        yield _joined(held)


def _slices(block: ShardBlock, size: int) -> Iterator[ShardBlock]:
    """A block in blocks of at most so many rows."""
    for rows in row_slices(len(block.names), size):
        yield ShardBlock(block.names[rows], block.labels[rows], block.vectors_ND[rows])


def _joined(blocks: list[ShardBlock]) -> ShardBlock:
    """Blocks as one."""
    return ShardBlock(
        [name for block in blocks for name in block.names],
        [label for block in blocks for label in block.labels],
        np.concatenate([block.vectors_ND for block in blocks]),
    )


def _write_parquet(folder: ShardFolder, path: Path) -> None:
    """Row groups of the size that ``embed`` writes."""
    with vector_writer(path, folder.width()) as write:
        for block in regrouped(folder.blocks()):
            write(block.names, block.labels, block.vectors_ND)


def _write_npy(folder: ShardFolder, path: Path) -> None:
    """Vectors alone."""
    path.unlink(missing_ok=True)  # the empty file that holds the place of a temporary one
    with new_array(path, (folder.plan.num_rows, folder.width()), np.float32) as write:
        first = 0
        for block in folder.blocks():
            write(first, block.vectors_ND)
            first += len(block.names)


def _write_npz(folder: ShardFolder, path: Path) -> None:
    """Arrays names, vectors and (if known) labels, each of which is one pass over the shards."""
    columns: dict[str, Callable[[ShardBlock], np.ndarray]] = {
        "names": lambda block: np.array(block.names),
        "vectors": lambda block: block.vectors_ND,
    }
    if folder.plan.has_labels:  # as ``embed`` writes them: an unknown one is empty
        columns["labels"] = lambda block: np.array([label or "" for label in block.labels])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, column in columns.items():
            _add_array(archive, name, folder, column)


def _add_array(
    archive: zipfile.ZipFile, name: str, folder: ShardFolder, column: Callable[[ShardBlock], np.ndarray]
) -> None:
    """One array of an archive."""
    dtype, shape = _layout(folder, column)
    # ZipInfo has a fixed date: the same rows are the same bytes.
    member = zipfile.ZipInfo(f"{name}.npy")
    member.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(member, "w", force_zip64=True) as stream:
        stream.write(npy_header(shape, dtype))
        for block in folder.blocks():
            stream.write(np.ascontiguousarray(column(block), dtype).data)


def _layout(folder: ShardFolder, column: Callable[[ShardBlock], np.ndarray]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of a column; text is as wide as its longest."""
    dtypes, width = set[np.dtype[Any]](), ()
    for block in folder.blocks():
        dtypes.add((values := column(block)).dtype)
        width = values.shape[1:]
    return max(dtypes, key=lambda dtype: dtype.itemsize), (folder.plan.num_rows, *width)


WRITERS: Mapping[str, Callable[[ShardFolder, Path], None]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".npy": _write_npy,
}
