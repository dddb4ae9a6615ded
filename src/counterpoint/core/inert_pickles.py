"""Pickles read by Python's own unpickler, of which nothing is left that could run what a file names.

A pickled file is a program for a stack machine that may name any function and call it. ``InertUnpickler`` follows the
steps that a reader lists and refuses all others; names are looked up in that reader's literal table and nowhere else
(``data/formats/pickled_arrays.py``, ``nn/foreign_weights.py``). No module is imported, no object of a foreign class is
made, no function of the file's choosing is called. It is the unpickler that Python has in Python: the one in C takes
memory for whatever place or length a file promises (64 GB for five bytes), and its steps cannot be listed or counted.
"""

import pickle
import pickletools
import reprlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import IO, Any

MAX_SHOWN = 80  # characters of a file's own text in an error
# What is raised where a file is damaged or hostile: a reader names the file.
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
OPCODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
# Steps that put plain values on the stack, join them and remember them.
PLAIN_STEPS = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINSTRING SHORT_BINSTRING BINUNICODE "
    "SHORT_BINUNICODE BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 "
    "TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL "
    "REDUCE BUILD"
)


class _Steps(dict[int, Callable[..., None]]):
    """The listed steps by opcode, up to a number of them."""

    def __init__(self, steps: dict[int, Callable[..., None]], at_most: int) -> None:
        super().__init__(steps)
        self._at_most = self._num_left = at_most

    def __getitem__(self, code: int) -> Callable[..., None]:
        self._num_left -= 1
        if self._num_left < 0:
            raise ValueError(f"more than {self._at_most:,} steps")
        return super().__getitem__(code)

    def __missing__(self, code: int) -> Callable[..., None]:
        raise ValueError(f"step {OPCODES.get(code, hex(code))} has no place in plain data")


class InertUnpickler(pickle._Unpickler, ABC):
    """Follows the steps of a pickle that are listed; subclasses say what a name, a key and a state stand for.

    Args:
        stream: at the first opcode; after ``load`` behind the last.
        max_steps: bound of the work, and with it of the memory that values take beside the file's bytes.
    """

    steps = frozenset(PLAIN_STEPS.split())
    stack: list[Any]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, stream: IO[bytes], max_steps: int) -> None:
        super().__init__(stream, encoding="latin-1")
        known = pickle._Unpickler.dispatch.items()
        own = {code: getattr(type(self), step.__name__) for code, step in known if OPCODES[code] in self.steps}
        self.dispatch = _Steps(own, max_steps)  # pyright: ignore[reportAttributeAccessIssue]

    def load(self) -> Any:
        """What the pickle holds.

        Raises:
            one of ``MALFORMED``: it is damaged, or asks for what is not listed.
        """
        try:
            return super().load()
        except EOFError:
            raise ValueError("it ends before its last step") from None

    @abstractmethod
    def find_class(self, module: str, name: str) -> Any:
        """What a name stands for; it is looked up nowhere else."""

    @abstractmethod
    def keep(self, holder: dict[Any, Any], key: Any, value: Any) -> None:
        """Put an item into a dictionary. A key may be anything: tuples in tuples take for ever to hash."""

    def load_setitem(self) -> None:
        """Step SETITEM."""
        items = [self.stack.pop(), self.stack.pop()][::-1]
        self._keep_all(items)

    def load_setitems(self) -> None:
        """Step SETITEMS."""
        self._keep_all(self.pop_mark())

    def load_bytearray8(self) -> None:
        """Step BYTEARRAY8; Python's own takes the memory before it reads."""
        (length,) = struct.unpack("<Q", self.read(8))
        self.stack.append(bytearray(self.read(length)))

    def load_build(self) -> None:
        """Step BUILD: only records of ours take a state. Python's own step sets any attribute."""
        state = self.stack.pop()
        self.stack[-1].__setstate__(state)

    def _keep_all(self, items: list[Any]) -> None:
        holder = self.stack[-1]
        if not isinstance(holder, dict):
            raise TypeError("items without a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.keep(holder, key, value)


def short(value: Any) -> str:
    """A value in one line of bounded length."""
    return BRIEF.repr(value)[:MAX_SHOWN]


BRIEF = reprlib.Repr()  # of values nested without end: a tuple that holds another twice, and so on, doubles each time
BRIEF.maxlevel, BRIEF.maxstring, BRIEF.maxother = 2, MAX_SHOWN, MAX_SHOWN
