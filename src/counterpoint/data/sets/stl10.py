"""STL-10 as published: images without a header, their planes stored column by column, and a byte per label."""

# N samples, C channels, H height, W width

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.user_files import open_regular
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

STL10_FOLDER = "stl10_binary"
STL10_SHAPE = (3, 96, 96)
NUM_CLASSES = 10
STL10_PARTS: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "test": ("test",),
    "unlabeled": ("unlabeled",),
    "train+unlabeled": ("train", "unlabeled"),
}
NUM_FOLDS, FOLD_SIZE = 10, 1_000
FOLDS = {f"fold-{number}": number for number in range(NUM_FOLDS)}  # labelled samples of train, the protocol's banks


@dataclass(frozen=True)
class PlaneFile:
    """A file of equal images without a header, its planes stored column by column.

    Attributes:
        path: the file.
        num_images: how many it holds.
    """

    path: Path
    num_images: int

    def raw(self) -> np.ndarray:
        """The file as an array (n, c, w, h) that is read where it is used."""
        # Column by column: the width is the slower of the two axes of a plane.
        channels, height, width = STL10_SHAPE
        shape = (self.num_images, channels, width, height)
        with open_regular(self.path) as stream:
            return np.memmap(stream, dtype=np.uint8, mode="r", shape=shape)


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

    def content(self) -> Sequence[np.ndarray]:
        """See ``LargeImages.content``."""
        return [file.raw() for file in self.files]


def find_stl10(root: Path, split: str, hint: str) -> RawSet:
    """Find one split of STL-10 and read its labels.

    Raises:
        DataError: a file is missing, or of another size than its images or labels need.
    """
    folder = first_folder(root, (STL10_FOLDER,), hint)
    names = names_in(folder / "class_names.txt", hint, NUM_CLASSES)
    if split in FOLDS:
        train = _plane_file(folder / "train_X.bin", hint)
        labels = _stl10_labels(folder / "train_y.bin", train.num_images, hint)
        fold = _fold(folder / "fold_indices.txt", FOLDS[split], train.num_images, hint)
        return RawSet(PlaneStore((train,)).fetch(fold.tolist()).numpy(), labels[fold], names)
    files, numbers = [], []
    for part in STL10_PARTS[split]:
        file = _plane_file(folder / f"{part}_X.bin", hint)
        files.append(file)
        if part == "unlabeled":
            # No file of labels belongs to this part.
            numbers.append(np.full(file.num_images, -1, dtype=np.int64))
        else:
            numbers.append(_stl10_labels(folder / f"{part}_y.bin", file.num_images, hint))
    return RawSet(PlaneStore(tuple(files)), np.concatenate(numbers), names)


def _fold(path: Path, number: int, num_images: int, hint: str) -> np.ndarray:
    """Positions of one fold's samples in ``train``; the file has a line for each fold, and counts from 0."""
    lines = [line.split() for line in read_bytes(path, hint).decode("ascii", errors="replace").splitlines()]
    lines = [line for line in lines if line]
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


def _plane_file(path: Path, hint: str) -> PlaneFile:
    """A file of images, if its size fits."""
    length = math.prod(STL10_SHAPE)
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
    except FileNotFoundError:
        raise missing(path, hint) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    if not size or size % length:
        raise DataError(f"{path} must hold images of {length} bytes, got {size:,} bytes; it is cut off")
    return PlaneFile(path, size // length)


def _stl10_labels(path: Path, num_images: int, hint: str) -> np.ndarray:
    """Class numbers; the file counts from 1."""
    numbers = np.frombuffer(read_bytes(path, hint), dtype=np.uint8).astype(np.int64) - 1
    return fitting_labels(path, numbers, num_images, NUM_CLASSES)


CATALOGUE: Mapping[str, NamedSource] = {
    "stl10": NamedSource(
        "13,000 photographs of 96 x 96 pixels in 10 classes, and 100,000 without labels (coates2011); fold-0 to fold-9 "
        "are its labelled folds",
        PublishedSet(
            "stl10",
            "STL10(ROOT, download=True)",
            {"train": 5_000, "test": 8_000, "unlabeled": 100_000, "train+unlabeled": 105_000}
            | dict.fromkeys(FOLDS, FOLD_SIZE),
            find_stl10,
        ).open,
        files=(STL10_FOLDER,),
    ),
}
