"""Tensors by name out of files of ``torch.save``; nothing in them is run (``core/inert_pickles.py`` says how).

Such a file is a pickle that describes tensors, and their numbers beside it: a zip archive since torch 1.6, one stream
before. Objects of classes that we do not know (the configuration or the arguments that many programs save beside the
weights) are noted by name and left aside. A call of anything but what rebuilds tensors and plain values is refused.
"""

import io
import math
import mmap
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from counterpoint.core.inert_pickles import MALFORMED, InertUnpickler, short
from counterpoint.core.user_files import open_regular

MAX_OPCODES = 5_000_000  # a network of 1,000 layers with its optimiser's state has 300,000
MAX_PICKLE_BYTES = 1 << 28  # without the numbers
MAX_DEPTH = 16  # of dictionaries in dictionaries
ZIP_START = b"PK\x03\x04"
MAGIC = 0x1950A86A20F9469CFC6C  # what torch wrote before 1.6 begins with it, as a pickle of its own
NOT_READABLE = (*MALFORMED, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError)


class ForeignCallError(ValueError):
    """A file asks to call what it names."""


@dataclass(frozen=True)
class Storage:
    """Numbers of one kind, somewhere in the file."""

    key: str
    dtype: torch.dtype | None  # None: bytes, whose kind each tensor says
    count: int


@dataclass(frozen=True)
class Stored:
    """A tensor that the pickle describes."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def is_torch_file(start: bytes) -> bool:
    """Whether a file that begins so is one of ``torch.save``."""
    return start.startswith(ZIP_START) or (start.startswith(b"\x80") and MAGIC.to_bytes(10, "little") in start)


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Tensors by name: keys of dictionaries in dictionaries are joined by dots.

    Lists, and dictionaries whose keys are no texts (the state of an optimiser), are left aside and not read.

    Raises:
        ForeignCallError: it asks to call what it names.
        one of ``NOT_READABLE``: damaged, or no such file.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(ZIP_START)) == ZIP_START:
            return _read_archive(file, size)
        # A mapped file reads no more than there is, whatever length a pickle promises.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _read_stream(content, size)


def _read_archive(file: IO[bytes], size: int) -> dict[str, Tensor]:
    """Of a zip archive: the pickle and each storage are members of their own."""
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        # Programs first: their code is packed.
        kinds = {name.rpartition("/")[2] for name in members}
        for mark, kind in (("constants.pkl", "TorchScript"), ("archive_format", "torch.export")):
            if mark in kinds:
                raise ValueError(f"a {kind} program, which is never run; save its state_dict() instead")
        if sum(member.file_size for member in members.values()) > size:
            raise ValueError("its members are packed, or more than the file")
        root = next((name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl")), None)
        if root is None:
            raise ValueError("a zip archive without a data.pkl")
        if root + "byteorder" in members and archive.read(root + "byteorder") != b"little":
            raise ValueError("written with the other byte order")
        if members[root + "data.pkl"].file_size > MAX_PICKLE_BYTES:
            raise ValueError(f"a description of more than {MAX_PICKLE_BYTES:,} bytes")
        found = dict(_named(_CheckpointUnpickler(io.BytesIO(archive.read(root + "data.pkl"))).load()))
        keys = dict.fromkeys(stored.storage.key for stored in found.values())
        return _tensors(found, {key: bytearray(archive.read(f"{root}data/{key}")) for key in keys})


def _read_stream(content: Any, size: int) -> dict[str, Tensor]:
    """Of one stream: magic number, version, the machine, the pickle, the storages' keys and the storages."""
    magic, _, machine = [_CheckpointUnpickler(content).load() for _ in range(3)]
    if magic != MAGIC or not machine.get("little_endian", True):
        raise ValueError("written with the other byte order")
    unpickler = _CheckpointUnpickler(content)
    found = dict(_named(unpickler.load()))
    keys = _CheckpointUnpickler(content).load()
    needed = {stored.storage.key for stored in found.values()}
    raw: dict[str, bytearray] = {}
    for key in keys:
        (count,) = struct.unpack("<q", content.read(8))
        num_bytes = count * (unpickler.storages[key].dtype or torch.uint8).itemsize
        if not 0 <= num_bytes <= size - content.tell():
            raise ValueError(f"it ends within storage {short(key)}")
        if key in needed:
            raw[key] = bytearray(content.read(num_bytes))
        else:
            content.seek(num_bytes, io.SEEK_CUR)
    return _tensors(found, raw)


def _named(found: Any) -> Iterator[tuple[str, Stored]]:
    """Tensors in dictionaries, each dictionary once: one may hold itself."""
    if isinstance(found, LeftAside) and not found:
        raise ValueError(f"it holds an object of {short(found.name)} and no weights; save its state_dict() instead")
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}, and no dictionary of weights")
    waiting, seen = [("", found, 0)], {id(found)}
    while waiting:
        prefix, holder, depth = waiting.pop()
        for key, value in holder.items():
            if isinstance(value, Stored):
                yield prefix + key, value
            elif isinstance(value, dict) and id(value) not in seen and depth < MAX_DEPTH:
                seen.add(id(value))
                waiting.append((f"{prefix}{key}.", value, depth + 1))


def _tensors(found: Mapping[str, Stored], raw: Mapping[str, bytearray]) -> dict[str, Tensor]:
    """The tensors, over the bytes of their storages."""
    return {name: _tensor(stored, raw[stored.storage.key]) for name, stored in found.items()}


def _tensor(stored: Stored, raw: bytearray) -> Tensor:
    """A view of the bytes of its storage, which must hold all its places."""
    if 0 in stored.shape:
        return torch.empty(stored.shape, dtype=stored.dtype)
    numbers = torch.frombuffer(raw, dtype=stored.dtype)
    ends = [(length - 1) * step for length, step in zip(stored.shape, stored.stride, strict=True)]
    if min([stored.offset, *ends]) < 0 or stored.offset + sum(ends) >= len(numbers):
        raise ValueError(f"a tensor of shape {short(stored.shape)} over {len(numbers):,} numbers")
    if math.prod(stored.shape) > len(numbers):
        raise ValueError(f"a tensor of shape {short(stored.shape)} that repeats {len(numbers):,} numbers")
    return numbers.as_strided(stored.shape, stored.stride, stored.offset)


class LeftAside(dict):
    """An object of a class that is named and never made; what a dictionary of such a class holds is kept."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def append(self, item: Any) -> None:
        """Drop an item of a list or set."""

    add = append


@dataclass(frozen=True)
class Name:
    """A function or class that a file names; never looked up."""

    text: str


class _CheckpointUnpickler(InertUnpickler):
    """Knows how torch describes tensors, and leaves aside what else programs save.

    Attributes:
        storages: by key, as the pickle describes them.
    """

    steps = InertUnpickler.steps | {"BINFLOAT", "LONG4", "EMPTY_SET", "ADDITEMS", "NEWOBJ", "NEWOBJ_EX", "BINPERSID"}

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream, MAX_OPCODES)
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Name:
        """See ``InertUnpickler``."""
        return Name(f"{module}.{name}")

    def keep(self, holder: dict[Any, Any], key: Any, value: Any) -> None:
        """Keep items with a text for a key; the others hold no weights."""
        if isinstance(key, str):
            holder[key] = value

    def persistent_load(self, pid: Any) -> Storage:
        """What the pickle says of a storage: kind, class, key, device, length."""
        kind, name, key, _, count, *view = pid
        word = name.text.removeprefix("torch.").removeprefix("cuda.")
        if kind != "storage" or word not in STORAGES or any(view) or not isinstance(key, str) or type(count) is not int:
            raise ValueError(f"a storage of {short(name)}")
        self.storages[key] = Storage(key, STORAGES[word], count)
        return self.storages[key]

    def load_reduce(self) -> None:
        """Step REDUCE: a call."""
        arguments, name = self.stack.pop(), self.stack.pop()
        text = name.text if isinstance(name, Name) else type(name).__name__
        if not isinstance(name, Name) or text not in HARMLESS | CALLS.keys() or not isinstance(arguments, tuple):
            raise ForeignCallError(short(text).strip("'"))
        self.stack.append(CALLS[text](*arguments) if text in CALLS else LeftAside(text))

    def load_newobj(self) -> None:
        """Step NEWOBJ: an object of a class, with its arguments."""
        _, name = self.stack.pop(), self.stack.pop()
        self.stack.append(LeftAside(name.text))

    def load_newobj_ex(self) -> None:
        """Step NEWOBJ_EX: an object of a class, with arguments by name, too."""
        self.stack.pop()
        self.load_newobj()

    def load_empty_set(self) -> None:
        """Step EMPTY_SET."""
        self.stack.append(LeftAside("set"))

    def load_build(self) -> None:
        """Step BUILD: state of an object that is never made, or of a dictionary of weights, which needs none."""
        self.stack.pop()


def _rebuilt(storage: Any, offset: Any, shape: Any, stride: Any, *others: Any) -> Stored:
    """``torch._utils._rebuild_tensor`` and its later forms, of which the third ends with the kind of numbers."""
    named = [other.text.removeprefix("torch.") for other in others if isinstance(other, Name)]
    dtype = getattr(torch, named[0], None) if named and named[0].isidentifier() else storage.dtype
    lengths = (*shape, *stride, offset)
    if not isinstance(dtype, torch.dtype) or not all(type(length) is int for length in lengths):
        raise ValueError("a tensor without its kind or shape")
    return Stored(storage, dtype, offset, tuple(shape), tuple(stride))


def _dictionary(*pairs: Any) -> dict[str, Any]:
    """``OrderedDict``: Python 2 gives the pairs with the call."""
    given = pairs[0] if pairs and isinstance(pairs[0], list) else []
    return {key: value for key, value in given if isinstance(key, str)}


STORAGES: Mapping[str, torch.dtype | None] = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "storage.UntypedStorage": None,
}
CALLS: Mapping[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _rebuilt,
    "torch._utils._rebuild_tensor_v2": _rebuilt,
    "torch._utils._rebuild_tensor_v3": _rebuilt,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch._utils._rebuild_parameter_with_state": lambda tensor, *_: tensor,
    "collections.OrderedDict": _dictionary,
    "collections.defaultdict": lambda *_: {},
}
# Plain values that programs save beside the weights; their calls make nothing here.
HARMLESS = frozenset(
    [
        "torch.device",
        "torch.Size",
        "torch.serialization._get_layout",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.core.numeric._frombuffer",
        "numpy._core.numeric._frombuffer",
        "numpy.dtype",
        "_codecs.encode",
        "datetime.datetime",
        "datetime.timedelta",
        *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "frozenset", "complex")),
        *(f"{module}.PosixPath" for module in ("pathlib", "pathlib._local")),
        *(f"{module}.WindowsPath" for module in ("pathlib", "pathlib._local")),
    ]
)
