"""Named sets that others publish: scikit-learn's digits, CIFAR and STL-10, with how to get and to read their files.

A set of files is an entry of ``CATALOGUE`` with a function that reads class names and one that reads a part.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.settings import SourceSettings
from counterpoint.core.user_files import open_regular, read_regular
from counterpoint.data.formats.indexed_images import MEMORY_BUDGET_BYTES
from counterpoint.data.formats.labels import Labels, number_labels
from counterpoint.data.formats.pickled_arrays import read_pickled
from counterpoint.data.source import (
    NamedSource,
    Progress,
    Source,
    choose_split,
    fingerprint,
    fixed_labels,
    memory_source,
    refuse_split,
    source_of,
)
from counterpoint.data.stores import JoinedStore, MemoryStore

MAX_FILE_BYTES = 1 << 30  # CIFAR-100's largest has 155 MB; STL-10's are never read whole
# A pickled number may have any length; one beyond int64 would end in an OverflowError.
LARGEST = 1 << 31  # that a file may call a class number
CIFAR_SHAPE, STL10_SHAPE = (3, 32, 32), (3, 96, 96)


@dataclass(frozen=True)
class Folder:
    """A folder of a set's files: its path, a hint for errors at how to get them, and the number of classes."""

    path: Path
    hint: str
    num_classes: int

    def file(self, name: str) -> Path:
        """The path of a file.

        Raises:
            DataError: it is missing; the text says how to get it.
        """
        path = self.path / name
        if not os.path.exists(path):
            raise DataError(f"{path} is missing; {self.hint}")
        return path

    def read(self, name: str) -> bytes:
        """A file's bytes.

        Raises:
            DataError: missing, not readable, or larger than any that is published.
        """
        path = self.file(name)
        try:
            return read_regular(path, MAX_FILE_BYTES)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {first_line(error)}") from None

    def fitting(self, name: str, numbers: np.ndarray, num_images: int) -> np.ndarray:
        """Class numbers, if there is one per image and each lies within the classes.

        Raises:
            DataError: otherwise.
        """
        path, last = self.path / name, self.num_classes - 1
        if len(numbers) != num_images:
            raise DataError(f"{path} has {len(numbers)} labels for {num_images} images")
        if num_images and not 0 <= numbers.min() <= numbers.max() <= last:
            raise DataError(f"{path}: class numbers must be 0 to {last}, got {numbers.min()} to {numbers.max()}")
        return numbers.astype(np.int64)


Part = tuple[np.ndarray, np.ndarray]  # images, and class numbers that are -1 if there is no label


@dataclass(frozen=True)
class PublishedSet:
    """A set that others publish.

    Attributes:
        name: the user's name of it.
        call: torchvision's call that gets it once, with ROOT to be filled in.
        num_classes: number of its classes.
        num_samples: published size of each split; ``auto`` means the first split.
        parts: the parts of which a split consists, if it is not one of its own name.
        folder: folder of the files, below the root.
        read_names: function that reads class names.
        read_part: function that reads a part.
    """

    name: str
    call: str
    num_classes: int
    num_samples: Mapping[str, int]
    parts: Mapping[str, Sequence[str]]
    folder: str
    read_names: Callable[[Folder], tuple[str, ...]]
    read_part: Callable[[Folder, str], Part]

    def open(self, settings: SourceSettings, progress: Progress) -> Source:
        """Open one split.

        Args:
            settings: root, split, and the choice of labels or none.
            progress: bar that shows that files are being read.

        Raises:
            UsageError: no such split, or labels from elsewhere.
            DataError: a file is missing (the text says how to get it once) or damaged.
        """
        split = choose_split(self.name, tuple(self.num_samples), settings.split)
        fixed_labels(self.name, None, settings)  # refuses labels from elsewhere before anything is read
        # A choice that was made for the user is recorded; the user's own is a setting.
        notes = {"source.split": f"{split}, the first part of the set"} if settings.split == "auto" else {}
        with progress(f"reading {self.name}, {split}", 1) as advance:
            root = Path(os.path.expanduser(settings.root))  # unlike Path.expanduser, leaves unknown users alone
            hint = (
                f'get {self.name} once with python -c "from torchvision.datasets import *; '
                f'{self.call.replace("ROOT", repr(str(root)))}", or name the folder that has it with --source.root'
            )
            folder = Folder(root / self.folder, hint, self.num_classes)
            class_names = self.read_names(folder)
            parts = [self.read_part(folder, part) for part in self.parts.get(split, (split,))]
            numbers = np.concatenate([part[1] for part in parts])
            # A note, not an error: a part of a set, for a test, is data, too.
            if len(numbers) != self.num_samples[split]:
                published = self.num_samples[split]
                notes["data"] = f"{len(numbers):,} samples; the published split has {published:,}"
            labels = fixed_labels(self.name, Labels(torch.from_numpy(numbers), class_names), settings)
            images = [part[0] for part in parts]
            advance()
            if sum(part.nbytes for part in images) <= MEMORY_BUDGET_BYTES:
                return memory_source(self.name, torch.from_numpy(np.concatenate(images)), labels, notes=notes)
            # STL-10's unlabelled part is too large. Of mapped files only the pages of fetched images are read.
            stores = [MemoryStore(torch.from_numpy(part)) for part in images]
            store = stores[0] if len(stores) == 1 else JoinedStore(*stores)
            content = fingerprint([part.transpose(0, 1, 3, 2) for part in images], labels)
            return source_of(self.name, store, STL10_SHAPE, labels, fingerprint=content, notes=notes)


def _stl10_names(folder: Folder) -> tuple[str, ...]:
    file = folder.path / "class_names.txt"
    try:
        names = tuple(line.strip() for line in folder.read(file.name).decode("utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not text: {first_line(error)}") from None
    if len(names) != folder.num_classes:
        raise DataError(f"{file} must name {folder.num_classes} classes, one per line, got {len(names)}")
    return names


def _stl10_part(folder: Folder, part: str) -> Part:
    """A file of images without a header, their planes stored column by column, and a byte per label, from 1 on."""
    path, (channels, height, width) = folder.file(f"{part}_X.bin"), STL10_SHAPE
    length = channels * height * width
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if not size or size % length:
                raise DataError(f"{path} must hold images of {length} bytes, got {size:,} bytes; it is cut off")
            # Copy on write: torch takes no array that it must not write to.
            images = np.memmap(stream, np.uint8, "c", shape=(size // length, channels, width, height))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    images = images.transpose(0, 1, 3, 2)
    if part == "unlabeled":  # no file of labels belongs to it
        return images, np.full(len(images), -1, dtype=np.int64)
    numbers = np.frombuffer(folder.read(f"{part}_y.bin"), dtype=np.uint8).astype(np.int64) - 1
    return images, folder.fitting(f"{part}_y.bin", numbers, len(images))


def _cifar(
    meta: str, names_key: str, labels_key: str
) -> tuple[Callable[[Folder], tuple[str, ...]], Callable[[Folder, str], Part]]:
    """Readers of CIFAR's "python version": of names, and of parts: rows of planes with a list of class numbers."""

    def read_names(folder: Folder) -> tuple[str, ...]:
        names, count = read_pickled(folder.file(meta)).get(names_key), folder.num_classes
        if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
            raise DataError(f"{folder.path / meta}: {names_key!r} must be a list of {count} class names")
        return tuple(names)

    def read_part(folder: Folder, part: str) -> Part:
        content: dict[str, Any] = read_pickled(folder.file(part))
        rows, labels, length = content.get("data"), content.get(labels_key), math.prod(CIFAR_SHAPE)
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != length:
            form = rows.shape if isinstance(rows, np.ndarray) else type(rows).__name__
            raise DataError(f"{folder.path / part}: 'data' must be rows of {length} bytes, got {form}")
        if not isinstance(labels, list) or not all(type(label) is int and abs(label) <= LARGEST for label in labels):
            raise DataError(f"{folder.path / part}: {labels_key!r} must be a list of class numbers")
        # A row is 1024 red, 1024 green and 1024 blue values, each plane row by row.
        return rows.reshape(-1, *CIFAR_SHAPE), folder.fitting(part, np.array(labels, dtype=np.int64), len(rows))

    return read_names, read_part


def open_digits(settings: SourceSettings, progress: Progress) -> Source:
    """Open the handwritten digits that ship with scikit-learn: 1,797 grey images of 8 x 8 pixels with labels."""
    from sklearn.datasets import load_digits  # deferred: scikit-learn's data sets take half a second to import

    # Settings are refused before the data are loaded.
    refuse_split("digits", settings.split)
    fixed_labels("digits", None, settings)
    pixels, target = load_digits(return_X_y=True)
    images = torch.from_numpy((pixels * (255.0 / 16.0)).round().astype(np.uint8)).reshape(-1, 1, 8, 8)  # 16 is white
    return memory_source(
        "digits", images, fixed_labels("digits", number_labels(np.asarray(target), len(images)), settings)
    )


CATALOGUE: Mapping[str, NamedSource] = {
    "digits": NamedSource(
        "1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn", open_digits, has_files=False
    ),
    "cifar10": NamedSource(
        "60,000 photographs of 32 x 32 pixels in 10 classes (krizhevsky2009)",
        PublishedSet(
            "cifar10",
            "CIFAR10(ROOT, download=True)",
            10,
            {"train": 50_000, "test": 10_000},
            {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]},
            "cifar-10-batches-py",
            *_cifar("batches.meta", "label_names", "labels"),
        ).open,
        files=("cifar-10-batches-py",),
    ),
    "cifar100": NamedSource(
        "60,000 photographs of 32 x 32 pixels in 100 classes (krizhevsky2009)",
        PublishedSet(
            "cifar100",
            "CIFAR100(ROOT, download=True)",
            100,
            {"train": 50_000, "test": 10_000},
            {},
            "cifar-100-python",
            *_cifar("meta", "fine_label_names", "fine_labels"),  # coarse labels (20 superclasses) are another list
        ).open,
        files=("cifar-100-python",),
    ),
    "stl10": NamedSource(
        "13,000 photographs of 96 x 96 pixels in 10 classes, and 100,000 without labels (coates2011)",
        PublishedSet(
            "stl10",
            "STL10(ROOT, download=True)",
            10,
            {"train": 5_000, "test": 8_000, "unlabeled": 100_000, "train+unlabeled": 105_000},
            {"train+unlabeled": ["train", "unlabeled"]},
            "stl10_binary",
            _stl10_names,
            _stl10_part,
        ).open,
        files=("stl10_binary",),
    ),
}
