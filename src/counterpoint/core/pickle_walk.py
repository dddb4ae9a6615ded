"""Follows a pickle without unpickling: the file is read as text is, not run.

A pickled file is a program for a stack machine that may name any function and call it. Here its opcodes are listed
(``pickletools.genops`` parses and runs nothing) and followed by a machine of our own that knows plain values only:
text, bytes, numbers, lists, tuples and dictionaries. What a name, a call or an object stands for is said by the reader
of one kind of file (``data/formats/pickled_arrays.py``, ``nn/torch_files.py``) in steps of its own; no module is
imported, no attribute is looked up, no function of the file's choosing is called.
"""

import pickletools
import reprlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

MAX_SHOWN = 80  # characters of a file's own text in an error
# What the steps below raise where a file is damaged or hostile: a reader names the file.
MALFORMED = (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Name:
    """A function or class that a file names; never looked up."""

    text: str


class Mark:
    """Where a group begins on the stack."""


class Machine:
    """Stack and memory of plain values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.num_encoded = 0

    def encoded(self, text: str, at_most: int) -> bytes:
        """Bytes that were written as text; one text that is named often makes more of them than the file has."""
        self.num_encoded += len(text)
        if self.num_encoded > at_most:
            raise ValueError(f"its texts make more than {at_most:,} bytes")
        return text.encode("latin-1")

    def pop(self) -> Any:
        """Take the top value, which must not be a mark."""
        value = self.stack.pop()
        if isinstance(value, Mark):
            raise ValueError("a group without its values")
        return value

    def pop_group(self) -> list[Any]:
        """Take all values above the last mark, and the mark."""
        group = []
        while not isinstance(self.stack[-1], Mark):
            group.append(self.stack.pop())
        self.stack.pop()
        return group[::-1]

    def top(self, kind: type) -> Any:
        """The top value, which must be of one kind."""
        if not isinstance(self.stack[-1], kind):
            raise TypeError(f"a {kind.__name__} is missing")
        return self.stack[-1]


Step = Callable[[Machine, Any], None]


def follow(stream: IO[bytes], steps: Mapping[str, Step], max_opcodes: int) -> Any:
    """Follow the opcodes from the first to STOP, where the stream is left; what then lies on top of the stack.

    Args:
        stream: at the first opcode.
        steps: what each opcode does beside ``VALUES``; one that is in neither is refused.
        max_opcodes: bound of the work.

    Raises:
        one of ``MALFORMED``: the file is damaged, or asks for what no step is for.
    """
    machine = Machine()
    with warnings.catch_warnings(action="ignore"):  # the parser's own, about odd escapes in damaged text
        for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if number > max_opcodes:
                raise ValueError(f"more than {max_opcodes:,} steps")
            if opcode.name == "STOP":
                return machine.pop()
            if opcode.name in VALUES:
                machine.stack.append(argument)
                continue
            step = steps.get(opcode.name)
            if step is None:
                raise ValueError(f"step {opcode.name} has no place in plain data")
            step(machine, argument)
    raise ValueError("no end")


def name_of(machine: Machine, text: str | None) -> str:
    """The dotted name that GLOBAL gives as its argument, or STACK_GLOBAL as the two top values."""
    if text is not None:
        return text.replace(" ", ".")  # GLOBAL's argument is "module name", with a blank
    name, module = machine.pop(), machine.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise TypeError("a name that is no text")
    return f"{module}.{name}"


def short(value: Any) -> str:
    """A value in one line of bounded length."""
    return BRIEF.repr(value)[:MAX_SHOWN]


def _tuple(count: int) -> Step:
    """Step that joins the top values to a tuple."""
    return lambda machine, _: machine.stack.append(tuple([machine.pop() for _ in range(count)][::-1]))


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
# Stack and memory; steps of their own: names, calls and objects, and what may be put into a list or dictionary.
PLAIN_STEPS: Mapping[str, Step] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "MARK": lambda machine, _: machine.stack.append(Mark()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_group())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "BINPUT": lambda machine, place: machine.memory.__setitem__(place, machine.stack[-1]),
    "LONG_BINPUT": lambda machine, place: machine.memory.__setitem__(place, machine.stack[-1]),
    # MEMOIZE (protocol 4) numbers places by itself, in the order of use.
    "MEMOIZE": lambda machine, _: machine.memory.__setitem__(len(machine.memory), machine.stack[-1]),
    "BINGET": lambda machine, place: machine.stack.append(machine.memory[place]),
    "LONG_BINGET": lambda machine, place: machine.stack.append(machine.memory[place]),
}
