"""Arrays and lists out of files that were pickled; nothing in them is run (``core/inert_pickles.py`` says how).

Byte arrays as NumPy writes them are known here. The few names that such an array takes are literals of this file and
stand for nothing but the functions written here. Whatever else a file asks for is refused.
"""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.inert_pickles import MALFORMED, InertUnpickler, short
from counterpoint.core.user_files import read_regular

MAX_BYTES = 1 << 29  # CIFAR-100's training file, the largest of its kind, has 155 MB
MAX_OPCODES = 2_000_000  # CIFAR-100's has 400,000
MAX_AXES = 8
BYTE_CODES = ("u1", "uint8", "|u1", "B")


def read_pickled(path: Path) -> dict[str, Any]:
    """Read a pickled dictionary of byte arrays, lists, numbers and text.

    Args:
        path: a file such as CIFAR's ``data_batch_1``.

    Returns:
        Values by key; arrays are uint8, text that was written as bytes is decoded as Latin-1.

    Raises:
        DataError: it asks for anything else, is damaged, or is not such a file.
    """
    try:
        found = _ArrayUnpickler(io.BytesIO(read_regular(path, MAX_BYTES)), MAX_OPCODES).load()
        if not isinstance(found, dict):
            raise ValueError("it should hold a dictionary")
        texts: dict[int, str] = {}
        return {str(key): _leaf(value, texts) for key, value in found.items()}
    except MALFORMED as error:
        raise DataError(
            f"{path} cannot be read as plain data: {first_line(error)}; nothing in it is ever run"
        ) from None


@dataclass
class _TypeCode:
    code: Any

    def __setstate__(self, state: Any) -> None:
        """A type's further state (byte order) says nothing about bytes."""


@dataclass
class _Bytes:
    """An array that is being described; ``array`` once it is complete."""

    origin: "_ArrayUnpickler"
    array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        """Take what ``ndarray.__setstate__`` takes: version, shape, type, order, bytes."""
        _, shape, code, is_fortran, raw = state
        raw = self.origin.encoded(raw) if isinstance(raw, str) else raw  # Python 2 wrote bytes as text
        self.array = _array(raw, shape, code, order="F" if is_fortran else "C")


class _ArrayUnpickler(InertUnpickler):
    """Knows the names that byte arrays take."""

    num_encoded = 0

    def find_class(self, module: str, name: str) -> Any:
        """See ``InertUnpickler``."""

        def from_buffer(raw: Any, code: Any, shape: Any, order: Any) -> _Bytes:
            return _Bytes(self, _array(raw, shape, code, order=order))

        known = {
            # Under both names: NumPy 2 renamed numpy.core to numpy._core.
            "numpy.core.multiarray._reconstruct": lambda *_: _Bytes(self),
            "numpy._core.multiarray._reconstruct": lambda *_: _Bytes(self),
            "numpy.core.numeric._frombuffer": from_buffer,
            "numpy._core.numeric._frombuffer": from_buffer,
            "numpy.dtype": lambda code, *_: _TypeCode(code),
            "numpy.ndarray": object(),  # may be named, as an argument, but not called
            "_codecs.encode": self.encoded,
        }
        if f"{module}.{name}" not in known:
            raise ValueError(f"it names {short(f'{module}.{name}')}, and a file may call nothing")
        return known[f"{module}.{name}"]

    def keep(self, holder: dict[Any, Any], key: Any, value: Any) -> None:
        """See ``InertUnpickler``."""
        if not isinstance(key, str | bytes | int):
            raise ValueError("keys must be text")
        holder[key.decode("latin-1") if isinstance(key, bytes) else key] = value

    def encoded(self, text: Any, encoding: Any = "latin1") -> bytes:
        """Bytes that were written as text in Latin-1; one text that is named often makes more of them than the file."""
        if encoding not in ("latin1", "latin-1"):
            raise ValueError(f"bytes encoded as {short(encoding)}")
        self.num_encoded += len(text)
        if self.num_encoded > MAX_BYTES:
            raise ValueError(f"its texts make more than {MAX_BYTES:,} bytes")
        return text.encode("latin-1")


def _array(raw: Any, shape: Any, code: Any, *, order: Any) -> np.ndarray:
    """Byte array of a shape that its bytes fill exactly."""
    if not isinstance(code, _TypeCode) or not isinstance(code.code, str) or code.code not in BYTE_CODES:
        raise ValueError("an array of something else than bytes")
    # type(...) is int: True is an int, too. The product is Python's, which does not overflow.
    is_shape = isinstance(shape, tuple) and len(shape) <= MAX_AXES
    if not (is_shape and all(type(length) is int and length >= 0 for length in shape)) or math.prod(shape) != len(raw):
        raise ValueError(f"an array of shape {short(shape)} with {len(raw):,} bytes")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _leaf(value: Any, texts: dict[int, str]) -> Any:
    """A value of the dictionary without records of ours: an array, a plain value, or a list of such."""
    if isinstance(value, _Bytes):
        if value.array is None:
            raise ValueError("an array without its bytes")
        return value.array
    return [_atom(item, texts) for item in value] if isinstance(value, list) else _atom(value, texts)


def _atom(value: Any, texts: dict[int, str]) -> str | int | None:
    """Text, a whole number or nothing."""
    if isinstance(value, bytes):
        # Once for each object: a list may hold one of a megabyte a million times.
        if id(value) not in texts:
            texts[id(value)] = value.decode("latin-1")
        return texts[id(value)]
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"a {type(value).__name__} where text or a number should be")
