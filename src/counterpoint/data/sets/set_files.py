"""What the readers of published data sets share: find a file or say how to get it, and join parts."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterpoint.core.errors import DataError, first_line


@dataclass(frozen=True)
class RawSet:
    """One split of a published set.

    Attributes:
        images: uint8 (n, c, h, w).
        numbers: int64 (n,), -1 where there is no label.
        class_names: name of each class number.
    """

    images: np.ndarray
    numbers: np.ndarray
    class_names: tuple[str, ...]


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


def read_bytes(path: Path, hint: str, *, at_most: int | None = None) -> bytes:
    """Read a file, or only its beginning.

    Raises:
        DataError: missing (says how to get it) or not readable.
    """
    try:
        with path.open("rb") as stream:
            return stream.read() if at_most is None else stream.read(at_most)
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


def join(parts: Sequence[RawSet], class_names: tuple[str, ...]) -> RawSet:
    """Parts of one set, end to end."""
    images, numbers = [part.images for part in parts], [part.numbers for part in parts]
    return RawSet(np.concatenate(images), np.concatenate(numbers), class_names)


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


def inflate(content: bytes, path: Path, *, at_most: int) -> bytes:
    """Unpack gzip, up to a number of bytes, so that a small file cannot fill the memory.

    Raises:
        DataError: damaged, cut off, or longer.
    """
    unpacker = zlib.decompressobj(wbits=31)  # 31: a gzip header around the data
    try:
        unpacked = unpacker.decompress(content, at_most + 1)
    except zlib.error as error:
        raise DataError(f"{path} cannot be unpacked: {first_line(error)}") from None
    if len(unpacked) > at_most:
        raise DataError(f"{path} unpacks to more than {at_most:,} bytes")
    if not unpacker.eof:
        raise DataError(f"{path} is cut off")
    return unpacked
