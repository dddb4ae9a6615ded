"""CIFAR-10 and CIFAR-100 as published: the "python version" (pickled, but read as data) and the binary version."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import DataError
from counterpoint.data.formats.pickled_arrays import read_pickled
from counterpoint.data.sets.published import (
    PublishedSet,
    RawSet,
    first_folder,
    fitting_labels,
    missing,
    names_in,
    read_bytes,
)
from counterpoint.data.source import NamedSource

SIDE = 32
NUM_PIXELS = 3 * SIDE * SIDE
# A pickled number may have any length; one beyond int64 would end in an OverflowError.
LARGEST = 1 << 31  # that a file may call a class number


@dataclass(frozen=True)
class CifarFiles:
    """Where one of the two sets keeps its parts.

    Attributes:
        python: folder of the python version.
        binary: folder of the binary version.
        parts: file names (without ``.bin``) of each split.
        meta: python version's file of class names, and the key of the list in it.
        names: binary version's file of class names.
        num_classes: how many classes there are.
        label_key: python version's key of the class numbers.
        num_label_bytes: label bytes before each image of the binary version; the last one is read.
    """

    python: str
    binary: str
    parts: dict[str, tuple[str, ...]]
    meta: tuple[str, str]
    names: str
    num_classes: int
    label_key: str
    num_label_bytes: int


CIFAR10 = CifarFiles(
    python="cifar-10-batches-py",
    binary="cifar-10-batches-bin",
    parts={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    meta=("batches.meta", "label_names"),
    names="batches.meta.txt",
    num_classes=10,
    label_key="labels",
    num_label_bytes=1,
)
CIFAR100 = CifarFiles(
    python="cifar-100-python",
    binary="cifar-100-binary",
    parts={"train": ("train",), "test": ("test",)},
    meta=("meta", "fine_label_names"),
    names="fine_label_names.txt",
    num_classes=100,
    # Coarse labels (20 superclasses) are the file's other list, and the first label byte of the binary version.
    label_key="fine_labels",
    num_label_bytes=2,
)


def read_cifar(root: Path, files: CifarFiles, split: str, hint: str) -> RawSet:
    """Read one split of CIFAR-10 or CIFAR-100 (fine classes).

    Args:
        root: folder that holds the set's own folder.
        files: CIFAR10 or CIFAR100.
        split: train or test.
        hint: how to get the files, for the error.

    Raises:
        DataError: a file is missing, damaged, or of another size than its images need.
    """
    folder = first_folder(root, (files.python, files.binary), hint)
    if folder.name == files.python:
        names = _names_of(folder / files.meta[0], files, hint)
        parts = [_python_part(folder / part, files, hint) for part in files.parts[split]]
    else:
        names = names_in(folder / files.names, hint, files.num_classes)
        parts = [_binary_part(folder / f"{part}.bin", files, hint) for part in files.parts[split]]
    images, numbers = zip(*parts, strict=True)
    return RawSet(np.concatenate(images), np.concatenate(numbers), names)


def _python_part(path: Path, files: CifarFiles, hint: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and class numbers of one pickled file: rows of red, green and blue planes, and a list of class numbers."""
    content = _read_pickled(path, hint)
    rows, labels = content.get("data"), content.get(files.label_key)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != NUM_PIXELS:
        found = rows.shape if isinstance(rows, np.ndarray) else type(rows).__name__
        raise DataError(f"{path}: 'data' must be rows of {NUM_PIXELS} bytes, got {found}")
    if not isinstance(labels, list) or not all(type(label) is int and abs(label) <= LARGEST for label in labels):
        raise DataError(f"{path}: {files.label_key!r} must be a list of class numbers")
    numbers = fitting_labels(path, np.array(labels, dtype=np.int64), len(rows), files.num_classes)
    # A row is 1024 red, 1024 green and 1024 blue values, each plane row by row.
    return rows.reshape(-1, 3, SIDE, SIDE), numbers


def _read_pickled(path: Path, hint: str) -> dict[str, Any]:
    """A pickled file, if it is there."""
    if not path.exists():
        raise missing(path, hint)
    return read_pickled(path)


def _names_of(path: Path, files: CifarFiles, hint: str) -> tuple[str, ...]:
    """Class names of the python version."""
    key, count = files.meta[1], files.num_classes
    names = _read_pickled(path, hint).get(key)
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: {key!r} must be a list of {count} class names")
    return tuple(names)


def _binary_part(path: Path, files: CifarFiles, hint: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and class numbers of one binary file: for each image its label bytes, then red, green and blue planes."""
    content = np.frombuffer(read_bytes(path, hint), dtype=np.uint8)
    length = files.num_label_bytes + NUM_PIXELS
    if not len(content) or len(content) % length:
        raise DataError(f"{path} must hold records of {length} bytes, got {len(content):,} bytes; it is cut off")
    records = content.reshape(-1, length)
    numbers = records[:, files.num_label_bytes - 1].astype(np.int64)
    images = records[:, files.num_label_bytes :].reshape(-1, 3, SIDE, SIDE)
    return images, fitting_labels(path, numbers, len(records), files.num_classes)


CATALOGUE: Mapping[str, NamedSource] = {
    "cifar10": NamedSource(
        "60,000 photographs of 32 x 32 pixels in 10 classes (krizhevsky2009)",
        PublishedSet(
            "cifar10",
            "CIFAR10(ROOT, download=True)",
            {"train": 50_000, "test": 10_000},
            lambda root, split, hint: read_cifar(root, CIFAR10, split, hint),
        ).open,
        files=(CIFAR10.python, CIFAR10.binary),
    ),
    "cifar100": NamedSource(
        "60,000 photographs of 32 x 32 pixels in 100 classes (krizhevsky2009)",
        PublishedSet(
            "cifar100",
            "CIFAR100(ROOT, download=True)",
            {"train": 50_000, "test": 10_000},
            lambda root, split, hint: read_cifar(root, CIFAR100, split, hint),
        ).open,
        files=(CIFAR100.python, CIFAR100.binary),
    ),
}
