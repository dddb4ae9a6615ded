"""Tensors by name in safetensors files, hashed as they are written."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from counterpoint.core.errors import first_line
from counterpoint.core.files import Seal, write_file


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Seal:
    """Write tensors by name in the safetensors format; not flushed to disk yet.

    Args:
        path: path of the file, replaced if it exists.
        tensors: tensors of any shape, by name; those that share memory are written once each.

    Raises:
        TypeError: a tensor's dtype has no place in the format.
        OSError: the disk refuses.
    """
    return write_file(path, [file_bytes(tensors)])


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
    """Bytes that ``write_tensors`` writes, in memory.

    Raises:
        TypeError: a tensor's dtype has no place in the format.
    """
    plain: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, value in tensors.items():
        if value.is_complex() or value.is_quantized:
            raise TypeError(f"tensor {name} of {value.dtype} cannot be saved")
        contiguous = value.detach().cpu().contiguous()
        storage = contiguous.untyped_storage().data_ptr()
        # The library takes no two tensors that share memory.
        plain[name] = contiguous.clone() if storage in storages else contiguous
        storages.add(storage)
    return save(plain)


def tensor_bytes(x: Tensor) -> memoryview:
    r"""A tensor's numbers as they lie in memory, in the order of its indices; copied only where they lie otherwise.

    >>> bytes(tensor_bytes(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).mT))
    b'\x01\x03\x02\x04'
    """
    plain = x.detach().cpu().contiguous().reshape(-1)  # flat, as a tensor without axes cannot be viewed as bytes
    # Through bytes, as NumPy has no bfloat16.
    return memoryview(plain.view(torch.uint8).numpy().data)
