"""Very many pictures at an address: listed once into a Parquet file, whose row groups are read as needed.

The file has the name, size and time of each picture, and of those within shards their place and label. No picture is
looked at before it is fetched, and none of their names stays in memory.
"""

# N samples

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, overload

import numpy as np

from counterpoint.core.arrow_files import GROUP_ROWS, PARQUET_SUFFIX, TableFile, TextColumn, write_groups
from counterpoint.core.errors import DataError
from counterpoint.core.files import seal_of, write_atomically
from counterpoint.core.settings import SourceSettings
from counterpoint.core.user_files import Address
from counterpoint.data.formats.image_files import SUFFIXES
from counterpoint.data.formats.indexed_images import Listing, choose_side
from counterpoint.data.formats.labels import Labels, labels_as_asked, labels_from_folders
from counterpoint.data.manifest import manifest_path
from counterpoint.data.source import Progress, Source, fingerprint, refuse_split, source_of
from counterpoint.data.stores import FileStore, Located

COLUMNS = {"name": "string", "size": "int64", "time": "int64"}
MEMBER_COLUMNS = {**COLUMNS, "file": "string", "offset": "int64", "length": "int64", "label": "string"}
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
        """One picture, or those of a slice."""
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        if not 0 <= row < len(self):
            raise IndexError(row)
        cells = {column: self.table.cell(column, row) for column in self.table.kinds}
        path = self.folder / cells.get("file", cells["name"])
        path.stamp = (cells["size"], cells["time"])
        return Located(cells["name"], path, cells.get("offset", 0), cells.get("length"), cells.get("label"))


def open_listed(
    place: Address, images: Iterable[Located], listing: Listing, settings: SourceSettings, progress: Progress
) -> Source:
    """Open pictures at an address; their listing stays in the cache until ``altered`` is reindex.

    Args:
        place: a folder, or a shard.
        images: all pictures; they are looked through if there is no listing.
        listing: the way to deal with them; with a variant if they lie within shards, without one if each is an object.
        settings: labels, size, what to do with altered ones.
        progress: bar that shows that they are listed.

    Raises:
        DataError: no pictures; or, of a fetch, one that is gone or cannot be decoded.
        StoreError: the store refuses; or, of a fetch, an object changed.
    """
    refuse_split(str(place), settings.split)
    path = manifest_path(str(place), (), f"{NOTE} {listing.variant}".rstrip()).with_suffix(PARQUET_SUFFIX)
    if settings.altered == "reindex" or not path.exists():
        with progress(f"listing {place}", 1) as advance:
            write_listing(place, images, path, MEMBER_COLUMNS if listing.variant else COLUMNS)
            advance()
    table = TableFile(path)
    pictures, names = ListedPictures(place, table), TextColumn(table, "name")
    if not pictures:
        raise DataError(f"no images in {place} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    notes = {NOTE: f"{len(pictures):,} pictures as they were listed; list them again with --source.altered reindex"}
    side = settings.image_size
    if side == "auto":
        measured = [pictures[row] for row in range(0, len(pictures), -(-len(pictures) // NUM_MEASURED))]
        side, notes["source.image_size"] = choose_side(measured, None, listing.read)

    def rule() -> Labels | None:
        if not listing.variant:
            return labels_from_folders(names)
        # Labels of all samples, from those of the distinct ones.
        places = dict[str | None, int]()
        place_N = np.fromiter((places.setdefault(label, len(places)) for label in table.each("label")), np.int64)
        own = listing.label([Located("", Path(), label=label) for label in places])
        return None if own is None else Labels(own.numbers[place_N], own.class_names)

    labels = labels_as_asked(settings.labels, names, rule)
    content = fingerprint([b"%d\0" % side, seal_of(path).sha256.encode()], labels)
    store = FileStore(pictures, (), side, listing.read)
    return source_of(str(place), store, (3, side, side), labels, sample_names=names, fingerprint=content, notes=notes)


def pictures_in(folder: Address) -> Iterator[Located]:
    """The pictures of a folder, at any depth; one folder of names is held.

    Raises:
        StoreError: the store refuses.
    """
    start = len(str(folder)) + 1
    files = (file for file in folder.walk_files() if file.suffix.lower() in SUFFIXES)
    return (Located(str(file)[start:], file) for file in files)


def write_listing(place: Address, images: Iterable[Located], path: Path, columns: Mapping[str, str]) -> None:
    """List pictures into a Parquet file that is replaced, a row group at a time.

    Raises:
        StoreError: the store refuses.
        RunError: the file cannot be written.
    """
    start = len(str(place)) + 1

    def groups() -> Iterator[Mapping[str, Sequence[Any]]]:
        remaining = iter(images)
        while group := list(islice(remaining, GROUP_ROWS)):
            rows = []
            for image in group:
                assert isinstance(image.path, Address)
                image.path.stamp = stamp = image.path.stamped()  # the store is asked once for each shard
                rows.append((image.name, *stamp, str(image.path)[start:], image.offset, image.size, image.label))
            yield dict(zip(columns, zip(*rows, strict=True), strict=False))

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: write_groups(temporary, columns, groups()))
