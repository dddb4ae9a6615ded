"""Folders of very many pictures at an address: listed once into a Parquet file, whose row groups are read as needed.

The file has the name, size and time of each picture, sorted. No picture is looked at before it is fetched, and none of
their names stays in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import overload

from counterpoint.core.addresses import Address
from counterpoint.core.arrow_files import GROUP_ROWS, PARQUET_SUFFIX, TableFile, TextColumn, write_groups
from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError
from counterpoint.core.files import seal_of, write_atomically
from counterpoint.data.formats.image_files import SUFFIXES
from counterpoint.data.formats.indexed_images import Known, choose_side
from counterpoint.data.formats.labels import labels_as_asked, labels_from_folders
from counterpoint.data.manifest import manifest_path
from counterpoint.data.source import Progress, Source, fingerprint, refuse_split, source_of
from counterpoint.data.stores import FileStore, Located, read_bytes

COLUMNS = {"name": "string", "size": "int64", "time": "int64"}
NUM_MEASURED = 200  # pictures whose sizes decide to which side all are brought
NOTE = "source.listing"


@dataclass(frozen=True)
class ListedPictures(Sequence[Located]):
    """The pictures of a listing; each stands for the object that was listed."""

    folder: Address
    table: TableFile

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, row: int) -> Located: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Located]: ...
    def __getitem__(self, row: int | slice) -> Located | Sequence[Located]:
        """One of them, or some."""
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        if not 0 <= row < len(self):
            raise IndexError(row)
        name, size, time = (self.table.cell(column, row) for column in COLUMNS)
        path = self.folder / name
        path.stamp = (size, time)
        return Located(name, path)


def open_listed(folder: Address, settings: SourceSettings, progress: Progress) -> Source:
    """Open the pictures of a folder, at any depth; its listing stays in the cache until ``altered`` is reindex.

    Raises:
        DataError: no pictures; or, of a fetch, one that is gone or cannot be decoded.
        StoreError: the store refuses; or, of a fetch, a picture changed.
    """
    refuse_split(str(folder), settings.split)
    path = manifest_path(str(folder), (), NOTE).with_suffix(PARQUET_SUFFIX)
    if settings.altered == "reindex" or not path.exists():
        with progress(f"listing {folder}", 1) as advance:
            write_listing(folder, path)
            advance()
    table = TableFile(path)
    pictures, names = ListedPictures(folder, table), TextColumn(table, "name")
    if not pictures:
        raise DataError(f"no images in {folder} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    notes = {NOTE: f"{len(pictures):,} pictures as they were listed; list them again with --source.altered reindex"}
    side = settings.image_size
    if side == "auto":
        some = [pictures[row] for row in range(0, len(pictures), -(-len(pictures) // NUM_MEASURED))]
        side, notes["source.image_size"] = choose_side(some, Known({}, {}, {}), read_bytes)
    labels = labels_as_asked(settings.labels, names, lambda: labels_from_folders(names))
    content = fingerprint([b"%d\0" % side, seal_of(path).sha256.encode()], labels)
    store = FileStore(pictures, (), side)
    return source_of(str(folder), store, (3, side, side), labels, sample_names=names, fingerprint=content, notes=notes)


def write_listing(folder: Address, path: Path) -> None:
    """List a folder into a Parquet file that is replaced, a row group at a time.

    Raises:
        StoreError: the store refuses.
        RunError: the file cannot be written.
    """
    start = len(str(folder)) + 1

    def groups() -> Iterator[Mapping[str, Sequence[str | int]]]:
        pictures = (each for each in folder.walk_files() if each.suffix.lower() in SUFFIXES)
        while group := list(islice(pictures, GROUP_ROWS)):
            stamps = [each.stamped() for each in group]
            sizes, times = [size for size, _ in stamps], [time for _, time in stamps]
            yield {"name": [str(each)[start:] for each in group], "size": sizes, "time": times}

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: write_groups(temporary, COLUMNS, groups()))
