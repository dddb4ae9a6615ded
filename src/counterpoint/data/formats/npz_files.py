"""NumPy files without pickle, whose header is checked against the bytes behind it.

Own code beside ``np.load``, which takes memory for whatever a header promises, passes over bytes that are left, and
reads no member in pieces.
"""

import math
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from counterpoint.core.errors import DataError, UsageError, first_line

NPZ_ERRORS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    NotImplementedError,
    RuntimeError,  # an encrypted member
    MemoryError,
    SyntaxError,  # a header that is no Python literal
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class ArrayHeader:
    """What stands before an array's bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    is_fortran: bool

    @property
    def num_bytes(self) -> int:
        """Size of the array in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


def npz_keys(path: Path) -> tuple[str, ...]:
    """Names of the arrays in a ``.npz``.

    Raises:
        DataError: not a zip archive.
    """
    with _readable(path), zipfile.ZipFile(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))


def read_npz(path: Path, keys: Collection[str]) -> dict[str, np.ndarray]:
    """Read some arrays of a ``.npz``; names that it does not hold are left out.

    Raises:
        DataError: damaged, holds Python objects, or promises more data than it has.
    """
    arrays = {}
    present = npz_keys(path)
    for key in [key for key in keys if key in present]:
        with open_member(path, key) as (stream, header):
            arrays[key] = _read_rest(stream, header)
    return arrays


def holds_objects(path: Path, key: str) -> bool:
    """Whether an array of a ``.npz`` holds Python objects, as its header says; they are never read.

    Raises:
        DataError: the archive or the header is damaged.
    """
    with _readable(path), zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as stream:
        # Not by ``read_header``, which refuses objects.
        return _parse_header(stream).dtype.hasobject


def read_npy(path: Path) -> np.ndarray:
    """Read a ``.npy``.

    Raises:
        UsageError: it does not exist.
        DataError: as for ``read_npz``.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist")
    with _readable(path), path.open("rb") as stream:
        return _read_rest(stream, read_header(stream, path.stat().st_size))


@contextmanager
def open_member(path: Path, key: str) -> Iterator[tuple[IO[bytes], ArrayHeader]]:
    """Open one array of a ``.npz`` for reading in pieces: its bytes, and what they are.

    Raises:
        DataError: as for ``read_npz``; also when the bytes turn out to be damaged while they are read.
    """
    with _readable(path), zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{key}.npy")
        with archive.open(member) as stream:
            yield stream, read_header(stream, member.file_size)


def read_header(stream: IO[bytes], num_bytes: int) -> ArrayHeader:
    """Read and check an array's header.

    Args:
        stream: stands at the beginning of the array's file.
        num_bytes: size of the whole file.

    Raises:
        ValueError: no such header, Python objects, or another number of bytes than the shape needs.
    """
    header = _parse_header(stream)
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled")
    # Two negative lengths have a positive product.
    if any(length < 0 for length in header.shape) or header.num_bytes != num_bytes - stream.tell():
        raise ValueError(f"an array of shape {header.shape} does not fit its {num_bytes:,} bytes")
    return header


def _parse_header(stream: IO[bytes]) -> ArrayHeader:
    """Header as it is written; NumPy parses it as a literal and runs nothing."""
    version = np.lib.format.read_magic(stream)
    # Version 3 differs from 2 in the encoding of field names only, which plain arrays do not have.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    return ArrayHeader(shape, dtype, is_fortran)


def _read_rest(stream: IO[bytes], header: ArrayHeader) -> np.ndarray:
    """The array behind a header; writable."""
    # A bytearray, since an array over ``bytes`` is read-only, and torch warns of those.
    content = bytearray(stream.read())
    if len(content) != header.num_bytes:
        raise ValueError(f"{len(content):,} bytes where {header.num_bytes:,} should be")
    array = np.frombuffer(content, dtype=header.dtype) if content else np.empty(0, header.dtype)
    return array.reshape(header.shape, order="F" if header.is_fortran else "C")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say in one line what is wrong with a file."""
    try:
        yield
    except DataError:
        raise
    except NPZ_ERRORS as error:
        raise DataError(f"{path} is not a readable NumPy file: {first_line(error)}") from None
