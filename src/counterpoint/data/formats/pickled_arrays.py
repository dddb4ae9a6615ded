"""Arrays and lists out of files that were pickled, without unpickling (``core/pickle_walk.py`` says how).

Byte arrays as NumPy writes them are known here. The few names that such an array takes are literals of this file and
stand for nothing but the steps written here. Whatever else a file asks for is refused.
"""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.pickle_walk import MALFORMED, PLAIN_STEPS, Machine, Name, Step, follow, name_of, short
from counterpoint.core.user_files import read_regular

MAX_BYTES = 1 << 29  # CIFAR-100's training file, the largest of its kind, has 155 MB
MAX_OPCODES = 2_000_000  # CIFAR-100's has 400,000
MAX_AXES = 8
BYTE_CODES = ("u1", "uint8", "|u1", "B")


@dataclass
class _TypeCode:
    """An element type that is being described."""

    code: str


@dataclass
class _Bytes:
    """An array that is being described; ``array`` once it is complete."""

    array: np.ndarray | None = None


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
        content = read_regular(path, MAX_BYTES)
        found = follow(io.BytesIO(content), STEPS, MAX_OPCODES)
        if not isinstance(found, dict):
            raise ValueError("it should hold a dictionary")
        texts: dict[int, str] = {}
        return {str(key): _leaf(value, texts) for key, value in found.items()}
    except MALFORMED as error:
        raise DataError(f"{path} cannot be read as plain data: {first_line(error)}; it is never unpickled") from None


def _append(machine: Machine, values: list[Any]) -> None:
    machine.top(list).extend(values)


def _set_items(machine: Machine, values: list[Any]) -> None:
    if len(values) % 2 or not all(isinstance(key, str | bytes | int) for key in values[::2]):
        raise ValueError("keys must be text")
    keys = [key.decode("latin-1") if isinstance(key, bytes) else key for key in values[::2]]
    machine.top(dict).update(zip(keys, values[1::2], strict=True))


def _name(machine: Machine, text: str | None) -> None:
    full = name_of(machine, text)
    if full not in CALLS and full not in CLASSES:
        raise ValueError(f"it names {short(full)}, and a file may call nothing")
    machine.stack.append(Name(full))


def _reduce(machine: Machine, _: Any) -> None:
    arguments, name = machine.pop(), machine.pop()
    # CLASSES may be named, as arguments, but not called.
    if not isinstance(name, Name) or name.text not in CALLS or not isinstance(arguments, tuple):
        raise ValueError("a file may call nothing")
    machine.stack.append(CALLS[name.text](machine, arguments))


def _build(machine: Machine, _: Any) -> None:
    """Complete an array; a type's further state (byte order) says nothing about bytes."""
    state = machine.pop()
    if isinstance(machine.stack[-1], _TypeCode):
        return
    # ndarray.__setstate__: version, shape, type, order, bytes.
    _, shape, code, is_fortran, raw = state
    raw = machine.encoded(raw, MAX_BYTES) if isinstance(raw, str) else raw  # Python 2 wrote bytes as text
    machine.top(_Bytes).array = _array(raw, shape, code, order="F" if is_fortran else "C")


def _new_array(machine: Machine, arguments: tuple[Any, ...]) -> _Bytes:
    return _Bytes()


def _new_type(machine: Machine, arguments: tuple[Any, ...]) -> _TypeCode:
    if not isinstance(arguments[0], str):
        raise TypeError("an element type that is no text")
    return _TypeCode(arguments[0])


def _from_buffer(machine: Machine, arguments: tuple[Any, ...]) -> _Bytes:
    raw, code, shape, order = arguments
    return _Bytes(_array(raw, shape, code, order=order))


def _encoded(machine: Machine, arguments: tuple[Any, ...]) -> bytes:
    """Bytes as Python 3 writes them for Python 2: text and the name of its encoding, which is Latin-1."""
    text, encoding = arguments
    if encoding.lower() not in ("latin1", "latin-1"):
        raise ValueError(f"bytes encoded as {short(encoding)}")
    return machine.encoded(text, MAX_BYTES)


def _array(raw: Any, shape: Any, code: Any, *, order: Any) -> np.ndarray:
    """Byte array of a shape that its bytes fill exactly."""
    if not isinstance(code, _TypeCode) or code.code not in BYTE_CODES:
        raise ValueError("an array of something else than bytes")
    # type(...) is int: True is an int, too. The product is Python's, which does not overflow.
    is_shape = isinstance(shape, tuple) and len(shape) <= MAX_AXES
    if not (is_shape and all(type(length) is int and length >= 0 for length in shape)) or math.prod(shape) != len(raw):
        raise ValueError(f"an array of shape {short(shape)} with {len(raw):,} bytes")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _leaf(value: Any, texts: dict[int, str]) -> Any:
    """A value of the dictionary without the machine's own records: an array, a plain value, or a list of such."""
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


STEPS: Mapping[str, Step] = {
    **PLAIN_STEPS,
    "APPEND": lambda machine, _: _append(machine, [machine.pop()]),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_group()),
    "SETITEM": lambda machine, _: _set_items(machine, [machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_group()),
    "GLOBAL": _name,
    "STACK_GLOBAL": _name,
    "REDUCE": _reduce,
    "BUILD": _build,
}
CLASSES = frozenset({"numpy.ndarray"})
CALLS: Mapping[str, Callable[[Machine, tuple[Any, ...]], Any]] = {
    # Under both names: NumPy 2 renamed numpy.core to numpy._core.
    "numpy.core.multiarray._reconstruct": _new_array,
    "numpy._core.multiarray._reconstruct": _new_array,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "numpy._core.numeric._frombuffer": _from_buffer,
    "numpy.dtype": _new_type,
    "_codecs.encode": _encoded,
}
