"""Named sets that others publish, CIFAR and STL-10: where their files lie, how to get them, and a reader per form.

A set of a known form is an entry of a ``CATALOGUE``; a new form is a function that reads class names and one that reads
a part (``digits`` has MNIST's).
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, first_line
from counterpoint.core.user_files import open_regular, read_regular
from counterpoint.data.formats.indexed_images import MEMORY_BUDGET_BYTES
from counterpoint.data.formats.labels import Labels
from counterpoint.data.formats.pickled_arrays import read_pickled
from counterpoint.data.source import (
    NamedSource,
    Progress,
    Source,
    choose_split,
    fingerprint,
    fixed_labels,
    memory_source,
    root_folder,
    source_of,
)

MAX_FILE_BYTES = 1 << 30  # CIFAR-100's largest has 155 MB; STL-10's are never read whole
# A pickled number may have any length; one beyond int64 would end in an OverflowError.
LARGEST = 1 << 31  # that a file may call a class number
CIFAR_SHAPE, STL10_SHAPE = (3, 32, 32), (3, 96, 96)
NUM_FOLDS, FOLD_SIZE = 10, 1_000
FOLDS = {f"fold-{number}": number for number in range(NUM_FOLDS)}  # labelled samples of STL-10's train


@dataclass(frozen=True)
class Folder:
    """A folder of a set's files.

    Attributes:
        path: where it lies.
        hint: how to get the files, for errors.
        num_classes: how many classes the set has.
    """

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


@dataclass(frozen=True)
class PlaneFile:
    """A file of STL-10: images without a header, their planes stored column by column.

    Attributes:
        path: the file.
        num_images: how many it holds.
    """

    path: Path
    num_images: int

    def raw(self) -> np.ndarray:
        """The file as an array (n, c, w, h) that is read where it is used."""
        channels, height, width = STL10_SHAPE
        with open_regular(self.path) as stream:
            return np.memmap(stream, dtype=np.uint8, mode="r", shape=(self.num_images, channels, width, height))


@dataclass(frozen=True)
class PlaneStore:
    """Images of such files, end to end, read when fetched: STL-10's unlabeled part has 2.8 GB."""

    files: tuple[PlaneFile, ...]

    def __len__(self) -> int:
        return sum(file.num_images for file in self.files)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        asked = np.asarray(positions, dtype=np.int64)
        samples = np.empty((len(asked), *STL10_SHAPE), dtype=np.uint8)
        start = 0
        for file in self.files:
            here = (asked >= start) & (asked < start + file.num_images)
            if here.any():
                # (n, c, w, h) to (n, c, h, w). Only the pages of the images asked for are read.
                samples[here] = file.raw()[asked[here] - start].transpose(0, 1, 3, 2)
            start += file.num_images
        return torch.from_numpy(samples)


Part = tuple[np.ndarray | PlaneFile, np.ndarray]  # images, and class numbers that are -1 where there is no label
Form = tuple[Callable[[Folder], tuple[str, ...]], Callable[[Folder, str], Part]]  # reads class names; reads a part


@dataclass(frozen=True)
class PublishedSet:
    """A set that others publish.

    Attributes:
        name: how the user names it.
        call: torchvision's call that gets it once, with ROOT to be filled in.
        num_classes: how many classes it has.
        num_samples: published size of each split; the first split is what ``auto`` stands for.
        parts: the parts of which a split consists, where it is not one of its own name.
        forms: by the folder, below the root, that holds the files in this form; the first that is there is read.
    """

    name: str
    call: str
    num_classes: int
    num_samples: Mapping[str, int]
    parts: Mapping[str, Sequence[str]]
    forms: Mapping[str, Form]

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
            name = next(
                (name for name in self.forms if (root_folder(settings) / name).is_dir()), next(iter(self.forms))
            )
            read_names, read_part = self.forms[name]
            folder = Folder(root_folder(settings) / name, self._hint(settings), self.num_classes)
            class_names = read_names(folder)
            parts = [read_part(folder, part) for part in self.parts.get(split, (split,))]
            numbers = np.concatenate([part[1] for part in parts])
            # A note, not an error: a part of a set, for a test, is data, too.
            if len(numbers) != self.num_samples[split]:
                published = self.num_samples[split]
                notes["data"] = f"{len(numbers):,} samples; the published split has {published:,}"
            labels = fixed_labels(self.name, Labels(torch.from_numpy(numbers), class_names), settings)
            source = _source(self.name, [part[0] for part in parts], labels, notes)
            advance()
        return source

    def _hint(self, settings: SourceSettings) -> str:
        """How to get the set's files."""
        call = self.call.replace("ROOT", repr(str(root_folder(settings))))
        return (
            f'get {self.name} once with python -c "from torchvision.datasets import *; {call}", or name the folder '
            f"that has it with --source.root"
        )


def _source(
    name: str, images: Sequence[np.ndarray | PlaneFile], labels: Labels | None, notes: Mapping[str, str]
) -> Source:
    """Source in memory, or over the set's own files where it is too large for that."""
    arrays = [part for part in images if isinstance(part, np.ndarray)]
    if arrays:
        return memory_source(name, torch.from_numpy(np.concatenate(arrays)), labels, notes=notes)
    # STL-10: train and test fit into memory, the unlabelled part does not.
    store = PlaneStore(tuple(part for part in images if isinstance(part, PlaneFile)))
    if len(store) * math.prod(STL10_SHAPE) <= MEMORY_BUDGET_BYTES:
        return memory_source(name, store.fetch(range(len(store))), labels, notes=notes)
    content = fingerprint([file.raw() for file in store.files], labels)
    return source_of(name, store, STL10_SHAPE, labels, fingerprint=content, notes=notes)


def _lines_of(file: str) -> Callable[[Folder], tuple[str, ...]]:
    """Reader of class names from a text, one per line."""

    def read(folder: Folder) -> tuple[str, ...]:
        try:
            names = tuple(line.strip() for line in folder.read(file).decode("utf-8").splitlines() if line.strip())
        except UnicodeDecodeError as error:
            raise DataError(f"{folder.path / file} is not text: {first_line(error)}") from None
        if len(names) != folder.num_classes:
            raise DataError(
                f"{folder.path / file} must name {folder.num_classes} classes, one per line, got {len(names)}"
            )
        return names

    return read


def _pickled_cifar(meta: str, names_key: str, labels_key: str) -> Form:
    """CIFAR's "python version": a file of names, and parts of rows of planes with a list of class numbers."""

    def read_names(folder: Folder) -> tuple[str, ...]:
        names, count = read_pickled(folder.file(meta)).get(names_key), folder.num_classes
        if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
            raise DataError(f"{folder.path / meta}: {names_key!r} must be a list of {count} class names")
        return tuple(names)

    def read_part(folder: Folder, part: str) -> Part:
        content: dict[str, Any] = read_pickled(folder.file(part))
        rows, labels, length = content.get("data"), content.get(labels_key), math.prod(CIFAR_SHAPE)
        if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != length:
            found = rows.shape if isinstance(rows, np.ndarray) else type(rows).__name__
            raise DataError(f"{folder.path / part}: 'data' must be rows of {length} bytes, got {found}")
        if not isinstance(labels, list) or not all(type(label) is int and abs(label) <= LARGEST for label in labels):
            raise DataError(f"{folder.path / part}: {labels_key!r} must be a list of class numbers")
        # A row is 1024 red, 1024 green and 1024 blue values, each plane row by row.
        return rows.reshape(-1, *CIFAR_SHAPE), folder.fitting(part, np.array(labels, dtype=np.int64), len(rows))

    return read_names, read_part


def _binary_cifar(meta: str, num_label_bytes: int) -> Form:
    """CIFAR's binary version: for each image its label bytes, of which the last is read, then its planes."""

    def read_part(folder: Folder, part: str) -> Part:
        name, length = f"{part}.bin", num_label_bytes + math.prod(CIFAR_SHAPE)
        content = np.frombuffer(folder.read(name), dtype=np.uint8)
        if not len(content) or len(content) % length:
            raise DataError(
                f"{folder.path / name} must hold records of {length} bytes, got {len(content):,} bytes; it is cut off"
            )
        records = content.reshape(-1, length)
        numbers = folder.fitting(name, records[:, num_label_bytes - 1], len(records))
        return records[:, num_label_bytes:].reshape(-1, *CIFAR_SHAPE), numbers

    return _lines_of(meta), read_part


def _planes(folder: Folder, part: str) -> Part:
    """STL-10: a file of planes, a byte per label that counts from 1, and a file of folds of ``train``."""
    name = "train" if part in FOLDS else part
    path, length = folder.file(f"{name}_X.bin"), math.prod(STL10_SHAPE)
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    if not size or size % length:
        raise DataError(f"{path} must hold images of {length} bytes, got {size:,} bytes; it is cut off")
    file = PlaneFile(path, size // length)
    if part == "unlabeled":  # no file of labels belongs to it
        return file, np.full(file.num_images, -1, dtype=np.int64)
    numbers = np.frombuffer(folder.read(f"{name}_y.bin"), dtype=np.uint8).astype(np.int64) - 1
    numbers = folder.fitting(f"{name}_y.bin", numbers, file.num_images)
    if part not in FOLDS:
        return file, numbers
    rows = _fold(folder, FOLDS[part], file.num_images)
    return PlaneStore((file,)).fetch(rows.tolist()).numpy(), numbers[rows]


def _fold(folder: Folder, number: int, num_images: int) -> np.ndarray:
    """Positions of one fold's samples in ``train``; the file has a line for each fold, and counts from 0."""
    path = folder.path / "fold_indices.txt"
    text = folder.read(path.name).decode("ascii", errors="replace")
    lines = [words for line in text.splitlines() if (words := line.split())]
    if len(lines) != NUM_FOLDS:
        raise DataError(f"{path} must have a line for each of {NUM_FOLDS} folds, got {len(lines)}")
    wrong = [word for word in lines[number] if not (word.isascii() and word.isdigit() and len(word) < 10)]
    if wrong:
        raise DataError(f"{path}: line {number + 1} must hold whole numbers, got {wrong[0]!r}")
    fold = np.array(lines[number], dtype=np.int64)
    if fold.max() >= num_images or len(np.unique(fold)) < len(fold):
        raise DataError(
            f"{path}: line {number + 1} must name images 0 to {num_images - 1} of train, each once; the largest of its "
            f"{len(fold)} numbers is {fold.max()}"
        )
    return fold


CATALOGUE: Mapping[str, NamedSource] = {
    "cifar10": NamedSource(
        "60,000 photographs of 32 x 32 pixels in 10 classes (krizhevsky2009)",
        PublishedSet(
            "cifar10",
            "CIFAR10(ROOT, download=True)",
            10,
            {"train": 50_000, "test": 10_000},
            {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]},
            {
                "cifar-10-batches-py": _pickled_cifar("batches.meta", "label_names", "labels"),
                "cifar-10-batches-bin": _binary_cifar("batches.meta.txt", num_label_bytes=1),
            },
        ).open,
        files=("cifar-10-batches-py", "cifar-10-batches-bin"),
    ),
    "cifar100": NamedSource(
        "60,000 photographs of 32 x 32 pixels in 100 classes (krizhevsky2009)",
        PublishedSet(
            "cifar100",
            "CIFAR100(ROOT, download=True)",
            100,
            {"train": 50_000, "test": 10_000},
            {},
            {
                # Coarse labels (20 superclasses) are another list, and the first label byte of the binary version.
                "cifar-100-python": _pickled_cifar("meta", "fine_label_names", "fine_labels"),
                "cifar-100-binary": _binary_cifar("fine_label_names.txt", num_label_bytes=2),
            },
        ).open,
        files=("cifar-100-python", "cifar-100-binary"),
    ),
    "stl10": NamedSource(
        "13,000 photographs of 96 x 96 pixels in 10 classes, and 100,000 without labels (coates2011); fold-0 to fold-9 "
        "are its labelled folds",
        PublishedSet(
            "stl10",
            "STL10(ROOT, download=True)",
            10,
            {"train": 5_000, "test": 8_000, "unlabeled": 100_000, "train+unlabeled": 105_000}
            | dict.fromkeys(FOLDS, FOLD_SIZE),
            {"train+unlabeled": ["train", "unlabeled"]},
            {"stl10_binary": (_lines_of("class_names.txt"), _planes)},
        ).open,
        files=("stl10_binary",),
    ),
}
