"""Image files as a source: a folder of any depth, a folder with splits, or a list of paths (.txt, .csv)."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, UsageError, first_line, nearest
from counterpoint.core.user_files import read_text, shown_name
from counterpoint.data.formats.image_files import SUFFIXES, Skipped, list_files
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.labels import Labels, labels_from_folders
from counterpoint.data.source import (
    FOLDER,
    FileForm,
    NamedSource,
    Progress,
    Source,
    choose_split,
    refuse_split,
    root_folder,
)
from counterpoint.data.stores import Located

TINY_FOLDER = "tiny-imagenet-200"
PATH_COLUMNS = ("file", "path", "image", "filename")
LABEL_COLUMNS = ("label", "class", "target")
OTHER_SPLITS = ("val", "test")
ANNOTATIONS = "val_annotations.txt"  # Tiny ImageNet: file, class and box of each validation image
NAME_FILES = ("words.txt", "LOC_synset_mapping.txt")  # a class folder's name, then what it shows


def has_splits(path: Path) -> bool:
    """Whether a folder is laid out in splits: ``train`` and one more, with class folders in ``train`` and no images."""
    train = path / "train"
    return any((path / split).is_dir() for split in OTHER_SPLITS) and train.is_dir() and _holds_folders_only(train)


def open_splits(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open one split of such a folder; ``auto`` is train.

    Raises:
        UsageError: no such split.
        DataError: annotations that do not fit, or anything ``open_listing`` refuses.
    """
    splits = ("train", *(split for split in OTHER_SPLITS if (path / split).is_dir()))
    split = choose_split(str(path), splits, settings.split)
    listing = _find(path, split)
    if not listing.images:
        raise DataError(f"no images in {path / split} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    # A split that was asked for belongs to the name: its index in the cache is one of its own.
    name = str(path) if settings.split == "auto" else str(path / split)
    source = open_listing(name, listing, settings, progress)
    notes = {"source.split": f"{split}, of {', '.join(splits)}"} if settings.split == "auto" else {}
    class_names = source.class_names
    if settings.labels == "auto":
        class_names = _spelled_out(class_names, _words(path))
    return replace(source, class_names=class_names, notes={**source.notes, **notes})


def open_tiny_imagenet(settings: SourceSettings, progress: Progress) -> Source:
    """Open Tiny ImageNet below ``settings.root``.

    Raises:
        DataError: it is missing (the text says how to get it) or not laid out as published.
    """
    path = root_folder(settings) / TINY_FOLDER
    if not has_splits(path):
        raise DataError(
            f"{path / 'train'} is missing; get tiny-imagenet once from cs231n.stanford.edu/tiny-imagenet-200.zip and "
            "unpack it there, or name the folder that has it with --source.root"
        )
    return open_splits(path, settings, progress)


def _holds_folders_only(folder: Path) -> bool:
    """Whether a folder holds visible folders and no image of its own."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    has_image = any(entry.suffix.lower() in SUFFIXES and entry.is_file() for entry in entries)
    return not has_image and any(entry.is_dir() for entry in entries)


def _find(path: Path, split: str) -> Listing:
    """Every image of a split with its class: its folder below the split, or what the annotations say."""
    files, others = list_files(path / split)
    annotations = path / split / ANNOTATIONS
    # Tiny ImageNet's val has all images in one folder, and their classes in a table.
    classes = _annotated(annotations) if annotations.is_file() else None
    images = [
        Located(
            _name_in(path, file),
            file,
            label=_class_of(_name_in(path / split, file)) if classes is None else classes.get(file.name),
        )
        for file in files
    ]
    if classes is not None and images and not any(image.label for image in images):
        raise DataError(f"{annotations} names no image of {path / split}")
    skipped = [other for other in others if other != annotations and not _is_box_list(other)]
    return Listing(images, [Skipped(_name_in(path, other), "no image suffix") for other in skipped])


def _name_in(folder: Path, file: Path) -> str:
    """What a file of a folder is called everywhere."""
    return shown_name(file.relative_to(folder).as_posix())


def _class_of(name: str) -> str | None:
    """The first folder below the split."""
    # Tiny ImageNet: train/CLASS/images/x.JPEG has a class, test/images/x.JPEG has none.
    top, slash, _ = name.partition("/")
    return top if slash and top != "images" else None


def _is_box_list(path: Path) -> bool:
    """Tiny ImageNet keeps a list of boxes beside each class's images."""
    return path.name == f"{path.parent.name}_boxes.txt"


def _annotated(path: Path) -> dict[str, str]:
    """Class of each validation image of Tiny ImageNet."""
    rows = [line.split("\t") for line in _lines(path)]
    if any(len(row) < 2 or not row[0] or not row[1] for row in rows):
        raise DataError(f"{path} must have a file and a class in every line, with a tab between")
    return {row[0]: row[1].strip() for row in rows}


def _words(path: Path) -> dict[str, str]:
    """What each class folder shows, where a file says so."""
    file = next((path / name for name in NAME_FILES if (path / name).is_file()), None)
    if file is None:
        return {}
    # words.txt has a tab after the folder's name, ImageNet's synset mapping a blank.
    pairs = [line.replace("\t", " ", 1).partition(" ") for line in _lines(file)]
    return {folder: words.strip() for folder, _, words in pairs if words.strip()}


def _spelled_out(folders: Sequence[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """Class names for people: the first word of each, with the folder's name where two classes share it."""
    # ImageNet has "crane" twice: a bird and a machine.
    names = [words.get(folder, folder).split(",")[0] for folder in folders]
    return tuple(
        name if names.count(name) == 1 else f"{name} ({folder})" for name, folder in zip(names, folders, strict=True)
    )


def _lines(path: Path) -> list[str]:
    """Lines of a text file that are not empty."""
    return [line for line in _text(path).splitlines() if line.strip()]


def open_folder(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a folder of images at any depth; see ``open_listing`` for what is done with them.

    Raises:
        DataError: no images, too many bad ones, or content that changed since it was indexed.
    """
    refuse_split(str(path), settings.split)
    files, others = list_files(path)
    if not files:
        raise DataError(f"no images in {path} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    images = [Located(_name_in(path, file), file) for file in files]
    # The file of labels may lie in the folder; it is no file that was left out. Not Path.resolve: links may go round.
    labels = os.path.realpath(settings.labels)
    others = [other for other in others if os.path.realpath(other) != labels]
    ignored = [Skipped(_name_in(path, other), "no image suffix") for other in others]

    def label(good: Sequence[Located]) -> Labels | None:
        return labels_from_folders([image.name for image in good])

    return open_listing(str(path), Listing(images, ignored, label=label), settings, progress)


def open_list(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open the images that a file lists, in its order; paths are relative to the file's folder.

    A listed file that is missing counts as a bad file and is named.

    Raises:
        UsageError: no such column.
        DataError: not a list, an empty one, or anything ``open_listing`` refuses.
    """
    refuse_split(str(path), settings.split)
    images = _listed(path, settings)
    if not images:
        raise DataError(f"{path} lists no image")
    return open_listing(str(path), Listing(images), settings, progress)


def _listed(path: Path, settings: SourceSettings) -> list[Located]:
    """The images that a file lists."""
    return _from_csv(path, settings) if path.suffix.lower() == ".csv" else _from_text(path)


def _from_text(path: Path) -> list[Located]:
    """One path per line; empty lines are passed over."""
    return [_located(path, line.strip(), None) for line in _lines(path)]


def _from_csv(path: Path, settings: SourceSettings) -> list[Located]:
    """One image per row below the header; an empty label is none."""
    try:
        # strict: a quote that is never closed would otherwise swallow the rest of the file as one cell.
        rows = [row for row in csv.reader(io.StringIO(_text(path), newline=None), strict=True) if row]
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
    # Counted with the header, which is row 1.
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
    # Lists written on Windows have backslashes; an absolute path stays itself when it is joined.
    return Located(name.replace("\\", "/"), path.parent / name.replace("\\", "/"), label=label or None)


def _text(path: Path) -> str:
    """The file as text."""
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as text: {first_line(error)}") from None


CATALOGUE: Mapping[str, NamedSource] = {
    "tiny-imagenet": NamedSource(
        "110,000 photographs of 64 x 64 pixels in 200 classes, and 10,000 without labels",
        open_tiny_imagenet,
        test_split="val",  # the labels of its test part were never published
        files=(TINY_FOLDER,),
    ),
}
FORMS = (
    FileForm("an image folder", (FOLDER,), open_splits, fits=has_splits, reads=("max_bad", "altered")),
    FileForm("an image folder", (FOLDER,), open_folder, reads=("max_bad", "altered")),
    FileForm(
        "an image list",
        (".txt", ".csv"),
        open_list,
        reads=("image_column", "label_column", "max_bad", "altered"),
        lists=lambda path, settings: [image.path for image in _listed(path, settings)],
    ),
)
