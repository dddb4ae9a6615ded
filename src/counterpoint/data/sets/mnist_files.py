"""MNIST and the sets in its form as published: idx files, packed with gzip or not."""

# N samples, C channels, H height, W width

import math
from pathlib import Path

import numpy as np

from counterpoint.core.errors import DataError
from counterpoint.data.sets.set_files import RawSet, fitting_labels, inflate, read_bytes

IDX_BYTES = 8  # the type code of unsigned bytes
MAX_IDX_BYTES = 1 << 30


def read_mnist(root: Path, folder: str, split: str, class_names: tuple[str, ...], hint: str) -> RawSet:
    """Read one split of MNIST or a set in its form, packed (.gz) or not.

    Args:
        root: folder of the named sets.
        folder: the set's own folder, such as FashionMNIST; its files lie in ``raw``.
        split: train or test.
        class_names: name of each class number.
        hint: how to get the files.

    Raises:
        DataError: a file is missing, damaged, or of another size than its header says.
    """
    raw, start = root / folder / "raw", {"train": "train", "test": "t10k"}[split]
    images_NHW = _read_idx(raw / f"{start}-images-idx3-ubyte", 3, hint)
    path = raw / f"{start}-labels-idx1-ubyte"
    numbers = fitting_labels(path, _read_idx(path, 1, hint).astype(np.int64), len(images_NHW), len(class_names))
    return RawSet(images_NHW[:, None], numbers, class_names)


def _read_idx(path: Path, num_axes: int, hint: str) -> np.ndarray:
    """Array of bytes behind an idx header: two zeros, type, number of axes, then each length (big-endian)."""
    packed = path.with_name(f"{path.name}.gz")
    is_packed = not path.is_file() and packed.is_file()
    path = packed if is_packed else path
    content = read_bytes(path, hint)
    if is_packed:
        content = inflate(content, path, at_most=MAX_IDX_BYTES)
    header = 4 + 4 * num_axes
    if len(content) < header or content[:4] != bytes([0, 0, IDX_BYTES, num_axes]):
        raise DataError(f"{path} does not begin as an idx file of bytes with {num_axes} axes does")
    shape = tuple(np.frombuffer(content, dtype=">u4", count=num_axes, offset=4).tolist())
    if math.prod(shape) != len(content) - header or 0 in shape:
        raise DataError(f"{path} should hold {shape} bytes, got {len(content) - header:,}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()  # writable, as torch asks
