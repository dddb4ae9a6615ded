"""Small grey pictures: scikit-learn's digits, and MNIST and Fashion-MNIST as published (idx files, packed or not)."""

# N samples, H height, W width

import gzip
import io
import math
import zlib
from collections.abc import Mapping

import numpy as np
import torch

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, first_line
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.sets.published import Folder, Part, PublishedSet
from counterpoint.data.source import NamedSource, Progress, Source, fixed_labels, memory_source, refuse_split

IDX_BYTES = 8  # the type code of unsigned bytes
MAX_IDX_BYTES = 1 << 28  # unpacked; the largest that is published has 47 MB
SIZES = {"train": 60_000, "test": 10_000}
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


def _idx_pair(folder: Folder, part: str) -> Part:
    """A file of images and one of labels."""
    images_NHW, labels = _idx_array(folder, f"{part}-images-idx3-ubyte", 3), f"{part}-labels-idx1-ubyte"
    return images_NHW[:, None], folder.fitting(labels, _idx_array(folder, labels, 1), len(images_NHW))


def _idx_array(folder: Folder, name: str, num_axes: int) -> np.ndarray:
    """Array of bytes behind an idx header: two zeros, type, number of axes, then each length (big-endian)."""
    # The unpacked file wins where both are there.
    is_packed = not (folder.path / name).is_file() and (folder.path / f"{name}.gz").is_file()
    path = folder.path / (f"{name}.gz" if is_packed else name)
    content = folder.read(path.name)
    if is_packed:
        try:
            # One byte more than is allowed tells too large from just fitting: a small file cannot fill the memory.
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MAX_IDX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked: {first_line(error)}") from None
        if len(content) > MAX_IDX_BYTES:
            raise DataError(f"{path} unpacks to more than {MAX_IDX_BYTES:,} bytes")
    header = 4 + 4 * num_axes
    if len(content) < header or content[:4] != bytes([0, 0, IDX_BYTES, num_axes]):
        raise DataError(f"{path} does not begin as an idx file of bytes with {num_axes} axes does")
    shape = tuple(np.frombuffer(content, dtype=">u4", count=num_axes, offset=4).tolist())
    if math.prod(shape) != len(content) - header or 0 in shape:
        raise DataError(f"{path} should hold {shape} bytes, got {len(content) - header:,}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


CATALOGUE: Mapping[str, NamedSource] = {
    "digits": NamedSource(
        "1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn", open_digits, has_files=False
    ),
    "mnist": NamedSource(
        "70,000 handwritten digits of 28 x 28 pixels (lecun1998)",
        PublishedSet(
            "mnist",
            "MNIST(ROOT, download=True)",
            10,
            SIZES,
            {"test": ["t10k"]},
            "MNIST/raw",  # as torchvision lays the files out
            lambda _: DIGITS,
            _idx_pair,
        ).open,
        files=("MNIST",),
    ),
    "fashion-mnist": NamedSource(
        "70,000 pieces of clothing, grey, 28 x 28 pixels, 10 classes (xiao2017)",
        PublishedSet(
            "fashion-mnist",
            "FashionMNIST(ROOT, download=True)",
            10,
            SIZES,
            {"test": ["t10k"]},
            "FashionMNIST/raw",
            lambda _: FASHION,
            _idx_pair,
        ).open,
        files=("FashionMNIST",),
    ),
}
