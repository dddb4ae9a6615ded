"""Arrays and lists out of files that were pickled, without unpickling: the file is read as text is, not run.

A pickled file is a program for a stack machine that may name any function and call it. Here its opcodes are listed
(``pickletools.genops`` parses and runs nothing) and followed by a machine of our own that knows plain values only:
text, bytes, whole numbers, lists, tuples, dictionaries, and byte arrays as NumPy writes them. The few names that such
an array takes are literals of this file and stand for nothing but the steps written here; no module is imported, no
attribute is looked up, no function of the file's choosing is called. Whatever else a file asks for is refused.
"""

import io
import math
import pickletools
import reprlib
import warnings
from collections.abc import Callable, Mapping
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


@dataclass(frozen=True)
class _Name:
    """A function or class that a file names; never looked up."""

    text: str


@dataclass
class _TypeCode:
    """An element type that is being described."""

    code: str


@dataclass
class _Bytes:
    """An array that is being described; ``array`` once it is complete."""

    array: np.ndarray | None = None


class _Mark:
    """Where a group begins on the stack."""


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
        with warnings.catch_warnings(action="ignore"):  # the parser's own, about odd escapes in damaged text
            found = _follow(content)
        if not isinstance(found, dict):
            raise ValueError("it should hold a dictionary")
        texts: dict[int, str] = {}
        return {str(key): _leaf(value, texts) for key, value in found.items()}
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} cannot be read as plain data: {first_line(error)}; it is never unpickled") from None


def _follow(content: bytes) -> Any:
    """Follow the opcodes from the first to STOP; what then lies on top of the stack."""
    machine = _Machine()
    for number, (opcode, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
        if number > MAX_OPCODES:
            raise ValueError(f"more than {MAX_OPCODES:,} steps")
        if opcode.name == "STOP":
            return machine.pop()
        if opcode.name in VALUES:
            machine.stack.append(argument)
            continue
        # What is in neither table is refused: INST, OBJ, NEWOBJ, EXT1, PERSID and whatever comes with later protocols.
        step = STEPS.get(opcode.name)
        if step is None:
            raise ValueError(f"step {opcode.name} has no place in plain data")
        step(machine, argument)
    raise ValueError("no end")


class _Machine:
    """Stack and memory of plain values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.num_encoded = 0

    def encoded(self, text: str) -> bytes:
        """Bytes that were written as text; one text that is named often makes more of them than the file has."""
        self.num_encoded += len(text)
        if self.num_encoded > MAX_BYTES:
            raise ValueError(f"its texts make more than {MAX_BYTES:,} bytes")
        return text.encode("latin-1")

    def pop(self) -> Any:
        """Take the top value, which must not be a mark."""
        value = self.stack.pop()
        if isinstance(value, _Mark):
            raise ValueError("a group without its values")
        return value

    def pop_group(self) -> list[Any]:
        """Take all values above the last mark, and the mark."""
        group = []
        while not isinstance(self.stack[-1], _Mark):
            group.append(self.stack.pop())
        self.stack.pop()
        return group[::-1]

    def top(self, kind: type) -> Any:
        """The top value, which must be of one kind."""
        if not isinstance(self.stack[-1], kind):
            raise TypeError(f"a {kind.__name__} is missing")
        return self.stack[-1]


def _append(machine: _Machine, values: list[Any]) -> None:
    machine.top(list).extend(values)


def _set_items(machine: _Machine, values: list[Any]) -> None:
    if len(values) % 2 or not all(isinstance(key, str | bytes | int) for key in values[::2]):
        raise ValueError("keys must be text")
    keys = [key.decode("latin-1") if isinstance(key, bytes) else key for key in values[::2]]
    machine.top(dict).update(zip(keys, values[1::2], strict=True))


def _tuple(count: int) -> Callable[[_Machine, Any], None]:
    """Step that joins the top values to a tuple."""
    return lambda machine, _: machine.stack.append(tuple([machine.pop() for _ in range(count)][::-1]))


def _name(machine: _Machine, text: str) -> None:
    # GLOBAL's argument is "module name", with a blank.
    module, _, name = text.replace(" ", ".").rpartition(".")
    full = f"{module}.{name}"
    if full not in CALLS and full not in CLASSES:
        raise ValueError(f"it names {_short(full)}, and a file may call nothing")
    machine.stack.append(_Name(full))


def _named_by_stack(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise TypeError("a name that is no text")
    _name(machine, f"{module}.{name}")


def _reduce(machine: _Machine, _: Any) -> None:
    arguments, name = machine.pop(), machine.pop()
    # CLASSES may be named, as arguments, but not called.
    if not isinstance(name, _Name) or name.text not in CALLS or not isinstance(arguments, tuple):
        raise ValueError("a file may call nothing")
    machine.stack.append(CALLS[name.text](machine, arguments))


def _build(machine: _Machine, _: Any) -> None:
    """Complete an array; a type's further state (byte order) says nothing about bytes."""
    state = machine.pop()
    if isinstance(machine.stack[-1], _TypeCode):
        return
    # ndarray.__setstate__: version, shape, type, order, bytes.
    _, shape, code, is_fortran, raw = state
    raw = machine.encoded(raw) if isinstance(raw, str) else raw  # Python 2 wrote bytes as text
    machine.top(_Bytes).array = _array(raw, shape, code, order="F" if is_fortran else "C")


def _new_array(machine: _Machine, arguments: tuple[Any, ...]) -> _Bytes:
    return _Bytes()


def _new_type(machine: _Machine, arguments: tuple[Any, ...]) -> _TypeCode:
    if not isinstance(arguments[0], str):
        raise TypeError("an element type that is no text")
    return _TypeCode(arguments[0])


def _from_buffer(machine: _Machine, arguments: tuple[Any, ...]) -> _Bytes:
    raw, code, shape, order = arguments
    return _Bytes(_array(raw, shape, code, order=order))


def _encoded(machine: _Machine, arguments: tuple[Any, ...]) -> bytes:
    """Bytes as Python 3 writes them for Python 2: text and the name of its encoding, which is Latin-1."""
    text, encoding = arguments
    if encoding.lower() not in ("latin1", "latin-1"):
        raise ValueError(f"bytes encoded as {_short(encoding)}")
    return machine.encoded(text)


def _array(raw: Any, shape: Any, code: Any, *, order: Any) -> np.ndarray:
    """Byte array of a shape that its bytes fill exactly."""
    if not isinstance(code, _TypeCode) or code.code not in BYTE_CODES:
        raise ValueError("an array of something else than bytes")
    # type(...) is int: True is an int, too. The product is Python's, which does not overflow.
    is_shape = isinstance(shape, tuple) and len(shape) <= MAX_AXES
    if not (is_shape and all(type(length) is int and length >= 0 for length in shape)) or math.prod(shape) != len(raw):
        raise ValueError(f"an array of shape {_short(shape)} with {len(raw):,} bytes")
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


def _short(value: Any) -> str:
    """A value in one line of bounded length."""
    return BRIEF.repr(value)[:MAX_SHOWN]


BRIEF = reprlib.Repr()  # of values nested without end: a tuple that holds another twice, and so on, doubles each time
BRIEF.maxlevel, BRIEF.maxstring, BRIEF.maxother = 2, MAX_SHOWN, MAX_SHOWN
VALUES = frozenset(
    [
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
    ]
)
STEPS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "MARK": lambda machine, _: machine.stack.append(_Mark()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_group())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "APPEND": lambda machine, _: _append(machine, [machine.pop()]),
    "APPENDS": lambda machine, _: _append(machine, machine.pop_group()),
    "SETITEM": lambda machine, _: _set_items(machine, [machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: _set_items(machine, machine.pop_group()),
    "BINPUT": lambda machine, place: machine.memory.__setitem__(place, machine.stack[-1]),
    "LONG_BINPUT": lambda machine, place: machine.memory.__setitem__(place, machine.stack[-1]),
    # MEMOIZE (protocol 4) numbers places by itself, in the order of use.
    "MEMOIZE": lambda machine, _: machine.memory.__setitem__(len(machine.memory), machine.stack[-1]),
    "BINGET": lambda machine, place: machine.stack.append(machine.memory[place]),
    "LONG_BINGET": lambda machine, place: machine.stack.append(machine.memory[place]),
    "GLOBAL": _name,
    "STACK_GLOBAL": _named_by_stack,
    "REDUCE": _reduce,
    "BUILD": _build,
}
CLASSES = frozenset({"numpy.ndarray"})
CALLS: Mapping[str, Callable[[_Machine, tuple[Any, ...]], Any]] = {
    # Under both names: NumPy 2 renamed numpy.core to numpy._core.
    "numpy.core.multiarray._reconstruct": _new_array,
    "numpy._core.multiarray._reconstruct": _new_array,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "numpy._core.numeric._frombuffer": _from_buffer,
    "numpy.dtype": _new_type,
    "_codecs.encode": _encoded,
}
