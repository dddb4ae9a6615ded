"""NumPy files, read by NumPy without pickle after the header was checked against the bytes behind it.

``np.load`` alone takes memory for whatever a header promises, and passes over bytes that are left.
"""

import io
import math
import reprlib
import sys
import warnings
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from counterpoint.core.errors import CounterpointError, DataError, UsageError, first_line
from counterpoint.core.operating_system import available_memory
from counterpoint.core.user_files import exists, length, open_regular

HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
MAX_PIECE_BYTES = 1 << 24  # read at once of an archive: a list of a hundred thousand members
# An array that unpacks to more than this may not be packed tighter: sprites of two colours are packed 116 to 1.
MAX_EASY_BYTES, MAX_PACKING = 1 << 28, 250


def npz_keys(path: Path) -> tuple[str, ...]:
    """Names of the arrays in a ``.npz``.

    Raises:
        DataError: not a zip archive.
    """
    with _archive(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))


def read_npz(path: Path, keys: Collection[str]) -> dict[str, np.ndarray]:
    """Read some arrays of a ``.npz``; names that it does not hold are left out.

    Raises:
        DataError: damaged, holds Python objects, or promises more data than it has.
    """
    arrays = {}
    with _archive(path) as archive:
        present = archive.namelist()
        for key in [key for key in keys if f"{key}.npy" in present]:
            member = archive.getinfo(f"{key}.npy")
            if member.file_size > max(MAX_EASY_BYTES, MAX_PACKING * member.compress_size):  # made to fill the memory
                raise ValueError(
                    f"{member.filename} unpacks {member.compress_size:,} bytes to {member.file_size:,}; above "
                    f"{MAX_EASY_BYTES:,} at most {MAX_PACKING} times as many are taken, so save such data unpacked "
                    "(np.savez)"
                )
            with archive.open(member) as stream:
                arrays[key] = _read(stream, member.file_size)
    return arrays


def read_npy(path: Path) -> np.ndarray:
    """Read a ``.npy``.

    Raises:
        UsageError: it does not exist.
        DataError: as for ``read_npz``.
    """
    if not exists(path):
        raise UsageError(f"{path} does not exist")
    with _readable(path), open_regular(path) as stream:
        return _read(stream, length(stream))


def _read(stream: IO[bytes], num_bytes: int) -> np.ndarray:
    """The array in a file of this many bytes; writable."""
    version = np.lib.format.read_magic(stream)
    if version not in HEADER_READERS:
        raise ValueError(f"its header of version {version[0]} is not one that NumPy writes for arrays of one kind")
    with warnings.catch_warnings(action="ignore"):  # about odd numbers in damaged headers, and those of Python 2
        shape, _, dtype = HEADER_READERS[version](stream)  # a literal, of which nothing is run
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled")
    needed = math.prod(shape) * dtype.itemsize
    if needed != num_bytes - stream.tell() or min(shape, default=0) < 0:
        raise ValueError(f"an array of shape {reprlib.repr(shape)} does not fit its {num_bytes:,} bytes")
    if needed > available_memory():
        raise ValueError(f"an array of {needed:,} bytes does not fit the memory: {available_memory():,} are free")
    stream.seek(0)
    with warnings.catch_warnings(action="ignore"):  # as in the header
        array = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.kind == "U" and array.size:
        letters = array.reshape(-1, order="A").view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if letters.size and letters.max() > sys.maxunicode:
            raise ValueError("its text has invalid characters")
    return array


class _PieceReader(io.BufferedReader):
    """A reader of no more than a piece at once: sizes in a damaged archive may be any number."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_PIECE_BYTES:
            raise OSError(f"a list or header in it has {size:,} bytes, at most {MAX_PIECE_BYTES:,} are read")
        return super().read(MAX_PIECE_BYTES if size is None or size < 0 else size)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive; an error, also one while it is read, is reported in one line."""
    with _readable(path), _PieceReader(open_regular(path).detach()) as stream, zipfile.ZipFile(stream) as archive:
        yield archive


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say in one line what is wrong with a file, whatever NumPy's, Python's and the unpacker's parsers say of it."""
    try:
        yield
    except CounterpointError:
        raise
    except Exception as error:
        raise DataError(f"{path} is not a readable NumPy file: {first_line(error)}") from None
