"""Tables of features that several processes compute: each makes its share of pieces, and whoever measures joins them.

The pieces lie in the cache of features, which all processes must share. A piece that is there is not made twice. Nobody
waits for another: what a killed process left is made by its part when it is started again, or by whoever measures.
"""

# N samples, D features

import contextlib
import hashlib
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterpoint.core.files import write_atomically
from counterpoint.core.ranks import WorkPart

PIECE_ROWS = 8192  # of a table: whole chunks, so that all rows are the bits that one process computes
OWN_PART: ContextVar[WorkPart | None] = ContextVar("OWN_PART", default=None)
Write = Callable[[int, Mapping[str, np.ndarray]], None]  # takes the first row of a part, and its arrays by name
Compute = Callable[[Sequence[str], slice, Write], None]  # writes some rows of arrays


@contextlib.contextmanager
def shared_by(part: WorkPart) -> Iterator[None]:
    """Within, of each table of features that is not there the pieces of one part are made, and nothing else."""
    token = OWN_PART.set(part)
    try:
        yield
    finally:
        OWN_PART.reset(token)


@dataclass(frozen=True)
class TablePieces:
    """The pieces of a table.

    Attributes:
        target: folder of the whole table.
        names: of its arrays.
        num_rows: of each.
        compute: gives rows of all arrays.
    """

    target: Path
    names: Sequence[str]
    num_rows: int
    compute: Compute

    @property
    def folder(self) -> Path:
        """Of the pieces."""
        digest = hashlib.sha256("\0".join(self.names).encode()).hexdigest()[:8]
        return self.target.with_name(f".{self.target.name}-{digest}-pieces")

    @property
    def num_pieces(self) -> int:
        """How many there are."""
        return -(-self.num_rows // PIECE_ROWS)

    def make(self, part: WorkPart) -> dict[str, np.ndarray]:
        """Make the pieces of a part that are not there, or are damaged.

        Returns:
            The first row of each array (1, ...).

        Raises:
            RunError: a piece cannot be written.
            OSError: the folder cannot be made.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for number in part.of(self.num_pieces):
            if self._read(number) is None:
                arrays = self._computed(self._rows(number))
                ordered = {f"a{place}": arrays[name] for place, name in enumerate(self.names)}
                write_atomically(self._file(number), lambda path, of=ordered: np.savez(path, **of))  # pyright: ignore[reportArgumentType]
        return self._computed(slice(0, 1))

    def join(self, names: Sequence[str], _: slice, write: Write) -> None:
        """Give all rows: those of pieces that are there, and the others computed."""
        for number in range(self.num_pieces):
            rows = self._rows(number)
            arrays = self._read(number) or self._computed(rows)
            write(rows.start, {name: arrays[name] for name in names})

    def remove(self) -> None:
        """Remove the pieces."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _rows(self, number: int) -> slice:
        """Rows of a piece."""
        return slice(number * PIECE_ROWS, min((number + 1) * PIECE_ROWS, self.num_rows))

    def _file(self, number: int) -> Path:
        """Of a piece."""
        return self.folder / f"{number:06d}.npz"

    def _computed(self, rows: slice) -> dict[str, np.ndarray]:
        """Some rows of all arrays."""
        arrays, lock = dict[str, np.ndarray](), threading.Lock()

        def write(first: int, parts: Mapping[str, np.ndarray]) -> None:
            for name, values in parts.items():
                with lock:  # the first part says how wide the rows are
                    if name not in arrays:
                        arrays[name] = np.empty((rows.stop - rows.start, *values.shape[1:]), values.dtype)
                arrays[name][first - rows.start : first - rows.start + len(values)] = values

        self.compute(self.names, rows, write)
        return arrays

    def _read(self, number: int) -> dict[str, np.ndarray] | None:
        """A piece; None where it is missing or damaged."""
        try:
            # The archive knows the check sum of what it holds.
            with np.load(self._file(number)) as arrays:
                return {name: arrays[f"a{place}"] for place, name in enumerate(self.names)}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
