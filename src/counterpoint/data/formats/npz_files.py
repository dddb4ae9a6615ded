"""NumPy files without pickle, whose header is checked against the bytes behind it.

Own code beside ``np.load``, which takes memory for whatever a header promises, passes over bytes that are left, and
reads no member in pieces.
"""

import ast
import io
import math
import os
import re
import reprlib
import sys
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from counterpoint.core.errors import DataError, UsageError, first_line
from counterpoint.core.user_files import available_memory, open_regular

NPZ_ERRORS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    NotImplementedError,
    RuntimeError,  # an encrypted member
    MemoryError,
    OverflowError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
)
MAX_HEADER_BYTES = 10_000  # NumPy's own bound
CHUNK_BYTES = 1 << 20
MAX_PIECE_BYTES = 1 << 24  # read at once of an archive: a list of a hundred thousand members
# An array that unpacks to more than this may not be packed tighter: sprites of two colours are packed 116 to 1.
MAX_EASY_BYTES, MAX_PACKING = 1 << 28, 250


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
    with _readable(path), _archive(path) as archive:
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
    with _readable(path), _archive(path) as archive, archive.open(f"{key}.npy") as stream:
        # Not by ``read_header``, which refuses objects.
        return _parse_header(stream).dtype.hasobject


def read_npy(path: Path) -> np.ndarray:
    """Read a ``.npy``.

    Raises:
        UsageError: it does not exist.
        DataError: as for ``read_npz``.
    """
    if not os.path.exists(path):  # False for names that no file can have, where Path.exists raises
        raise UsageError(f"{path} does not exist")
    with _readable(path), open_regular(path) as stream:
        return _read_rest(stream, read_header(stream, os.fstat(stream.fileno()).st_size))


@contextmanager
def open_member(path: Path, key: str) -> Iterator[tuple[IO[bytes], ArrayHeader]]:
    """Open one array of a ``.npz`` for reading in pieces: its bytes, and what they are.

    Raises:
        DataError: as for ``read_npz``; also when the bytes turn out to be damaged while they are read.
    """
    with _readable(path), _archive(path) as archive:
        member = archive.getinfo(f"{key}.npy")
        _check_packing(member)
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
    if header.num_bytes != num_bytes - stream.tell():
        raise ValueError(f"an array of shape {_short(header.shape)} does not fit its {num_bytes:,} bytes")
    if header.num_bytes > available_memory():
        raise ValueError(
            f"an array of {header.num_bytes:,} bytes does not fit the memory: {available_memory():,} are free"
        )
    return header


def _parse_header(stream: IO[bytes]) -> ArrayHeader:
    """Header as it is written: a literal, of which nothing is run."""
    version = np.lib.format.read_magic(stream)
    # Versions 2 and 3 have four bytes for the length; 3 differs in the encoding of field names only.
    width = 2 if version == (1, 0) else 4
    length = int.from_bytes(stream.read(width), "little")
    if version > (3, 0) or length > MAX_HEADER_BYTES:
        raise ValueError(f"its header of version {version[0]} and {length:,} bytes is none that NumPy writes")
    written = stream.read(length)
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's own, about odd numbers in damaged headers
            # Python 2 wrote 10L for 10.
            fields = ast.literal_eval(re.sub(rb"(?<=\d)L\b", b"", written).decode("latin-1").strip())
            shape, is_fortran = fields["shape"], fields["fortran_order"]
            dtype = np.lib.format.descr_to_dtype(fields["descr"])
    except Exception:  # whatever Python's and NumPy's parsers say of a damaged literal
        raise ValueError("its header cannot be read; save the array again with numpy.save") from None
    # type(...) is int: True is an int, too.
    if type(shape) is not tuple or any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"its header has no shape but {_short(shape)}")
    return ArrayHeader(shape, dtype, bool(is_fortran))


def _read_rest(stream: IO[bytes], header: ArrayHeader) -> np.ndarray:
    """The array behind a header; writable."""
    # Memory is taken page by page as bytes come, and no second copy of them is made.
    content = np.empty(header.num_bytes, np.uint8)
    filled = 0
    while filled < len(content) and (piece := stream.read(min(CHUNK_BYTES, len(content) - filled))):
        content[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    if filled != len(content) or stream.read(1):
        raise ValueError(f"{filled:,} bytes where {header.num_bytes:,} should be")
    array = content.view(header.dtype) if filled else np.empty(0, header.dtype)
    if header.dtype.kind == "U" and filled:
        letters = content.view(np.dtype("u4").newbyteorder(header.dtype.byteorder))
        if letters.max() > sys.maxunicode:
            raise ValueError("its text has letters that do not exist")
    return array.reshape(header.shape, order="F" if header.is_fortran else "C")


def _check_packing(member: zipfile.ZipInfo) -> None:
    """Refuse an array that was made to fill the memory."""
    if member.file_size > max(MAX_EASY_BYTES, MAX_PACKING * member.compress_size):
        raise ValueError(
            f"{member.filename} unpacks {member.compress_size:,} bytes to {member.file_size:,}; above "
            f"{MAX_EASY_BYTES:,} at most {MAX_PACKING} times as many are taken, so save such data unpacked (np.savez)"
        )


class _PieceReader(io.BufferedReader):
    """Reads no more than a piece at once: sizes in a damaged archive may be any number."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_PIECE_BYTES:
            raise ValueError(f"its list of members has {size:,} bytes, at most {MAX_PIECE_BYTES:,} are read")
        return super().read(MAX_PIECE_BYTES if size is None or size < 0 else size)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive."""
    with _PieceReader(open_regular(path).detach()) as stream, zipfile.ZipFile(stream) as archive:
        yield archive


def _short(value: object) -> str:
    """A value in one line of bounded length, however deep it is nested."""
    return reprlib.repr(value)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say in one line what is wrong with a file."""
    try:
        yield
    except DataError:
        raise
    except NPZ_ERRORS as error:
        raise DataError(f"{path} is not a readable NumPy file: {first_line(error)}") from None
