"""Named sets that others publish: find their files or say how to get them, check what is in them, open one split.

What a set needs is a function that reads one split, and an entry of ``CATALOGUE`` at the end of its module.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, first_line
from counterpoint.core.user_files import read_regular
from counterpoint.data.formats.indexed_images import MEMORY_BUDGET_BYTES
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import (
    Progress,
    Source,
    choose_split,
    fingerprint,
    fixed_labels,
    memory_source,
    root_folder,
    source_of,
)
from counterpoint.data.stores import Store

MAX_FILE_BYTES = 1 << 30  # CIFAR-100's largest has 155 MB; STL-10's are never read whole


class LargeImages(Store, Protocol):
    """Images that are read where they lie."""

    def content(self) -> Sequence[np.ndarray]:
        """All that is stored, for the fingerprint."""
        ...


@dataclass(frozen=True)
class RawSet:
    """One split of a published set.

    Attributes:
        images: uint8 (n, c, h, w), or a store of such where they may be too large for the memory.
        numbers: int64 (n,), -1 where there is no label.
        class_names: name of each class number.
    """

    images: np.ndarray | LargeImages
    numbers: np.ndarray
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class PublishedSet:
    """A set that others publish.

    Attributes:
        name: how the user names it.
        call: torchvision's call that gets it once, with ROOT to be filled in.
        num_samples: published size of each split; the first split is what ``auto`` stands for.
        read: reads one split: (root, split, how to get the files).
    """

    name: str
    call: str
    num_samples: Mapping[str, int]
    read: Callable[[Path, str, str], RawSet]

    def open(self, settings: SourceSettings, progress: Progress) -> Source:
        """Open one split.

        Args:
            settings: root, split, and whether labels are wanted.
            progress: shows that files are being read.

        Raises:
            UsageError: no such split, or labels from elsewhere.
            DataError: a file is missing (the text says how to get it once) or damaged.
        """
        split = choose_split(self.name, tuple(self.num_samples), settings.split)
        fixed_labels(self.name, None, settings)  # refuses labels from elsewhere before anything is read
        # A choice that was made for the user is recorded; the user's own is a setting.
        notes = {"source.split": f"{split}, the first part of the set"} if settings.split == "auto" else {}
        with progress(f"reading {self.name}, {split}", 1) as advance:
            found = self.read(root_folder(settings), split, self._hint(settings))
            # A note, not an error: a part of a set, for a test, is data, too.
            if len(found.numbers) != self.num_samples[split]:
                published = self.num_samples[split]
                notes["data"] = f"{len(found.numbers):,} samples; the published split has {published:,}"
            labels = fixed_labels(self.name, Labels(torch.from_numpy(found.numbers), found.class_names), settings)
            source = _source(self.name, found.images, labels, notes)
            advance()
        return source

    def _hint(self, settings: SourceSettings) -> str:
        """How to get the set's files."""
        call = self.call.replace("ROOT", repr(str(root_folder(settings))))
        return (
            f'get {self.name} once with python -c "from torchvision.datasets import *; {call}", or name the folder '
            f"that has it with --source.root"
        )


def _source(name: str, images: np.ndarray | LargeImages, labels: Labels | None, notes: Mapping[str, str]) -> Source:
    """Source in memory, or over the set's own files where it is too large for that."""
    if isinstance(images, np.ndarray):
        return memory_source(name, torch.from_numpy(images), labels, notes=notes)
    # STL-10: train and test fit into memory, the unlabelled part does not.
    shape = tuple(images.fetch([0]).shape[1:])
    if len(images) * int(np.prod(shape)) <= MEMORY_BUDGET_BYTES:
        return memory_source(name, images.fetch(range(len(images))), labels, notes=notes)
    content = fingerprint(images.content(), labels)
    return source_of(name, images, shape, labels, fingerprint=content, notes=notes)


def first_folder(root: Path, names: Sequence[str], hint: str) -> Path:
    """The first of some folders that exists below the root.

    Raises:
        DataError: none does; says how to get it.
    """
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise missing(root / names[0], hint)


def missing(path: Path, hint: str) -> DataError:
    """The error for a file that is not there."""
    return DataError(f"{path} is missing; {hint}")


def read_bytes(path: Path, hint: str) -> bytes:
    """Read a whole file.

    Raises:
        DataError: missing (says how to get it), not readable, or larger than any that is published.
    """
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise missing(path, hint) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None


def names_in(path: Path, hint: str, num_classes: int) -> tuple[str, ...]:
    """Class names, one per line.

    Raises:
        DataError: missing, not text, or another number of names than classes.
    """
    try:
        names = tuple(line.strip() for line in read_bytes(path, hint).decode("utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text: {first_line(error)}") from None
    if len(names) != num_classes:
        raise DataError(f"{path} must name {num_classes} classes, one per line, got {len(names)}")
    return names


def fitting_labels(path: Path, numbers: np.ndarray, num_images: int, num_classes: int) -> np.ndarray:
    """Class numbers, if there is one per image and each lies within the classes.

    Raises:
        DataError: otherwise.
    """
    if len(numbers) != num_images:
        raise DataError(f"{path} has {len(numbers)} labels for {num_images} images")
    if num_images and not 0 <= numbers.min() <= numbers.max() < num_classes:
        raise DataError(f"{path}: class numbers must be 0 to {num_classes - 1}, got {numbers.min()} to {numbers.max()}")
    return numbers
