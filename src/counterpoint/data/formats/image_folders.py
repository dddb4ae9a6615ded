"""Image files as a source: a folder of any depth, or a folder with splits."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.settings import SourceSettings
from counterpoint.core.user_files import read_text, shown_name
from counterpoint.data.formats.image_files import SUFFIXES, Skipped, list_files
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.labels import labels_from_folders
from counterpoint.data.source import FOLDER, FileForm, NamedSource, Progress, Source, choose_split, refuse_split
from counterpoint.data.stores import Located

TINY_FOLDER = "tiny-imagenet-200"
OTHER_SPLITS = ("val", "test")
ANNOTATIONS = "val_annotations.txt"  # Tiny ImageNet: file, class and box of each validation image


def has_splits(path: Path) -> bool:
    """Tell whether a folder has splits: ``train`` and one more, with class folders in ``train`` and no images."""
    train = path / "train"
    if not train.is_dir() or not any((path / split).is_dir() for split in OTHER_SPLITS):
        return False
    entries = [entry for entry in train.iterdir() if not entry.name.startswith(".")]
    has_image = any(entry.suffix.lower() in SUFFIXES and entry.is_file() for entry in entries)
    return not has_image and any(entry.is_dir() for entry in entries)


def _open_splits(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open one split of such a folder; ``auto`` is train."""
    splits = ("train", *(split for split in OTHER_SPLITS if (path / split).is_dir()))
    split = choose_split(str(path), splits, settings.split)
    listing = _split_listing(path, split)
    if not listing.images:
        raise DataError(f"no images in {path / split} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    # A split that was asked for belongs to the name: its index in the cache is one of its own.
    name = str(path) if settings.split == "auto" else str(path / split)
    source = open_listing(name, listing, settings, progress)
    notes = {"source.split": f"{split}, of {', '.join(splits)}"} if settings.split == "auto" else {}
    return replace(source, notes={**source.notes, **notes})


def _open_tiny_imagenet(settings: SourceSettings, progress: Progress) -> Source:
    path = Path(os.path.expanduser(settings.root)) / TINY_FOLDER
    if not has_splits(path):
        raise DataError(
            f"{path / 'train'} is missing; get tiny-imagenet once from cs231n.stanford.edu/tiny-imagenet-200.zip and "
            "unpack it there, or name the folder that has it with --source.root"
        )
    return _open_splits(path, settings, progress)


def _split_listing(path: Path, split: str) -> Listing:
    files, others = list_files(path / split)
    annotations = path / split / ANNOTATIONS
    # Tiny ImageNet's val has all images in one folder, and their classes in a table.
    classes = None
    if annotations.is_file():
        try:
            rows = [line.split("\t") for line in read_text(annotations).splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise DataError(f"{annotations} cannot be read as text: {first_line(error)}") from None
        if any(len(row) < 2 or not row[0] or not row[1] for row in rows):
            raise DataError(f"{annotations} must have a file and a class in every line, with a tab between")
        classes = {row[0]: row[1].strip() for row in rows}
    images = []
    for file in files:
        # Tiny ImageNet: train/CLASS/images/x.JPEG has a class, test/images/x.JPEG has no class.
        top, slash, _ = _name_in(path / split, file).partition("/")
        of_folder = top if slash and top != "images" else None
        label = of_folder if classes is None else classes.get(file.name)
        images.append(Located(_name_in(path, file), file, label=label))
    if classes is not None and images and not any(image.label for image in images):
        raise DataError(f"{annotations} names no image of {path / split}")
    # Tiny ImageNet keeps a list of boxes beside each class's images.
    skipped = [other for other in others if other != annotations and other.name != f"{other.parent.name}_boxes.txt"]
    return Listing(images, [Skipped(_name_in(path, other), "no image suffix") for other in skipped])


def _name_in(folder: Path, file: Path) -> str:
    return shown_name(file.relative_to(folder).as_posix())


def _open_folder(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a folder of images at any depth; see ``open_listing`` for what is done with them."""
    refuse_split(str(path), settings.split)
    files, others = list_files(path)
    images = [Located(_name_in(path, file), file) for file in files]
    # The file of labels may lie in the folder; it is no file that was left out. Not Path.resolve: links may go round.
    labels = os.path.realpath(settings.labels)
    others = [other for other in others if os.path.realpath(other) != labels]
    ignored = [Skipped(_name_in(path, other), "no image suffix") for other in others]
    listing = Listing(images, ignored, label=lambda good: labels_from_folders([image.name for image in good]))
    return open_listing(str(path), listing, settings, progress)


CATALOGUE: Mapping[str, NamedSource] = {
    "tiny-imagenet": NamedSource(
        "110,000 photographs of 64 x 64 pixels in 200 classes, and 10,000 without labels",
        _open_tiny_imagenet,
        test_split="val",  # the labels of its test part were never published
        files=(TINY_FOLDER,),
    ),
}
FORMS = (
    FileForm("an image folder", (FOLDER,), _open_splits, fits=has_splits, reads=("max_bad", "altered")),
    FileForm("an image folder", (FOLDER,), _open_folder, reads=("max_bad", "altered")),
)
