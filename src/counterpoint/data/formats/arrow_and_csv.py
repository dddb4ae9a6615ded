"""Tables as sources: Parquet, Arrow files and streams, Feather and CSV; of pictures, vectors, or plain columns."""

# N samples, D features

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.core.array_layout import to_samples
from counterpoint.core.arrow_files import PARQUET_SUFFIX, ColumnKind, TableFile
from counterpoint.core.errors import DataError, UsageError, nearest, some
from counterpoint.core.settings import SourceSettings
from counterpoint.core.table_columns import ColumnPlan, Values, plan_of, plan_of_run, read_columns
from counterpoint.core.user_files import MOST_FILES, Address, open_regular
from counterpoint.data.formats.image_files import has_images, list_files
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.labels import Labels, labels_as_asked, number_labels, own_labels
from counterpoint.data.formats.listed_pictures import open_listed
from counterpoint.data.source import FOLDER, FileForm, Progress, Source, memory_source, refuse_split
from counterpoint.data.stores import Located, MemoryStore

Kinds = Mapping[str, ColumnKind]  # of columns by their names
SAMPLE_KINDS: Sequence[ColumnKind] = ("image", "bytes", "vector")  # in the order in which they are looked for
SAMPLE_NAMES = ("image", "img", "picture", "jpg", "png", "webp", "vector", "embedding", "features")
LABEL_NAMES = ("label", "labels", "class", "target", "fine_label", "cls")
READS = ("label_column", "drop_columns", "columns")  # settings
ARROW_SUFFIXES = (".parquet", ".arrow", ".feather")
OF_EMBED = ("name", "label", "v0")  # first columns of a CSV of `counterpoint embed`
# One sample of a compressed table costs the unpacking of its row group; above this it is worth a note.
SLOW_CHUNK_BYTES = 8 << 20


def open_table(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a table of images (bytes, or Hugging Face's struct of bytes and path) or of vectors.

    Images that fit are kept in memory; of others each fetch reads, verifies and decodes its rows.

    Raises:
        UsageError: pyarrow is missing, or there is no such column.
        DataError: not a table; no column of images or vectors, or several; or anything ``open_listing`` refuses.
    """
    refuse_split(str(path), settings.split)
    shards = find_tables(path) if path.is_dir() else []
    file = TableFile(path, shards)
    if settings.image_column == "auto" and not set(file.kinds.values()) & set(SAMPLE_KINDS) and len(file):
        return open_columns(path, settings, progress)
    kinds: Sequence[ColumnKind] = ("integer", "text")
    usual = (name for name, kind in file.kinds.items() if kind in kinds and name.lower() in LABEL_NAMES)
    label = next(usual, None) if settings.label_column == "auto" else settings.label_column
    if settings.label_column != "auto":
        _check_column(path, settings.label_column, file.kinds, kinds, "source.label_column")
    table = ArrowTable(file, _sample_column(path, file.kinds, settings), label)
    if file.kinds[table.samples] == "vector":
        return _open_vectors(path, table, settings)
    if not len(file):
        raise DataError(f"no rows in {path}")
    variant = f"table {table.samples} {table.label}"
    listing = Listing((), read=table, label=table.numbered, variant=variant)
    if isinstance(path, Address) and len(file) > MOST_FILES:
        stamps = [(str(shard), shard.stamped()) for shard in shards or [path] if isinstance(shard, Address)]
        variant = f"{variant} {stamps}"
        return open_listed(path, table.images(), replace(listing, variant=variant), settings, progress)
    source = open_listing(str(path), replace(listing, images=list(table.images())), settings, progress)
    if isinstance(source.store, MemoryStore) or file.chunk_bytes < SLOW_CHUNK_BYTES:
        return source
    note = f"a sample takes unpacking a row group of {file.chunk_bytes >> 20} MiB; an uncompressed .arrow would not"
    return replace(source, notes={**source.notes, "source.table": note})


@dataclass(frozen=True)
class ArrowTable:
    """A table with the names of its columns of samples and labels; called with an image, it reads the image."""

    file: TableFile
    samples: str
    label: str | None

    def __call__(self, image: Located) -> bytes:
        """The bytes of one row's image."""
        value = self.file.cell(self.samples, image.offset)
        # Hugging Face's struct: {"bytes": ..., "path": ...}, of which one may be None.
        if isinstance(value, dict):
            elsewhere = value.get("path")
            value = value.get("bytes")
            if value is None and elsewhere:
                raise ValueError("the table holds no bytes, only a path")
        if not isinstance(value, bytes):
            raise ValueError("the cell is empty")
        return value

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, if the table has them."""
        return self.file.class_names.get(self.label or "", ())

    def images(self) -> Iterator[Located]:
        """One image per row, named by its number."""
        values = repeat(None, len(self.file)) if self.label is None else self.file.each(self.label)
        names = self.class_names
        for row, (path, value) in enumerate(zip(self.file.paths(), values, strict=True)):
            label = None if value is None else str(value)
            if names and isinstance(value, int):
                # -1 is Hugging Face's label of unlabelled test parts; Python would count it from the end.
                label = names[value] if 0 <= value < len(names) else None
            yield Located(str(row), path, row, label=label)

    def numbered(self, images: Sequence[Located]) -> Labels | None:
        """Class numbers; those of the table if it names its classes."""
        labels = own_labels(images)
        # Two classes of one name cannot be told apart by the labels' text.
        if labels is None or not self.class_names or len(set(self.class_names)) < len(self.class_names):
            return labels
        # All classes of the table, also those of which no row is there: numbers are then the same in every part.
        numbers = {name: number for number, name in enumerate(self.class_names)}
        numbers_N = [-1 if image.label is None else numbers[image.label] for image in images]
        return Labels(torch.tensor(numbers_N, dtype=torch.int64), self.class_names)


def _open_vectors(path: Path, table: ArrowTable, settings: SourceSettings) -> Source:
    cells = table.file.column(table.samples)
    odd = [row for row, cell in enumerate(cells) if cell is None or len(cell) != len(cells[0] or ()) or None in cell]
    if not cells or odd:
        where = f"row {odd[0]}" if odd else "the table"
        raise DataError(f"{path}: {where} is empty or has another length; column {table.samples!r} must hold vectors")
    samples_ND = to_samples(np.array(cells, dtype=np.float32), "vectors", name=str(path))
    names = [str(row) for row in range(len(cells))]
    labels = labels_as_asked(settings.labels, names, lambda: table.numbered(list(table.images())))
    return memory_source(str(path), samples_ND, labels)


def _sample_column(path: Path, kinds_of: Kinds, settings: SourceSettings) -> str:
    """The column of samples: the one in the settings, else the only one of the first kind there is, or a usual name."""
    if settings.image_column != "auto":
        _check_column(path, settings.image_column, kinds_of, SAMPLE_KINDS, "source.image_column")
        return settings.image_column
    for kind in SAMPLE_KINDS:
        columns = [name for name, column_kind in kinds_of.items() if column_kind == kind]
        # Several columns of one kind are ambiguous (left_eye, right_eye), unless one has a usual name.
        usual = [name for name in columns if name.lower() in SAMPLE_NAMES]
        if len(columns) == 1 or usual:
            return usual[0] if usual else columns[0]
        if columns:
            names = ", ".join(columns)
            raise UsageError(f"{path} has several columns of samples: {names}; choose with --source.image-column")
    raise DataError(f"{path} has no column of images or vectors (columns: {', '.join(kinds_of) or 'none'})")


def _check_column(path: Path, column: str, kinds_of: Kinds, kinds: Sequence[ColumnKind], setting: str) -> None:
    if column not in kinds_of:
        listed = ", ".join(kinds_of)
        raise UsageError(f"{setting}: {path} has no column {column!r}{nearest(column, kinds_of)} (columns: {listed})")
    if kinds_of[column] not in kinds:
        raise UsageError(f"{setting}: column {column!r} of {path} holds {kinds_of[column]}, not {' or '.join(kinds)}")


def find_tables(folder: Path) -> list[Path]:
    """The Parquet shards of a folder at any depth, sorted; none if it has pictures or tar shards, too."""
    if has_images(folder):
        return []
    _, others = list_files(folder)
    tables = [path for path in others if path.suffix == PARQUET_SUFFIX]
    return [] if any(path.suffix == ".tar" for path in others) else tables


def open_columns(path: Path, settings: SourceSettings, progress: Progress, *, plan: ColumnPlan | None = None) -> Source:
    """Open a table whose columns are numbers and categories.

    Args:
        path: the table.
        settings: settings of labels and columns.
        progress: unused.
        plan: plan of another table, by which this one is encoded.

    Raises:
        UsageError: no such column of labels, or to leave out.
        DataError: not a table; or columns that are neither numbers nor categories, which are named.
    """
    refuse_split(str(path), settings.split)
    table = dict(read_columns(path))
    own = "name" if tuple(table)[:3] == OF_EMBED else None
    num_rows = len(next(iter(table.values())))
    names = [str(number) for number in range(num_rows)] if own is None else list(map(str, table.pop(own)))
    if plan is None and settings.columns != "auto":
        plan = plan_of_run(settings.columns)
    label = settings.label_column
    if label == "auto":
        label = next((name for name in table if name.lower() in LABEL_NAMES), None)
    elif label not in table:
        if plan is None:
            listed = some(list(table))
            raise UsageError(
                f"source.label_column: {path} has no column {label!r}{nearest(label, table)} (columns: {listed})"
            )
        label = None  # other rows of a table may lack it
    values = None if label is None else table.pop(label)
    dropped = list[str]()
    if plan is None:
        plan, dropped = plan_of(table, settings.drop_columns, str(path))
    rows_ND, filled = plan.encode(table, str(path))
    labels = labels_as_asked(
        settings.labels, names, lambda: None if values is None else _labels(values, f"{path}: column {label!r}")
    )
    if label is not None and settings.labels != "auto":  # they are elsewhere, or not wanted
        dropped = [*dropped, label]
    of_labels = f"labels: {label}" if label is not None else "no column of labels (--source.label-column NAME)"
    sentences = [_describe(plan), filled, f"left out: {some(dropped)}" if dropped else ""]
    sentences += [of_labels] if settings.labels == "auto" else []
    source = memory_source(str(path), to_samples(rows_ND, "vectors", name=str(path)), labels, table=plan)
    return replace(
        source, sample_names=tuple(names), notes={**source.notes, "source.columns": "; ".join(filter(None, sentences))}
    )


def is_columns(path: Path) -> bool:
    """Tell whether a path is a file of columns, and not the vectors that ``embed`` writes."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".csv":
        with open_regular(path) as stream:
            names = stream.read(64).decode("utf-8-sig", errors="replace").split("\n")[0].strip().split(",")
        return tuple(names[:3]) != OF_EMBED
    return path.suffix.lower() in ARROW_SUFFIXES and not {"image", "bytes", "vector"} & set(
        TableFile(path).kinds.values()
    )


def _describe(plan: ColumnPlan) -> str:
    one_hot = [f"{column.name} {len(column.categories)}" for column in plan.columns if column.median is None]
    numeric = len(plan.columns) - len(one_hot)
    words = [f"{numeric:,} of numbers"] if numeric else []
    words += [f"{len(one_hot):,} of categories, one-hot ({some(one_hot)})"] if one_hot else []
    return f"{len(plan.columns):,} columns as {plan.width:,} numbers: {', '.join(words)}"


def _labels(cells: Sequence[Any], name: str) -> Labels | None:
    """Numbers of the classes; whole numbers by value, others by name."""
    values = Values.of(cells)
    if values.numbers is not None and not np.isfinite(values.numbers).all():
        raise DataError(f"{name} holds infinity, and labels are classes; correct it, or name another column")
    if values.numbers is not None and not bool((values.numbers == np.round(values.numbers)).all()):
        raise DataError(
            f"{name} holds numbers with fractions, and labels are classes; bin them, or name another column"
        )
    filled = np.full(len(cells), None, object)
    is_whole = values.numbers is not None and len(values.numbers)
    filled[~values.is_missing_N] = [int(each) for each in values.numbers] if is_whole else values.texts  # pyright: ignore[reportOptionalIterable]
    return number_labels(list(filled), len(cells))


FORMS = (
    FileForm(
        "a table",
        (FOLDER, *ARROW_SUFFIXES),
        open_table,
        lambda path: not path.is_dir() or bool(find_tables(path)),
        ("image_column", "max_bad", "altered", *READS),
    ),
    FileForm("a CSV table", (".csv",), open_columns, reads=READS),
)
