"""Arrays and lists out of files that were pickled, of which nothing is left that could run what a file names.

A pickled file is a program for a stack machine that may name any function and call it. The reader here follows the
listed steps and refuses all others; the few names that a byte array of NumPy takes are literals of this file and stand
for nothing but the functions written here. No module is imported, no object of a foreign class is made, no function of
the file's choosing is called. It is the unpickler that Python has in Python: the one in C takes memory for whatever
place or length a file promises (64 GB for five bytes), and its steps cannot be listed or counted.
"""

import io
import math
import pickle
import pickletools
import reprlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.user_files import read_regular

MAX_BYTES = 1 << 29  # CIFAR-100's training file, the largest of its kind, has 155 MB
MAX_OPCODES = 2_000_000  # CIFAR-100's has 400,000
MAX_AXES = 8
MAX_SHOWN = 80  # characters of a file's own text in an error
BYTE_CODES = ("u1", "uint8", "|u1", "B")
OPCODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
# Steps that put plain values on the stack, join them and remember them.
PLAIN_STEPS = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINSTRING SHORT_BINSTRING BINUNICODE "
    "SHORT_BINUNICODE BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 "
    "TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL "
    "REDUCE BUILD"
)
# Errors that a damaged or hostile file raises.
MALFORMED = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    struct.error,
    pickle.UnpicklingError,
)
BRIEF = reprlib.Repr()  # of values nested without end: a tuple that holds another twice, and so on, doubles each time
BRIEF.maxlevel, BRIEF.maxstring, BRIEF.maxother = 2, MAX_SHOWN, MAX_SHOWN


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
        content = _ArrayUnpickler(read_regular(path, MAX_BYTES)).load()
        if not isinstance(content, dict):
            raise ValueError("it should hold a dictionary")
        texts: dict[int, str] = {}
        return {str(key): _leaf(value, texts) for key, value in content.items()}
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


class _Steps(dict[int, Callable[..., None]]):
    """The listed steps by opcode, each of which is counted."""

    def __init__(self, steps: dict[int, Callable[..., None]]) -> None:
        super().__init__(steps)
        self.num_left = MAX_OPCODES

    def __getitem__(self, code: int) -> Callable[..., None]:
        self.num_left -= 1
        if self.num_left < 0:
            raise ValueError(f"more than {MAX_OPCODES:,} steps")
        if code not in self:
            raise ValueError(f"step {OPCODES.get(code, hex(code))} has no place in plain data")
        return super().__getitem__(code)


class _ArrayUnpickler(pickle._Unpickler):
    """An unpickler of the listed steps, and of the names that byte arrays take."""

    num_encoded = 0
    stack: list[Any]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin-1")
        listed, steps = PLAIN_STEPS.split(), pickle._Unpickler.dispatch.items()
        own = {code: getattr(type(self), step.__name__) for code, step in steps if OPCODES[code] in listed}
        self.dispatch = _Steps(own)  # pyright: ignore[reportAttributeAccessIssue]

    def load(self) -> Any:
        """The content of the pickle; raises one of ``MALFORMED`` if it is damaged, or asks for what is not listed."""
        try:
            return super().load()
        except EOFError:
            raise ValueError("it ends before its last step") from None

    def find_class(self, module: str, name: str) -> Any:
        """The object of a name; it is looked up nowhere else."""

        def from_buffer(raw: Any, code: Any, shape: Any, order: Any) -> _Bytes:
            return _Bytes(self, _array(raw, shape, code, order=order))

        allowed = {
            # Under both names: NumPy 2 renamed numpy.core to numpy._core.
            "numpy.core.multiarray._reconstruct": lambda *_: _Bytes(self),
            "numpy._core.multiarray._reconstruct": lambda *_: _Bytes(self),
            "numpy.core.numeric._frombuffer": from_buffer,
            "numpy._core.numeric._frombuffer": from_buffer,
            "numpy.dtype": lambda code, *_: _TypeCode(code),
            "numpy.ndarray": object(),  # may be named, as an argument, but not called
            "_codecs.encode": self.encoded,
        }
        if f"{module}.{name}" not in allowed:
            raise ValueError(f"it names {_short(f'{module}.{name}')}, and a file may call nothing")
        return allowed[f"{module}.{name}"]

    def load_setitem(self) -> None:
        items = [self.stack.pop(), self.stack.pop()][::-1]
        self._keep(items)

    def load_setitems(self) -> None:
        self._keep(self.pop_mark())

    def load_bytearray8(self) -> None:
        """Step BYTEARRAY8; Python's own takes the memory before it reads."""
        (length,) = struct.unpack("<Q", self.read(8))
        self.stack.append(bytearray(self.read(length)))

    def load_build(self) -> None:
        """Step BUILD: only records of ours take a state. Python's own step sets any attribute."""
        state = self.stack.pop()
        self.stack[-1].__setstate__(state)

    def _keep(self, items: list[Any]) -> None:
        """Put items into a dictionary. A key may be anything: tuples in tuples take for ever to hash."""
        holder = self.stack[-1]
        if not isinstance(holder, dict):
            raise TypeError("items without a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | bytes | int):
                raise ValueError("keys must be text")
            holder[key.decode("latin-1") if isinstance(key, bytes) else key] = value

    def encoded(self, text: Any, encoding: Any = "latin1") -> bytes:
        """Bytes that were written as text in Latin-1; one text that is named often makes more of them than the file."""
        if encoding not in ("latin1", "latin-1"):
            raise ValueError(f"bytes encoded as {_short(encoding)}")
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
        raise ValueError(f"an array of shape {_short(shape)} with {len(raw):,} bytes")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if order == "F" else "C")


def _leaf(value: Any, texts: dict[int, str]) -> Any:
    """A value of the dictionary without records of ours: an array, a plain value, or a list of such."""
    if isinstance(value, _Bytes):
        if value.array is None:
            raise ValueError("an array without its bytes")
        return value.array
    return [_atom(item, texts) for item in value] if isinstance(value, list) else _atom(value, texts)


def _atom(value: Any, texts: dict[int, str]) -> str | int | None:
    if isinstance(value, bytes):
        # Once for each object: a list may hold one of a megabyte a million times.
        if id(value) not in texts:
            texts[id(value)] = value.decode("latin-1")
        return texts[id(value)]
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"a {type(value).__name__} where text or a number should be")


def _short(value: Any) -> str:
    return BRIEF.repr(value)[:MAX_SHOWN]
