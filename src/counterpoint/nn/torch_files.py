"""Tensors by name out of files of ``torch.save``, read by torch's own reader of weights; nothing in them is run.

That reader makes tensors and plain values, and calls nothing but what rebuilds them. Objects of classes that it does
not know (the configuration or the arguments that many programs save beside the weights) become empty dictionaries here,
by name; their classes are never looked up. A call of anything else is refused.
"""

import os
import pickle
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from counterpoint.core.user_files import open_regular

MAX_PICKLE_BYTES = 1 << 28  # without the numbers
MAX_DEPTH = 16  # of dictionaries in dictionaries
MAX_SHOWN = 200  # characters of what torch says
ZIP_START = b"PK\x03\x04"
MAGIC = 0x1950A86A20F9469CFC6C  # what torch wrote before 1.6 begins with it, as a pickle of its own
# What a damaged file may end in, in a zip reader or in torch.
NOT_READABLE = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError),
    *(RuntimeError, AssertionError, struct.error, pickle.UnpicklingError, zipfile.BadZipFile),
)


class ForeignCallError(ValueError):
    """A file asks to call what it names."""


def is_torch_file(start: bytes) -> bool:
    """Whether a file that begins so is one of ``torch.save``."""
    return start.startswith(ZIP_START) or (start.startswith(b"\x80") and MAGIC.to_bytes(10, "little") in start)


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Tensors by name: keys of dictionaries in dictionaries are joined by dots.

    Lists, and keys that are no texts (the state of an optimiser), are left aside. A file of torch before 1.6 must hold
    nothing but tensors and plain values.

    Raises:
        ForeignCallError: it asks to call what it names.
        one of ``NOT_READABLE``: damaged, or no such file.
    """
    with open_regular(path) as file:
        is_archive = file.read(len(ZIP_START)) == ZIP_START
        if is_archive:
            _check_archive(file)
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path) if is_archive else []
    try:
        with torch.serialization.safe_globals([(_stand_in(name), name) for name in names]):
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except pickle.UnpicklingError as error:
        words = str(error).replace("\n", " ").partition("Please ")[0]
        name = re.search(r"(?:unsupported|global:) GLOBAL (\S+)", words)
        raise ForeignCallError(name[1]) if name else ValueError(words[:MAX_SHOWN]) from None
    return dict(_named(held))


def _check_archive(file: IO[bytes]) -> None:
    """Refuse members that are packed or damaged, which torch would take for numbers."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
            raise ValueError("its members are packed, or more than the file")
        if any(m.filename.endswith("/data.pkl") and m.file_size > MAX_PICKLE_BYTES for m in members):
            raise ValueError(f"a description of more than {MAX_PICKLE_BYTES:,} bytes")
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"its member {damaged!r} is damaged (CRC)")


def _named(held: Any) -> Iterator[tuple[str, Tensor]]:
    """Tensors in dictionaries, each dictionary once: one may hold itself."""
    if isinstance(held, LeftAside) and not held:
        raise ValueError(f"it holds an object of {held.name} and no weights; save its state_dict() instead")
    if not isinstance(held, dict):
        raise ValueError(f"it holds a {type(held).__name__}, and no dictionary of weights")
    waiting, seen = [("", held, 0)], {id(held)}
    while waiting:
        prefix, holder, depth = waiting.pop()
        for key, value in holder.items():
            if isinstance(key, str) and _is_plain(value):
                yield prefix + key, value.detach()
            elif isinstance(key, str) and isinstance(value, dict) and id(value) not in seen and depth < MAX_DEPTH:
                seen.add(id(value))
                waiting.append((f"{prefix}{key}.", value, depth + 1))


def _is_plain(value: Any) -> bool:
    """Whether it is a tensor with a place in the file for each number.

    Raises:
        ValueError: places are taken twice.
    """
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
        return False
    if value.numel() * value.itemsize > value.untyped_storage().nbytes():
        raise ValueError(f"a tensor of shape {tuple(value.shape)} that repeats its numbers")
    return True


class _Never(type):
    """Classes whose objects are made by ``__new__`` alone; called, they say so, unless plain values are made so."""

    def __call__(cls, *_: Any) -> "LeftAside":
        if cls.name not in HARMLESS:  # pyright: ignore[reportAttributeAccessIssue]
            raise ForeignCallError(cls.name)  # pyright: ignore[reportAttributeAccessIssue]
        return dict.__new__(cls)  # pyright: ignore[reportReturnType, reportArgumentType]


class LeftAside(dict, metaclass=_Never):
    """An object of a class that is named and never made; nothing of it is kept."""

    name = ""

    def __setstate__(self, state: object) -> None:
        """Drop the state."""


def _stand_in(name: str) -> type[LeftAside]:
    return _Never("LeftAside", (LeftAside,), {"name": name})


# Plain values that programs save beside the weights; their calls make nothing here.
HARMLESS = frozenset(
    [
        "torch.serialization._get_layout",
        *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
        *(f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")),
        "numpy.dtype",
        "_codecs.encode",
        "collections.defaultdict",
        "datetime.datetime",
        "datetime.timedelta",
        *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "frozenset", "complex")),
        *(f"{module}.{kind}Path" for module in ("pathlib", "pathlib._local") for kind in ("Posix", "Windows")),
    ]
)
