"""Rows of numbers on disk that are read on demand, so that a table need not fit in memory."""

# N rows, D columns

import copy
import itertools
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import DataError
from counterpoint.core.operating_system import BINARY, read_at, write_at


class StoredRows:
    """Float32 rows of a ``.npy`` file; what was read stays in no memory but the system's own cache of files.

    Args:
        path: .npy file of an array (n, d) of numbers in C order. Whatever takes the file's place, this one stays open.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.npy"
    >>> np.save(path, np.arange(6.0).reshape(3, 2))
    >>> StoredRows(path).take(torch.tensor([2, 0]))[0:1]
    tensor([[4., 5.]])
    """

    dtype = torch.float32

    def __init__(self, path: Path) -> None:
        self.path = path
        # A mapping: the header is read, and no row. Rows are not read through it, as pages of a mapping count as memory
        # of this process: every 200th row of a table would bring in nearly all of it.
        array = np.load(path, mmap_mode="r")
        is_table = isinstance(array, np.memmap) and array.ndim == 2 and array.dtype.kind in "fiu" and array.size > 0
        if not is_table or not array.flags.c_contiguous:
            raise ValueError("it must hold numbers of shape (n, d) in C order, as numpy.save writes them")
        self._dtype, self._start, self._num_rows, self._width = array.dtype, array.offset, *array.shape
        self._positions: np.ndarray | None = None
        self._parent: StoredRows | None = None
        self._change: Callable[[Tensor], Tensor] = lambda rows: rows
        self._handle = os.open(path, os.O_RDONLY | BINARY)
        weakref.finalize(self, os.close, self._handle)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, d)."""
        return (len(self), self._width)

    def __len__(self) -> int:
        return self._num_rows if self._positions is None else len(self._positions)

    def __getitem__(self, rows: slice) -> Tensor:
        """Read some rows into memory; any number of threads may read.

        Raises:
            DataError: the file ends before they do.
        """
        places = np.arange(*rows.indices(len(self))) if self._positions is None else self._positions[rows]
        values = np.empty((len(places), self._width), self._dtype)
        # Rows that follow each other in the file are read at once.
        begins = np.flatnonzero(np.diff(places, prepend=places[:1] - 2) != 1)
        for first, end in itertools.pairwise([*begins.tolist(), len(places)]):
            content = _bytes(values[first:end])
            offset = self._start + int(places[first]) * self._width * self._dtype.itemsize
            while len(content):
                done = read_at(self._handle, content.data, offset)
                if done == 0:
                    raise DataError(f"{self.path} ends early: it was changed while it was read")
                content, offset = content[done:], offset + done
        with np.errstate(over="ignore"):  # of float64: what float32 does not hold is infinite
            rows_ND = torch.from_numpy(values.astype(np.float32, copy=False))
        return self._change(rows_ND)

    def take(self, positions: Tensor) -> "StoredRows":
        """The rows at some positions; nothing is read."""
        part = copy.copy(self)
        part._parent = self  # which closes the file
        part._positions = positions.numpy() if self._positions is None else self._positions[positions.numpy()]
        return part

    def changed(self, function: Callable[[Tensor], Tensor]) -> "StoredRows":
        """The rows with a function of some of them, independent of the others, applied whenever they are read."""
        part = copy.copy(self)
        part._parent, part._change = self, lambda rows: function(self._change(rows))
        return part


Rows = Tensor | StoredRows


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def load(rows: Rows) -> Tensor:
    """All rows in memory; a tensor as it is."""
    return rows if isinstance(rows, Tensor) else rows[:]


def gather(rows: Rows, positions: Tensor) -> Rows:
    """The rows at some positions."""
    return rows[positions] if isinstance(rows, Tensor) else rows.take(positions)


def row_slices(num_rows: int, size: int) -> list[slice]:
    """Slices of at most ``size`` rows, in order.

    >>> row_slices(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(first, min(first + size, num_rows)) for first in range(0, num_rows, size)]


@contextmanager
def new_array(path: Path, shape: tuple[int, ...], dtype: Any) -> Iterator[Callable[[int, np.ndarray], None]]:
    """Write a ``.npy`` by parts; what it yields takes the first row of a part, and the part, in any order and thread.

    Nothing is mapped, so that written parts leave the memory.

    Raises:
        OSError: the file cannot be written.
    """
    row_bytes = int(np.dtype(dtype).itemsize * np.prod(shape[1:]))
    described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with path.open("xb") as stream:
        np.lib.format.write_array_header_1_0(stream, described)
        start = stream.tell()
        stream.truncate(start + row_bytes * shape[0])
        stream.flush()

        def write(first: int, part: np.ndarray) -> None:
            content, offset = _bytes(np.ascontiguousarray(part, dtype)), start + first * row_bytes
            while len(content):
                done = write_at(stream.fileno(), content.data, offset)
                content, offset = content[done:], offset + done

        yield write
