"""Tables of features that several processes compute together: each makes pieces of rows, and one joins them.

The pieces lie in the cache of features, which all processes must share. A piece that is there is not made twice, and
what a killed process had begun is made by another one (``core.shard_claims``).
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

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import write_atomically
from counterpoint.core.shard_claims import Claims, work_through
from counterpoint.core.work_parts import Part

PIECE_ROWS = 8192  # of a table: whole chunks, so that all rows are the bits that one process computes
OWN_PART: ContextVar[Part | None] = ContextVar("OWN_PART", default=None)
Write = Callable[[int, Mapping[str, np.ndarray]], None]  # takes the first row of a part, and its arrays by name
Compute = Callable[[Sequence[str], slice, Write], None]  # writes some rows of arrays


@contextlib.contextmanager
def shared_by(part: Part) -> Iterator[None]:
    """Within, tables of features are computed together with the processes that do the other parts."""
    token = OWN_PART.set(part)
    try:
        yield
    finally:
        OWN_PART.reset(token)


def require_one_process(why: str) -> None:
    """Refuse a table that only one process can compute where several share the work.

    Raises:
        UsageError: they do.
    """
    if OWN_PART.get() is not None:
        raise UsageError(f"{why}; evaluate it without --part, in one process")


@dataclass(frozen=True)
class SharedTable:
    """A table that is made together.

    Attributes:
        target: folder of the whole table.
        names: of its arrays.
        num_rows: of each.
        is_made: whether the whole table is there.
    """

    target: Path
    names: Sequence[str]
    num_rows: int
    is_made: Callable[[], bool]

    @property
    def folder(self) -> Path:
        """Of the pieces."""
        digest = hashlib.sha256("\0".join(self.names).encode()).hexdigest()[:8]
        return self.target.with_name(f".{self.target.name}-{digest}-pieces")

    def make(self, part: Part, compute: Compute, join: Callable[[Compute], None]) -> None:
        """Make pieces until all are there, and join them; returns once the whole table is there.

        Args:
            part: this process's.
            compute: gives rows of all arrays.
            join: writes the whole table from what gives its rows.

        Raises:
            RunError: a piece is damaged, or cannot be written.
        """

        def work(number: int) -> None:
            rows = self._rows(number)
            arrays, lock = dict[str, np.ndarray](), threading.Lock()

            def write(first: int, parts: Mapping[str, np.ndarray]) -> None:
                for name, values in parts.items():
                    with lock:  # the first part says how wide the rows are
                        if name not in arrays:
                            arrays[name] = np.empty((rows.stop - rows.start, *values.shape[1:]), values.dtype)
                    arrays[name][first - rows.start : first - rows.start + len(values)] = values

            compute(self.names, rows, write)
            ordered = {f"a{place}": arrays[name] for place, name in enumerate(self.names)}
            write_atomically(self._file(number), lambda path: np.savez(path, **ordered))  # pyright: ignore[reportArgumentType]

        with Claims(self.folder / "claims") as claims:
            num_pieces = -(-self.num_rows // PIECE_ROWS)
            work_through(
                num_pieces, part, claims, is_done=lambda n: self._file(n).exists() or self.is_made(), work=work
            )
        with Claims(self.folder / "join") as claims:
            work_through(1, part, claims, is_done=lambda _: self.is_made(), work=lambda _: join(self._read))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _rows(self, number: int) -> slice:
        """Rows of a piece."""
        return slice(number * PIECE_ROWS, min((number + 1) * PIECE_ROWS, self.num_rows))

    def _file(self, number: int) -> Path:
        """Of a piece."""
        return self.folder / f"{number:06d}.npz"

    def _read(self, names: Sequence[str], rows: slice, write: Write) -> None:
        """Give all rows from the pieces."""
        for number in range(-(-self.num_rows // PIECE_ROWS)):
            try:
                # The archive knows the check sum of what it holds.
                with np.load(self._file(number)) as arrays:
                    parts = {name: arrays[f"a{place}"] for place, name in enumerate(self.names)}
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                self._file(number).unlink(missing_ok=True)
                raise RunError(f"{self._file(number)} was damaged and is removed ({error}); run this again") from None
            write(self._rows(number).start, {name: parts[name] for name in names})
