"""Files that are either whole or absent: write to a temporary name, flush to disk, rename."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError
from counterpoint.core.user_files import read_text

HASH_CHUNK_BYTES = 1 << 20
TEMPORARY = ".tmp"  # in the names of files that are not finished
BLOCK_BYTES = 1 << 20  # smaller pieces are written together
WRITE_CHUNK_BYTES = 16 << 20  # a signal is seen between two calls


@dataclass(frozen=True)
class Seal:
    """What tells a file from any other: its length in bytes and the SHA-256 of its content."""

    size: int
    sha256: str


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def flush_to_disk(path: Path) -> None:
    """Fsync a file or a folder (a rename lasts only once its folder is flushed)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with _named(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> Seal:
    """Write pieces one after the other, hashed by a second thread meanwhile; not flushed to disk yet.

    Args:
        path: replaced if it exists.
        pieces: content of the file.

    Returns:
        Length and hash of what was meant to be written, so that a disk that changes it does not go unnoticed.

    Raises:
        OSError: the disk is full, read-only or otherwise refuses.
    """
    digest, size = hashlib.sha256(), 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        with _named(path), ThreadPoolExecutor(1) as hasher:
            for block in _blocks(pieces):
                # One thread takes the blocks in their order; hashing lets go of the interpreter, so
                # that it runs beside the write.
                hasher.submit(digest.update, block)
                size += _write_all(handle, block)
    finally:
        os.close(handle)
    return Seal(size, digest.hexdigest())


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary sibling, then rename it over ``path``.

    Raises:
        RunError: the disk is full, read-only or otherwise refuses; ``path`` is then as it was.
    """
    # Hidden, and of this process alone; the suffix stays at the end, as writers of pictures and arrays go by it.
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}{path.suffix}")
    try:
        write(temporary)
        # Before the rename: after a power cut the name must not stand for a file without content.
        flush_to_disk(temporary)
        temporary.replace(path)
        flush_to_disk(path.parent)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; what stood there before is untouched"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # where nothing could be written, nothing can be removed
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; bytes of a name that are not UTF-8 are escaped, as JSON reads them back."""
    write_atomically(path, lambda temporary: write_file(temporary, [text.encode(errors="backslashreplace")]))


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (NaN becomes null) atomically."""
    write_text(path, json.dumps(finite_or_null(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove what killed processes left behind while they wrote these files; only their one writer may call it."""
    for name in names:
        for leftover in folder.glob(f".{name}.*{TEMPORARY}*"):
            with contextlib.suppress(OSError):
                leftover.unlink()


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        RunError: the file is missing or not JSON.
    """
    try:
        return json.loads(read_text(path))
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def finite_or_null(value: Any) -> Any:
    """Replace NaN and infinities by None in plain data, since JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite_or_null(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(child) for child in value]
    return value


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Calls on an open file do not say which one failed: add its name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """The same bytes with small pieces put together, so that no system call is spent on each."""
    gathered = bytearray()
    for piece in pieces:
        flat = memoryview(piece).cast("B")
        if len(flat) < BLOCK_BYTES:
            gathered += flat
        if gathered and (len(gathered) >= BLOCK_BYTES or len(flat) >= BLOCK_BYTES):
            yield memoryview(gathered)
            gathered = bytearray()
        if len(flat) >= BLOCK_BYTES:
            yield flat
    if gathered:
        yield memoryview(gathered)  # what is left of small pieces


def _write_all(handle: int, content: memoryview) -> int:
    """Write all of it, which may take several calls; returns its length in bytes."""
    num_written = 0
    while num_written < len(content):
        num_written += os.write(handle, content[num_written : num_written + WRITE_CHUNK_BYTES])
    return num_written
