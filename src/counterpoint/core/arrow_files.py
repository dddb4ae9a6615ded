"""Arrow and Parquet tables, on disk or at an address, read by row (extra ``search``)."""

# D features

import itertools
import json
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from counterpoint.core.errors import CounterpointError, DataError, StoreError, first_line
from counterpoint.core.user_files import Address, open_regular, require_arrow, shown_name

ColumnKind = Literal["image", "bytes", "vector", "integer", "text", "other"]
CHUNKS_KEPT = 4  # of each column
GROUP_ROWS = 16_384  # of a row group that is written: what a reader must hold
PARQUET_SUFFIX = ".parquet"


Write = Callable[[Sequence[str], Sequence[str | None], np.ndarray], None]  # names, labels and vectors of some rows


@contextmanager
def vector_writer(path: Path, width: int, first_row: int | None = None) -> Iterator[Write]:
    """Write a Parquet table with the columns name, label and vector, a fixed-size list.

    Each call writes its rows in row groups of ``GROUP_ROWS``; the same rows in the same groups are the same bytes.

    Args:
        path: file to write; an earlier one is replaced.
        width: number of columns of the vectors, which are float32.
        first_row: number of the first row in the whole table, if this is a part; a column named row has the numbers.

    Raises:
        OSError: it cannot be written.
    """
    arrow = require_arrow(PARQUET_SUFFIX)
    fields = {"name": arrow.string(), "label": arrow.string(), "vector": arrow.list_(arrow.float32(), width)}
    numbered = {} if first_row is None else {"row": arrow.int64()}
    schema, written = arrow.schema(list({**numbered, **fields}.items())), 0

    def write(names: Sequence[str], labels: Sequence[str | None], vectors_ND: np.ndarray) -> None:
        nonlocal written
        flat = arrow.array(np.ascontiguousarray(vectors_ND, np.float32).ravel())
        columns: dict[str, Any] = {
            "name": arrow.array(list(map(shown_name, names)), arrow.string()),
            "label": arrow.array(labels, arrow.string()),
            "vector": arrow.FixedSizeListArray.from_arrays(flat, vectors_ND.shape[1]),
        }
        if first_row is not None:
            columns["row"] = arrow.array(np.arange(first_row + written, first_row + written + len(names)))
        written += len(names)
        group = arrow.table([columns[field.name] for field in schema], schema=schema)
        writer.write_table(group, row_group_size=GROUP_ROWS)

    # Numbers that hardly repeat: a dictionary of them costs time and spares nothing.
    with path.open("wb") as stream, arrow.parquet.ParquetWriter(stream, schema, use_dictionary=["label"]) as writer:
        yield write


def write_groups(path: Path, columns: Mapping[str, str], groups: Iterable[Mapping[str, Sequence[Any]]]) -> None:
    """Write a Parquet table, a row group at a time.

    Args:
        path: file to write; an earlier one is replaced.
        columns: names, and types as Arrow calls them.
        groups: the values of each column in each row group.

    Raises:
        OSError: it cannot be written.
    """
    arrow = require_arrow(PARQUET_SUFFIX)
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in columns.items()])
    with path.open("wb") as stream, arrow.parquet.ParquetWriter(stream, schema) as writer:
        for group in groups:
            writer.write_table(arrow.table(dict(group), schema=schema))


def write_columns(path: Path, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Write a Parquet table of one row group.

    Args:
        path: file to write; an earlier one is replaced.
        columns: texts, bytes or numbers of each row; rows of an array (n, d) are lists of a fixed size.

    Raises:
        OSError: it cannot be written.
    """
    arrow = require_arrow(PARQUET_SUFFIX)

    def column(values: Sequence[Any] | np.ndarray) -> Any:
        if not isinstance(values, np.ndarray) or values.ndim == 1:
            return arrow.array(values)
        return arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), values.shape[1])

    with path.open("wb") as stream:
        arrow.parquet.write_table(arrow.table({name: column(values) for name, values in columns.items()}), stream)


class TableFile:
    """One table, memory-mapped if it is on disk; rows are read chunk by chunk (record batch or row group).

    Args:
        path: path of a .parquet file, of an Arrow file or stream of any other suffix, or of a folder of shards.
        shards: its files in order, all .parquet and of the same columns.

    Attributes:
        kinds: kind of each column, in order; an image is a struct of bytes and path.
        class_names: names of the classes of integer columns, if Hugging Face's metadata has them.
        num_chunks: number of its row groups or record batches.
        chunk_bytes: bytes that must be unpacked to reach one row; 0 if rows are reached directly.

    Raises:
        UsageError: pyarrow is missing.
        DataError: the file is not such a table.
    """

    def __init__(self, path: Path, shards: Sequence[Path] = ()) -> None:
        self.path, self._shards = path, tuple(shards)
        self._cache: OrderedDict[tuple[int, str], Any] = OrderedDict()
        self._lock = threading.Lock()
        arrow = require_arrow(path.suffix)
        self._errors = (OSError, ValueError, KeyError, MemoryError, arrow.ArrowException)
        try:
            chunks_of = _parquet_chunks if shards or path.suffix == PARQUET_SUFFIX else _ipc_chunks
            self._chunks = _joined([chunks_of(arrow, shard) for shard in shards or (path,)])
            num_rows, num_bytes = sum(self._chunks.lengths), self._chunks.num_bytes
            # Each row gets a name, before any of them is read.
            if min(self._chunks.lengths, default=0) < 0 or num_rows > num_bytes:
                raise ValueError(f"it claims {num_rows:,} rows in {num_bytes:,} bytes")
            columns, metadata = self._chunks.schema, self._chunks.schema.metadata or {}
            self.kinds: dict[str, ColumnKind] = {field.name: _kind(arrow.types, field.type) for field in columns}
            self.class_names = {name: names for name, names in _class_names(metadata).items() if name in self.kinds}
        except self._errors as error:
            raise DataError(f"{path} is not a readable table: {first_line(error)}") from None
        self.num_chunks, self.chunk_bytes = len(self._chunks.lengths), self._chunks.unpacked_bytes
        # Rows of chunk c are ends[c] to ends[c + 1] - 1.
        self._ends = np.cumsum([0, *self._chunks.lengths])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __reduce__(self) -> tuple[type["TableFile"], tuple[Path, tuple[Path, ...]]]:
        """Each process opens the file itself."""
        return TableFile, (self.path, self._shards)  # neither a mapping nor a lock can be pickled

    def paths(self) -> Iterator[Path]:
        """The file of each row."""
        for path, num_rows in zip(self._chunks.paths, self._chunks.lengths, strict=True):
            yield from itertools.repeat(path, num_rows)

    def column(self, name: str) -> list[Any]:
        """All values of a column as Python objects; raises as ``each``."""
        return list(self.each(name))

    def each(self, name: str) -> Iterator[Any]:
        """The values of a column, of which a chunk is in memory.

        Raises:
            DataError: the column is damaged.
        """
        try:
            for chunk in range(self.num_chunks):
                yield from self.texts(name, chunk)
        except (ValueError, MemoryError) as error:
            raise DataError(f"{self.path}: column {name!r} cannot be read: {first_line(error)}") from None

    def values(self, name: str, chunk: int) -> np.ndarray:
        """A column of numbers (n,), or of vectors (n, d), in a chunk; quick if these have a fixed width.

        Raises:
            ValueError: it is damaged, or has rows without a value or of other widths.
        """
        column = self._load(chunk, name)
        if column.null_count:
            raise ValueError(f"column {name!r} has rows without a value")
        if self.kinds[name] != "vector":
            return column.to_numpy(zero_copy_only=False)
        width = getattr(column.type, "list_size", None)
        if width is None:
            return np.array(column.to_pylist(), dtype=np.float64)
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), width)

    def texts(self, name: str, chunk: int) -> list[Any]:
        """A column of texts, or of any other kind, in a chunk as Python objects.

        Raises:
            ValueError: it is damaged.
        """
        return self._load(chunk, name).to_pylist()

    def cell(self, name: str, row: int) -> Any:
        """One value as a Python object.

        Raises:
            ValueError: it is damaged or not there.
        """
        if not 0 <= row < len(self):
            raise ValueError(f"row {row} of {len(self)}")
        chunk = int(np.searchsorted(self._ends, row, side="right")) - 1  # right: behind empty chunks
        return self._load(chunk, name)[row - int(self._ends[chunk])].as_py()

    def _load(self, chunk: int, name: str) -> Any:
        """A column of a chunk, checked once and kept for a while; ValueError for any damage."""
        with self._lock:
            if (chunk, name) not in self._cache:
                try:
                    column = self._chunks.load(chunk, name)
                    # A damaged offset would be followed out of the buffer, which ends the process without a word.
                    column.validate(full=True)
                except self._errors as error:
                    raise ValueError(first_line(error)) from None
                self._cache[chunk, name] = column
                own = [key for key in self._cache if key[1] == name]
                if len(own) > CHUNKS_KEPT:
                    del self._cache[own[0]]
            self._cache.move_to_end((chunk, name))
            return self._cache[chunk, name]


@dataclass(frozen=True)
class TextColumn(Sequence[str]):
    """A column of texts as a sequence, of which a few row groups are in memory."""

    file: TableFile
    name: str

    def __len__(self) -> int:
        return len(self.file)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        places = range(len(self))[row]  # also of rows that count from the end
        if isinstance(places, range):
            return tuple(self.file.cell(self.name, place) for place in places)
        return self.file.cell(self.name, places)

    def __iter__(self) -> Iterator[str]:
        return self.file.each(self.name)


@dataclass(frozen=True)
class _Chunks:
    """Reader of one format: rows and file of each chunk, and a function that loads a column of a chunk."""

    schema: Any
    lengths: Sequence[int]
    paths: Sequence[Path]
    load: Callable[[int, str], Any]
    unpacked_bytes: int
    num_bytes: int


def _parquet_chunks(arrow: Any, path: Path) -> _Chunks:
    content = _mapped(arrow, path)
    file = arrow.parquet.ParquetFile(content)
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]

    def load(chunk: int, name: str) -> Any:
        if not isinstance(path, Address):
            group = file.read_row_group(chunk, [name], use_threads=False)
        else:  # opened anew, as it must still be the object whose groups are known
            try:
                reopened = arrow.parquet.ParquetFile(path.open_input(), metadata=file.metadata, pre_buffer=True)
                group = reopened.read_row_group(chunk, [name], use_threads=False)
            except (CounterpointError, MemoryError, arrow.ArrowException):
                raise
            except Exception as error:  # as in ``Address``: a store that is away makes no row a bad one
                raise StoreError(f"{path}: {first_line(error)}") from None
        return group[name].combine_chunks()  # a row group may come in several pieces

    largest, lengths = max((group.total_byte_size for group in groups), default=0), [group.num_rows for group in groups]
    return _Chunks(file.schema_arrow, lengths, [path] * len(groups), load, largest, content.size())


def _joined(shards: Sequence[_Chunks]) -> _Chunks:
    schema, places = shards[0].schema, [(shard, chunk) for shard in shards for chunk in range(len(shard.lengths))]
    if odd := [shard.paths[0] for shard in shards if shard.paths and not shard.schema.equals(schema)]:
        raise ValueError(f"{odd[0].name} has other columns than the first of its shards")
    return _Chunks(
        schema,
        [shard.lengths[chunk] for shard, chunk in places],
        [shard.paths[chunk] for shard, chunk in places],
        lambda chunk, name: places[chunk][0].load(places[chunk][1], name),
        max(shard.unpacked_bytes for shard in shards),
        sum(shard.num_bytes for shard in shards),
    )


def _ipc_chunks(arrow: Any, path: Path) -> _Chunks:
    """Record batches of an Arrow file (random access) or stream (read through once; its bytes stay mapped)."""
    mapped = _mapped(arrow, path)
    # Only the content of a file says which of the two forms it has.
    try:
        reader = arrow.ipc.open_file(mapped)
    except arrow.ArrowInvalid:
        mapped.seek(0)
        stream = arrow.ipc.open_stream(mapped)
        batches = list(stream)
        lengths, schema, get = [batch.num_rows for batch in batches], stream.schema, batches.__getitem__
    else:
        numbers = range(reader.num_record_batches)
        lengths, schema, get = [reader.get_batch(n).num_rows for n in numbers], reader.schema, reader.get_batch
    paths = [path] * len(lengths)
    return _Chunks(schema, lengths, paths, lambda chunk, name: get(chunk).column(name), 0, mapped.size())


def _mapped(arrow: Any, path: Path) -> Any:
    """A file's bytes, read where they lie; pyarrow itself would open pipes, and no name that is not UTF-8."""
    if isinstance(path, Address):
        return path.open_input()
    with open_regular(path) as stream:
        return arrow.BufferReader(arrow.py_buffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)))


def _kind(types: Any, of: Any) -> ColumnKind:
    if types.is_struct(of):
        return "image" if "bytes" in {field.name for field in of} else "other"
    if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        is_number = types.is_floating(of.value_type) or types.is_integer(of.value_type)
        return "vector" if is_number else "other"
    # Categories: numbers into a list of distinct values, whose kind counts.
    if types.is_dictionary(of):
        return _kind(types, of.value_type)
    if types.is_binary(of) or types.is_large_binary(of):
        return "bytes"
    if types.is_integer(of):
        return "integer"
    return "text" if types.is_string(of) or types.is_large_string(of) else "other"


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, tuple[str, ...]]:
    """Class names in Hugging Face's metadata; nothing if there are none, or if they make no sense."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        labels = {column: feature["names"] for column, feature in features.items() if "names" in feature}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}
    return {
        column: tuple(names)
        for column, names in labels.items()
        if isinstance(names, list) and all(isinstance(name, str) for name in names)
    }
