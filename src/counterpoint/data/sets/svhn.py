"""SVHN's cropped digits as published: one MATLAB file (version 5) per split.

A file is a header of 128 bytes and a row of elements: type, size, content. An element of type 15 is another one, packed
with zlib; one of type 14 is an array, itself a row of elements: flags, lengths of the axes, name, values. Only that
much is read here, each length checked before it is believed: `scipy.io.loadmat` ended the process on damaged files.
"""

# N samples, C channels, H height, W width

import math
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.user_files import read_regular
from counterpoint.data.sets.published import MAX_FILE_BYTES, PublishedSet, RawSet, fitting_labels, missing
from counterpoint.data.source import NamedSource

SVHN_SHAPE = (32, 32, 3)


def read_svhn(root: Path, split: str, hint: str) -> RawSet:
    """Read one split of SVHN's cropped digits; the file's class 10 is the digit 0.

    Raises:
        DataError: the file is missing, damaged, or holds something else.
    """
    path = root / f"{split}_32x32.mat"
    if not path.exists():
        raise missing(path, hint)
    content = read_mat(path, ("X", "y"))
    images_HWCN, digits = (content.get(name, np.zeros(0)) for name in ("X", "y"))
    if images_HWCN.dtype != np.uint8 or images_HWCN.ndim != 4 or images_HWCN.shape[:3] != SVHN_SHAPE:
        raise DataError(f"{path}: X must be bytes of shape (32, 32, 3, n), got {images_HWCN.shape}")
    if not digits.size or not np.isin(digits, np.arange(1, 11)).all():
        raise DataError(f"{path}: y must be digits 1 to 10, got {digits.dtype} of shape {digits.shape}")
    # 10 % 10 = 0: the class number is the digit.
    numbers = fitting_labels(path, digits.reshape(-1).astype(np.int64) % 10, images_HWCN.shape[3], 10)
    return RawSet(np.ascontiguousarray(images_HWCN.transpose(3, 2, 0, 1)), numbers, tuple("0123456789"))


HEADER_BYTES = 128
ORDERS = {b"IM": "<", b"MI": ">"}  # the header's last two bytes tell the order of bytes
ARRAY, PACKED = 14, 15
VALUE_TYPES: Mapping[int, str] = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
COMPLEX = 0x0800
MAX_AXES = 32
MAX_ELEMENTS = 1000  # of a file; SVHN's have two
MAX_EASY_BYTES, MAX_PACKING = 1 << 26, 20  # photographs are packed 2 to 1 at most
MAT_ERRORS = (OSError, ValueError, struct.error, zlib.error, MemoryError, OverflowError)


@dataclass(frozen=True)
class _Element:
    """One element's type and content."""

    kind: int
    content: memoryview


def read_mat(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """Read some arrays of a MATLAB file; names that it does not hold are left out.

    Args:
        path: a file of MATLAB's version 5 to 7.2.
        names: variables that are wanted; they must be real arrays of numbers.

    Raises:
        DataError: another form, damaged, or cut off.
    """
    try:
        content = memoryview(read_regular(path, MAX_FILE_BYTES))
        order = ORDERS.get(bytes(content[HEADER_BYTES - 2 : HEADER_BYTES]))
        if order is None:
            raise ValueError("it does not begin as such a file does")
        found = {}
        for number, element in enumerate(_elements(content[HEADER_BYTES:], order, is_top=True)):
            if number == MAX_ELEMENTS:
                raise ValueError(f"more than {MAX_ELEMENTS} elements")
            whole = _unpacked(element, order)
            if whole.kind == ARRAY:
                found.update(_array(whole.content, order, names))
        return found
    except MAT_ERRORS as error:
        raise DataError(f"{path} is not a readable MATLAB file: {first_line(error)}") from None


def _elements(content: memoryview, order: str, *, is_top: bool = False) -> Iterator[_Element]:
    """Elements one after the other; inside an array each begins at a multiple of 8 bytes."""
    place = 0
    while place < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        start = place + 8
        if kind >> 16:  # a small one: type and size share the first word, up to 4 bytes follow
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
            if size > 4:
                raise ValueError(f"a small element of {size} bytes")
        if start + size > len(content):
            raise ValueError(f"cut off: an element of {size:,} bytes where {len(content) - start:,} are left")
        yield _Element(kind, content[start : start + size])
        # A small element takes 8 bytes in all; a packed one at the top is followed at once; others fill up to 8.
        place = start + (4 if start == place + 4 else size if is_top and kind == PACKED else -(-size // 8) * 8)


def _unpacked(element: _Element, order: str) -> _Element:
    """The element itself, or the one packed in it."""
    if element.kind != PACKED:
        return element
    unpacker = zlib.decompressobj()
    # Bounded: a megabyte of zeros, packed, is a kilobyte.
    at_most = MAX_EASY_BYTES + MAX_PACKING * len(element.content)
    content = unpacker.decompress(element.content, at_most)
    if not unpacker.eof:
        raise ValueError(f"a packed element is cut off, or unpacks to more than {at_most:,} bytes")
    inner = list(islice(_elements(memoryview(content), order), 2))
    if len(inner) != 1:
        raise ValueError("a packed element does not hold one other")
    return inner[0]


def _array(content: memoryview, order: str, names: Collection[str]) -> dict[str, np.ndarray]:
    """An array by its name, if it is wanted."""
    elements = _elements(content, order)
    # The format fixes the order: flags, lengths of the axes, name, values.
    flags, lengths, name = (next(elements, None) for _ in range(3))
    if flags is None or lengths is None or name is None or len(flags.content) != 8:
        raise ValueError("an array without flags, lengths or name")
    text = bytes(name.content).decode("latin-1")
    if text not in names:
        return {}
    values = next(elements, None)
    if values is None or values.kind not in VALUE_TYPES or struct.unpack_from(f"{order}I", flags.content)[0] & COMPLEX:
        raise ValueError(f"{text} is not an array of numbers")
    shape = np.frombuffer(lengths.content, dtype=f"{order}i4").tolist()
    # The type of the stored values may be smaller than that of the array: MATLAB saves whole doubles as bytes.
    array = np.frombuffer(values.content, dtype=f"{order}{VALUE_TYPES[values.kind]}")
    if len(shape) > MAX_AXES or any(length < 0 for length in shape) or math.prod(shape) != len(array):
        raise ValueError(f"{text} has {len(array):,} values, which do not fill its shape")
    return {text: array.reshape(shape, order="F")}


CATALOGUE: Mapping[str, NamedSource] = {
    "svhn": NamedSource(
        "house numbers in photographs, 32 x 32 pixels, 10 digits (netzer2011)",
        PublishedSet(
            "svhn",
            "SVHN(ROOT, SPLIT, download=True)",
            {"train": 73_257, "test": 26_032, "extra": 531_131},
            read_svhn,
        ).open,
        files=("train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"),
    ),
}
