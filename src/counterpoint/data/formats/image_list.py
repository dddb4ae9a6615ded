"""Lists of images: a ``.txt`` with a path per line, or a ``.csv`` with a column of paths and perhaps one of labels."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from counterpoint.core.errors import DataError, UsageError, first_line, nearest
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.indexed_images import open_located
from counterpoint.data.formats.located import Located
from counterpoint.data.source import Progress, Source

PATH_COLUMNS = ("file", "path", "image", "filename")
LABEL_COLUMNS = ("label", "class", "target")


def open_list(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open the images that a file lists, in its order; paths are relative to the file's folder.

    A listed file that is missing counts as a bad file and is named.

    Raises:
        UsageError: no such column.
        DataError: not a list, an empty one, or anything ``open_located`` refuses.
    """
    images = _from_csv(path, settings) if path.suffix.lower() == ".csv" else _from_text(path)
    if not images:
        raise DataError(f"{path} lists no image")
    return open_located(str(path), images, settings, progress)


def _from_text(path: Path) -> list[Located]:
    """One path per line; empty lines are passed over."""
    names = [line.strip() for line in _text(path).splitlines()]
    return [_located(path, name, None) for name in names if name]


def _from_csv(path: Path, settings: SourceSettings) -> list[Located]:
    """One image per row below the header; an empty label is none."""
    try:
        rows = [row for row in csv.reader(io.StringIO(_text(path)), strict=True) if row]
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table: {error}") from None
    if not rows:
        raise DataError(f"{path} lists no image")
    header = [cell.strip() for cell in rows[0]]
    image = _column(path, header, settings.image_column, PATH_COLUMNS, "source.image_column")
    if image is None:
        raise DataError(
            f"{path} has the columns {', '.join(header)}; paths must be in one named {', '.join(PATH_COLUMNS)}, or "
            f"name it with --source.image-column"
        )
    label = _column(path, header, settings.label_column, LABEL_COLUMNS, "source.label_column")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header) or not row[image].strip():
            raise DataError(f"{path}: row {number} must have {len(header)} cells and a path, got {len(row)} cells")
    return [_located(path, row[image].strip(), None if label is None else row[label].strip()) for row in rows[1:]]


def _column(path: Path, header: Sequence[str], asked: str, known: Sequence[str], setting: str) -> int | None:
    """Place of a column: the one asked for, else the first that has a known name."""
    if asked != "auto":
        if asked not in header:
            raise UsageError(f"{setting}: {path} has no column {asked!r}{nearest(asked, header)}")
        return header.index(asked)
    lower = [name.lower() for name in header]
    return next((lower.index(name) for name in known if name in lower), None)


def _located(path: Path, name: str, label: str | None) -> Located:
    """The image of one entry."""
    return Located(name.replace("\\", "/"), path.parent / name.replace("\\", "/"), label=label or None)


def _text(path: Path) -> str:
    """The file as text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {first_line(error)}") from None
