"""Files that are either whole or absent: write to a temporary name, flush to disk, rename."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError

HASH_CHUNK_BYTES = 1 << 20


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
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary sibling, then rename it over ``path``.

    Raises:
        RunError: the disk is full, read-only or otherwise refuses; ``path`` is then as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{path.suffix}")
    try:
        write(temporary)
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
    """Write UTF-8 text atomically."""
    write_atomically(path, lambda temporary: _write_utf8(temporary, text))


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (NaN becomes null) atomically."""
    write_text(path, json.dumps(finite_or_null(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        RunError: the file is missing or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
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


def _write_utf8(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
