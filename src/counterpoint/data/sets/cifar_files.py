"""CIFAR-10 and CIFAR-100 as published: the "python version" (pickled, but read as data) and the binary version."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import DataError
from counterpoint.data.formats.pickled_arrays import read_pickled
from counterpoint.data.sets.set_files import RawSet, first_folder, join, names_in, read_bytes

SIDE = 32
NUM_PIXELS = 3 * SIDE * SIDE


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
    return join(parts, names)


def _python_part(path: Path, files: CifarFiles, hint: str) -> RawSet:
    """One pickled file: rows of red, green and blue planes, and a list of class numbers."""
    read_bytes(path, hint, at_most=0)
    content = read_pickled(path)
    rows, labels = content.get("data"), content.get(files.label_key)
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != NUM_PIXELS:
        found = rows.shape if isinstance(rows, np.ndarray) else type(rows).__name__
        raise DataError(f"{path}: 'data' must be rows of {NUM_PIXELS} bytes, got {found}")
    numbers = _class_numbers(path, files, labels)
    if len(numbers) != len(rows):
        raise DataError(f"{path} has {len(rows)} images but {len(numbers)} labels")
    return RawSet(rows.reshape(-1, 3, SIDE, SIDE), numbers, ())


def _class_numbers(path: Path, files: CifarFiles, labels: Any) -> np.ndarray:
    """Class numbers of a list, each within the classes."""
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{path}: {files.label_key!r} must be a list of class numbers")
    if not all(0 <= label < files.num_classes for label in labels):
        last = files.num_classes - 1
        raise DataError(f"{path}: class numbers must be 0 to {last}, got {min(labels)} to {max(labels)}")
    return np.array(labels, dtype=np.int64)


def _names_of(path: Path, files: CifarFiles, hint: str) -> tuple[str, ...]:
    """Class names of the python version."""
    read_bytes(path, hint, at_most=0)
    key, count = files.meta[1], files.num_classes
    names = read_pickled(path).get(key)
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: {key!r} must be a list of {count} class names")
    return tuple(names)


def _binary_part(path: Path, files: CifarFiles, hint: str) -> RawSet:
    """One binary file: for each image its label bytes and its red, green and blue planes."""
    content = np.frombuffer(read_bytes(path, hint), dtype=np.uint8)
    length = files.num_label_bytes + NUM_PIXELS
    if not len(content) or len(content) % length:
        raise DataError(f"{path} must hold records of {length} bytes, got {len(content):,} bytes; it is cut off")
    records = content.reshape(-1, length)
    numbers = records[:, files.num_label_bytes - 1].astype(np.int64)
    if numbers.max() >= files.num_classes:
        raise DataError(f"{path}: class numbers must be 0 to {files.num_classes - 1}, got {numbers.max()}")
    return RawSet(records[:, files.num_label_bytes :].reshape(-1, 3, SIDE, SIDE), numbers, ())
