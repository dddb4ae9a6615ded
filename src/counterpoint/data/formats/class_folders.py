"""Folders of Tiny ImageNet, ImageNet and sets laid out like them: one folder per split, in it one per class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.image_files import SUFFIXES, Skipped, list_files
from counterpoint.data.formats.indexed_images import open_located
from counterpoint.data.formats.located import Located
from counterpoint.data.sets.named_sets import choose_split, root_folder
from counterpoint.data.sets.set_files import missing
from counterpoint.data.source import Progress, Source

TINY_FOLDER = "tiny-imagenet-200"
OTHER_SPLITS = ("val", "test")
ANNOTATIONS = "val_annotations.txt"  # Tiny ImageNet: file, class and box of each validation image
NAME_FILES = ("words.txt", "LOC_synset_mapping.txt")  # a class folder's name, then what it shows


@dataclass(frozen=True)
class _Found:
    """Images of one split, and what else lay there."""

    images: list[Located]
    ignored: list[Skipped]


def has_splits(path: Path) -> bool:
    """Whether a folder is laid out in splits: ``train`` and one more, with class folders in ``train`` and no images."""
    train = path / "train"
    return any((path / split).is_dir() for split in OTHER_SPLITS) and train.is_dir() and _holds_folders_only(train)


def open_splits(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open one split of such a folder; ``auto`` is train.

    Raises:
        UsageError: no such split.
        DataError: annotations that do not fit, or anything ``open_located`` refuses.
    """
    splits = ("train", *(split for split in OTHER_SPLITS if (path / split).is_dir()))
    split = choose_split(str(path), splits, settings.split)
    found = _find(path, split)
    if not found.images:
        raise DataError(f"no images in {path / split} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    name = str(path) if settings.split == "auto" else str(path / split)
    source = open_located(name, found.images, settings, progress, ignored=found.ignored)
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
        raise missing(
            path / "train",
            "get tiny-imagenet once from cs231n.stanford.edu/tiny-imagenet-200.zip and unpack it there, or name the "
            "folder that has it with --source.root",
        )
    return open_splits(path, settings, progress)


def _holds_folders_only(folder: Path) -> bool:
    """Whether a folder holds visible folders and no image of its own."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    has_image = any(entry.suffix.lower() in SUFFIXES and entry.is_file() for entry in entries)
    return not has_image and any(entry.is_dir() for entry in entries)


def _find(path: Path, split: str) -> _Found:
    """Every image of a split with its class: its folder below the split, or what the annotations say."""
    files, others = list_files(path / split)
    annotations = path / split / ANNOTATIONS
    classes = _annotated(annotations) if annotations.is_file() else None
    images = [
        Located(
            file.relative_to(path).as_posix(),
            file,
            label=_class_of(file.relative_to(path / split)) if classes is None else classes.get(file.name),
        )
        for file in files
    ]
    if classes is not None and images and not any(image.label for image in images):
        raise DataError(f"{annotations} names no image of {path / split}")
    skipped = [other for other in others if other != annotations and not _is_box_list(other)]
    return _Found(images, [Skipped(other.relative_to(path).as_posix(), "no image suffix") for other in skipped])


def _class_of(inside: Path) -> str | None:
    """The first folder below the split."""
    return inside.parts[0] if len(inside.parts) > 1 and inside.parts[0] != "images" else None


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
    pairs = [line.replace("\t", " ", 1).partition(" ") for line in _lines(file)]
    return {folder: words.strip() for folder, _, words in pairs if words.strip()}


def _spelled_out(folders: Sequence[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """Class names for people: the first word of each, with the folder's name where two classes share it."""
    names = [words.get(folder, folder).split(",")[0] for folder in folders]
    return tuple(
        name if names.count(name) == 1 else f"{name} ({folder})" for name, folder in zip(names, folders, strict=True)
    )


def _lines(path: Path) -> list[str]:
    """Lines of a text file that are not empty."""
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as text: {error}") from None
