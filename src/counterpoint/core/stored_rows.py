"""Rows of numbers on disk that are read where they are asked for, so that a table need not fit in memory."""

# N rows, D columns

import io
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


class StoredRows:
    """Float32 rows of a ``.npy`` file; what was read stays in no memory but the system's own cache of files.

    Args:
        path: an array (n, d) of numbers in C order.
        positions: rows to take, in this order; None takes all.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.npy"
    >>> np.save(path, np.arange(6.0).reshape(3, 2))
    >>> StoredRows(path).take(torch.tensor([2, 0]))[0:1]
    tensor([[4., 5.]])
    """

    dtype = torch.float32

    def __init__(self, path: Path, positions: Tensor | None = None) -> None:
        self.path = path
        self._array: np.memmap = np.load(path, mmap_mode="r")  # a mapping: nothing is read yet
        self._positions = None if positions is None else positions.numpy()

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return (len(self), self._array.shape[1])

    def __len__(self) -> int:
        """N."""
        return len(self._array) if self._positions is None else len(self._positions)

    def __getitem__(self, rows: slice) -> Tensor:
        """Some rows, in memory."""
        chosen = rows if self._positions is None else self._positions[rows]
        values = np.array(self._array[chosen], dtype=np.float32)
        # Else every page that was read would count as this process's memory.
        mapping: mmap.mmap = self._array._mmap  # pyright: ignore[reportAttributeAccessIssue]
        mapping.madvise(mmap.MADV_DONTNEED)
        return torch.from_numpy(values)

    def take(self, positions: Tensor) -> "StoredRows":
        """The rows at some positions; nothing is read."""
        of_file = positions if self._positions is None else torch.from_numpy(self._positions)[positions]
        return StoredRows(self.path, of_file)


class ChangedRows:
    """Rows to which a function of single rows is applied when they are read.

    Args:
        rows: to read.
        function: of some rows, independent of the others.
    """

    def __init__(self, rows: StoredRows, function: Callable[[Tensor], Tensor]) -> None:
        self._rows, self._function = rows, function
        self.shape, self.dtype = rows.shape, rows.dtype

    def __len__(self) -> int:
        """N."""
        return len(self._rows)

    def __getitem__(self, rows: slice) -> Tensor:
        """Some rows, changed."""
        return self._function(self._rows[rows])


Rows = Tensor | StoredRows
ReadRows = Rows | ChangedRows


def whole(rows: ReadRows) -> Tensor:
    """All rows in memory; a tensor as it is."""
    return rows if isinstance(rows, Tensor) else rows[:]


def taken(rows: Rows, positions: Tensor) -> Rows:
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
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    start, row_bytes = len(header.getvalue()), int(np.dtype(dtype).itemsize * np.prod(shape[1:]))
    with path.open("xb") as stream:
        stream.write(header.getvalue())
        stream.truncate(start + row_bytes * shape[0])
        stream.flush()

        def write(first: int, part: np.ndarray) -> None:
            content, offset = np.ascontiguousarray(part, dtype).data.cast("B"), start + first * row_bytes
            while content:
                done = os.pwrite(stream.fileno(), content, offset)
                content, offset = content[done:], offset + done

        yield write
