"""Small grey pictures: scikit-learn's digits, and MNIST and Fashion-MNIST as published (idx files, packed or not)."""

# N samples, C channels, H height, W width

import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, first_line
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.sets.published import PublishedSet, RawSet, fitting_labels, read_bytes
from counterpoint.data.source import NamedSource, Progress, Source, fixed_labels, memory_source, refuse_split

IDX_BYTES = 8  # the type code of unsigned bytes
MAX_IDX_BYTES = 1 << 28  # the largest that is published has 47 MB
DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


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
    # As torchvision lays the files out.
    raw, start = root / folder / "raw", {"train": "train", "test": "t10k"}[split]
    images_NHW = _read_idx(raw / f"{start}-images-idx3-ubyte", 3, hint)
    path = raw / f"{start}-labels-idx1-ubyte"
    numbers = fitting_labels(path, _read_idx(path, 1, hint).astype(np.int64), len(images_NHW), len(class_names))
    return RawSet(images_NHW[:, None], numbers, class_names)


def _read_idx(path: Path, num_axes: int, hint: str) -> np.ndarray:
    """Array of bytes behind an idx header: two zeros, type, number of axes, then each length (big-endian)."""
    packed = path.with_name(f"{path.name}.gz")
    is_packed = not path.is_file() and packed.is_file()
    # The unpacked file wins where both are there.
    path = packed if is_packed else path
    content = read_bytes(path, hint)
    if is_packed:
        content = _inflate(content, path)
    header = 4 + 4 * num_axes
    if len(content) < header or content[:4] != bytes([0, 0, IDX_BYTES, num_axes]):
        raise DataError(f"{path} does not begin as an idx file of bytes with {num_axes} axes does")
    shape = tuple(np.frombuffer(content, dtype=">u4", count=num_axes, offset=4).tolist())
    if math.prod(shape) != len(content) - header or 0 in shape:
        raise DataError(f"{path} should hold {shape} bytes, got {len(content) - header:,}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()  # writable, as torch asks


def _inflate(content: bytes, path: Path) -> bytes:
    """Unpack gzip, up to a number of bytes, so that a small file cannot fill the memory."""
    unpacker = zlib.decompressobj(wbits=31)  # 31: a gzip header around the data
    try:
        # One byte more than is allowed tells too large from just fitting.
        unpacked = unpacker.decompress(content, MAX_IDX_BYTES + 1)
    except zlib.error as error:
        raise DataError(f"{path} cannot be unpacked: {first_line(error)}") from None
    if len(unpacked) > MAX_IDX_BYTES:
        raise DataError(f"{path} unpacks to more than {MAX_IDX_BYTES:,} bytes")
    # decompress gives what it has of a file that ends early, without an error.
    if not unpacker.eof:
        raise DataError(f"{path} is cut off")
    return unpacked


CATALOGUE: Mapping[str, NamedSource] = {
    "digits": NamedSource(
        "1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn", open_digits, has_files=False
    ),
    "mnist": NamedSource(
        "70,000 handwritten digits of 28 x 28 pixels (lecun1998)",
        PublishedSet(
            "mnist",
            "MNIST(ROOT, download=True)",
            {"train": 60_000, "test": 10_000},
            lambda root, split, hint: read_mnist(root, "MNIST", split, DIGITS, hint),
        ).open,
        files=("MNIST",),
    ),
    "fashion-mnist": NamedSource(
        "70,000 pieces of clothing, grey, 28 x 28 pixels, 10 classes (xiao2017)",
        PublishedSet(
            "fashion-mnist",
            "FashionMNIST(ROOT, download=True)",
            {"train": 60_000, "test": 10_000},
            lambda root, split, hint: read_mnist(root, "FashionMNIST", split, FASHION, hint),
        ).open,
        files=("FashionMNIST",),
    ),
}
