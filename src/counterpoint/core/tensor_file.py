"""Writes safetensors files piece by piece, hashed on the way, with every failure an ``OSError`` of a known call.

The safetensors library lays the whole file out in memory or writes it where no hash can follow; its reader is used as
it is. The format: the header's length (8 bytes, little-endian), the header (JSON, padded with spaces to a multiple of 8
bytes), and the tensors without gaps, those of the widest numbers first.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from counterpoint.core.errors import first_line
from counterpoint.core.files import Seal, write_file

HEADER_ALIGNMENT = 8
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Seal:
    """Write tensors by name in the safetensors format; not flushed to disk yet.

    Args:
        path: replaced if it exists.
        tensors: any shape; those that share memory are written once each.

    Raises:
        TypeError: a tensor's dtype has no place in the format.
        OSError: the disk refuses.
    """
    return write_file(path, _pieces(tensors))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors by name; they are parts of the file.

    Raises:
        OSError: the file cannot be opened or mapped, or is damaged.
    """
    try:
        return load_file(path)
    except (SafetensorError, RuntimeError, MemoryError) as error:  # the last two where it does not fit into memory
        raise OSError(first_line(error)) from None


def file_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """What ``write_tensors`` writes, in memory.

    Raises:
        TypeError: a tensor's dtype has no place in the format.
    """
    return b"".join(_pieces(tensors))


def tensor_bytes(x: Tensor) -> memoryview:
    r"""A tensor's numbers as they lie in memory, in the order of its indices; copied only where they lie otherwise.

    >>> bytes(tensor_bytes(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).mT))
    b'\x01\x03\x02\x04'
    """
    plain = x.detach().cpu().contiguous().reshape(-1)  # flat, as a tensor without axes cannot be viewed as bytes
    # Through bytes, as NumPy has no bfloat16.
    return memoryview(plain.view(torch.uint8).numpy().data)


def _pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Header and tensors, one after the other."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # so that all are aligned
    yield _header(ordered)
    for _, value in ordered:
        yield tensor_bytes(value)


def _header(ordered: list[tuple[str, Tensor]]) -> bytes:
    """Name, dtype, shape and place of every tensor."""
    entries, end = {}, 0
    for name, value in ordered:
        if value.dtype not in DTYPES:
            raise TypeError(f"tensor {name} of {value.dtype} cannot be saved; known: {', '.join(DTYPES.values())}")
        start, end = end, end + value.numel() * value.element_size()
        entries[name] = {"dtype": DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    # Blanks are part of the format: the tensors begin at a multiple of 8.
    text += b" " * (-len(text) % HEADER_ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
