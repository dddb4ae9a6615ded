"""An index of vectors in a folder: built a block at a time, read back against its hashes, asked for nearest rows.

Similarity is the cosine. Below ``EXACT_BELOW`` rows every row is compared; above, an approximate method proposes
candidates, whose similarities are computed again, so that every method gives the same numbers, and the same order.
"""

# N rows, Q queries, D features, K neighbours, W candidates

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.files import file_state, read_sealed, sha256_of, write_file, write_sealed
from counterpoint.core.numerics import unit_rows
from counterpoint.core.run_contents import INDEX_FILES
from counterpoint.core.run_records import Figure, Record, read_record
from counterpoint.core.stored_rows import Rows, StoredRows, new_array, row_slices, taken, whole
from counterpoint.core.user_files import available_memory, read_text
from counterpoint.evaluation.nearest import DOT, Neighbours, nearest
from counterpoint.search.approximation import Effort, calibrate
from counterpoint.search.cells import Cells, find_centres, look_up, nearest_centres, num_cells, sample_of
from counterpoint.search.hnsw_graph import build_graph, look_up_graph, open_graph, require_usearch

FORMAT = 1
EXACT_BELOW = 20_000  # rows; of fewer, comparing all takes a few milliseconds
METHODS = ("auto", "exact", "cells", "hnsw")
CARD, VECTORS, NAMES, ROWS, CENTRES, GRAPH = INDEX_FILES
BLOCK = 1 << 16  # rows that are read at a time
SPARE = 8  # candidates beyond k: rounding may order the last ones otherwise
RESCORED = 256  # queries at a time


class FileSeal(Record):
    """Length and hash of a file of the index."""

    size: int
    sha256: str


class IndexCard(Record):
    """What an index is; sealed in ``index.json``, which is written last.

    Attributes:
        format: of the files.
        method: exact, cells or hnsw.
        num_rows: of the table.
        width: dimensions.
        num_zero: rows of zeros, which are like nothing.
        num_cells: of the method cells.
        effort: how far the approximate method looks, and its measured recall; None of an exact one.
        files: seal of every other file.
        about: what is indexed, in the words of whoever built it.
    """

    format: int
    method: str
    num_rows: int
    width: int
    num_zero: int = 0
    num_cells: int | None = None
    effort: Effort | None = None
    seconds: Figure = None
    files: Mapping[str, FileSeal]
    about: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class VectorIndex:
    """An index that can be asked.

    Attributes:
        folder: where it lies.
        card: what it is.
        names: one per row.
        labels: class names, or None.
        table_ND: rows at unit length, in the order in which they are stored.
        row_of_N: row of each stored place; None where that is their order.
        place_of_N: stored place of each row, likewise.
        propose: places of candidates, of unit-length queries and a number.
    """

    folder: Path
    card: IndexCard
    names: tuple[str, ...]
    labels: tuple[str | None, ...] | None
    table_ND: Rows
    row_of_N: Tensor | None
    place_of_N: Tensor | None
    propose: Callable[[Tensor, int], Neighbours]

    def __len__(self) -> int:
        return self.card.num_rows

    def search(self, queries_QD: Tensor, k: int, *, exact: bool = False) -> Neighbours:
        """The rows with the largest cosines, largest first; of equal ones the first row.

        Args:
            queries_QD: finite vectors of the width of the index.
            k: rows of each query, 1 <= k <= n.
            exact: compare every row, whatever the method.

        Returns:
            Cosines, float64, and rows. An approximate method may find fewer than k: then rows of -1 end a line.

        Raises:
            UsageError: k is out of range.
            DataError: queries of another width, or that are not finite.
        """
        self._check(queries_QD, k)
        unit_QD = unit_rows(queries_QD.float())
        wanted = min(k + SPARE, len(self))
        parts = []
        for part_QD in unit_QD.split(1 << 14):
            found = nearest(self.table_ND, part_QD, wanted, similarity=DOT) if exact else self.propose(part_QD, wanted)
            # Few enough at a time for the candidates of all to be in memory.
            pieces = zip(part_QD.split(RESCORED), found.positions_QK.split(RESCORED), strict=True)
            parts += [self._ranked(*piece, k) for piece in pieces]
        similarity_QK = torch.cat([each.similarity_QK for each in parts])
        return Neighbours(similarity_QK, torch.cat([each.positions_QK for each in parts]))

    def vectors(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """Some rows at unit length, in the order of the table that was indexed."""
        positions = torch.arange(len(self))[rows] if isinstance(rows, slice) else rows
        if self.place_of_N is not None:
            positions = self.place_of_N[positions]
        return whole(taken(self.table_ND, positions))

    def _check(self, queries_QD: Tensor, k: int) -> None:
        """Refuse what cannot be answered."""
        if not 1 <= k <= len(self):
            raise UsageError(f"k must be between 1 and {len(self):,}, the rows of the collection, got {k}")
        if queries_QD.ndim != 2 or queries_QD.shape[1] != self.card.width:
            raise DataError(f"queries must have shape (n, {self.card.width}), got {tuple(queries_QD.shape)}")
        if not bool(torch.isfinite(queries_QD).all()):
            raise DataError("queries must be finite, but hold NaN or infinity")

    def _ranked(self, queries_QD: Tensor, places_QW: Tensor, k: int) -> Neighbours:
        """The best k candidates by their cosines in float64."""
        known = places_QW.clamp(min=0)
        rows = whole(taken(self.table_ND, known.flatten()))
        # Row by row, so that copies get the same bits.
        similarity_QW = (rows.view(*known.shape, -1).double() * queries_QD.double()[:, None]).sum(dim=2)
        similarity_QW = torch.where(places_QW < 0, -torch.inf, similarity_QW)
        row_QW = known if self.row_of_N is None else self.row_of_N[known]
        row_QW = torch.where(places_QW < 0, len(self), row_QW)
        by_row_QW = row_QW.argsort(dim=1)
        similarity_QW, row_QW = similarity_QW.gather(1, by_row_QW), row_QW.gather(1, by_row_QW)
        best_QK = similarity_QW.argsort(dim=1, descending=True, stable=True)[:, :k]
        row_QK = row_QW.gather(1, best_QK)
        return Neighbours(similarity_QW.gather(1, best_QK), torch.where(row_QK == len(self), -1, row_QK))


def build_index(
    vectors: Any,
    folder: Path,
    *,
    names: Sequence[str] | None = None,
    labels: Sequence[str | None] | None = None,
    method: str = "auto",
    about: Mapping[str, Any] | None = None,
) -> VectorIndex:
    """Build an index in a folder, in memory bounds that do not depend on the number of rows.

    Args:
        vectors: (n, d): an array, which may be memory-mapped, a tensor, ``StoredRows``, or the path of a ``.npy``.
        folder: is made; an index that is there is replaced, other files stay.
        names: one per row; None numbers them.
        labels: class names, None where unknown.
        method: ``exact``, ``cells`` (of ``search.cells``), ``hnsw`` (needs usearch) or ``auto``: exact below
            ``EXACT_BELOW`` rows, then cells.
        about: what is indexed, for the card.

    Raises:
        DataError: not such vectors; or rows that are not finite: the first is named.
        UsageError: an unknown method, or usearch is missing.
        OSError: the folder cannot be written.
    """
    rows = _as_rows(vectors)
    num_rows, width = (int(length) for length in rows.shape)
    chosen = _method(method, num_rows)
    folder.mkdir(parents=True, exist_ok=True)
    for name in INDEX_FILES:  # the card first: what is left of it is no index
        (folder / name).unlink(missing_ok=True)
    num_zero, cells = _write_tables(rows, folder, chosen)
    held = {"names": list(names or map(str, range(num_rows))), "labels": None if labels is None else list(labels)}
    write_file(folder / NAMES, [json.dumps(held).encode()])
    if chosen == "hnsw":
        build_graph(StoredRows(folder / VECTORS), folder / GRAPH)
    known = {"format": FORMAT, "method": chosen, "num_rows": num_rows, "width": width, "num_zero": num_zero}
    card = IndexCard.model_validate({**known, "num_cells": cells, "files": {}, "about": dict(about or {})})
    if chosen != "exact":
        table_ND = _table(folder / VECTORS)
        effort = calibrate(table_ND, _proposer(folder, card, table_ND), _levels(card))
        card = card.model_copy(update={"effort": effort})
    files = {path.name: FileSeal(size=path.stat().st_size, sha256=sha256_of(path)) for path in _files(folder)}
    card = card.model_copy(update={"files": files})
    write_sealed(folder / CARD, card.model_dump())
    return _opened(folder, card)


def read_card(folder: Path) -> IndexCard:
    """The card of an index.

    Raises:
        RunError: there is none, it is damaged, or of another format.
    """
    values = read_sealed(folder / CARD, must_be_sealed=True)
    if values.get("format") != FORMAT:
        raise RunError(
            f"{folder / CARD} has format {values.get('format')}; this version reads {FORMAT}: make it again "
            "with --rebuild"
        )
    return read_record(IndexCard, values, str(folder / CARD))


def open_index(folder: Path) -> VectorIndex:
    """Open an index, whose files must be as they were written.

    Raises:
        RunError: one is missing or damaged; it is named.
    """
    found = index_at(folder)
    if found is None:
        raise RunError(f"{folder / CARD} is missing; make the index again with --rebuild")
    return found


def index_at(folder: Path) -> VectorIndex | None:
    """The index that lies in a folder; None where there is none. Raises as ``open_index``.

    A build may put another one in its place meanwhile: then what was read of the first counts for nothing.
    """
    while (before := file_state(folder / CARD)) is not None:
        found = problem = None
        try:
            found = _verified(folder)
        except RunError as error:
            problem = error
        except (OSError, ValueError, EOFError, LookupError, TypeError) as error:  # another file, or a forged one
            problem = RunError(f"the index {folder} cannot be read ({error!r}); make it again with --rebuild")
        if file_state(folder / CARD) != before:
            continue
        if problem is not None:
            raise problem
        return found
    return None


def _verified(folder: Path) -> VectorIndex:
    """The index, once each file has its hash."""
    card = read_card(folder)
    for name, seal in card.files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != seal.size or sha256_of(path) != seal.sha256:
            raise RunError(f"{path} is missing or damaged; make the index again with --rebuild")
    return _opened(folder, card)


def _opened(folder: Path, card: IndexCard) -> VectorIndex:
    """The index, with what its method needs."""
    held = json.loads(read_text(folder / NAMES))
    table_ND = _table(folder / VECTORS)
    row_of_N = place_of_N = None
    if card.method == "cells":
        row_of_N = torch.from_numpy(np.load(folder / ROWS))
        place_of_N = row_of_N.argsort()
    effort = card.effort.level if card.effort else 0
    propose = _proposer(folder, card, table_ND)
    labels = held["labels"]
    return VectorIndex(
        folder,
        card,
        tuple(held["names"]),
        None if labels is None else tuple(labels),
        table_ND,
        row_of_N,
        place_of_N,
        lambda queries_QD, number: propose(queries_QD, number, effort),
    )


def _proposer(folder: Path, card: IndexCard, table_ND: Rows) -> Callable[[Tensor, int, int], Neighbours]:
    """The approximate search of a method."""
    if card.method == "hnsw":
        graph = open_graph(folder / GRAPH)
        return lambda queries_QD, number, effort: look_up_graph(graph, queries_QD, number, effort)
    if card.method == "cells":
        held = torch.from_numpy(np.load(folder / CENTRES))
        # The first place of each cell stands in the last column, as a whole number that float64 holds.
        edges = torch.cat([held[:, -1].long(), torch.tensor([card.num_rows])])
        halves_ND = table_ND.half() if isinstance(table_ND, Tensor) else None
        cells = Cells(held[:, :-1].float().contiguous(), edges, halves_ND)
        return lambda queries_QD, number, effort: look_up(cells, table_ND, queries_QD, number, effort)
    return lambda queries_QD, number, effort: nearest(table_ND, queries_QD, number, similarity=DOT)


def _levels(card: IndexCard) -> list[int]:
    """How far a method can look: into so many cells, or keeping so many rows of a graph in sight."""
    least, most = (32, 1024) if card.num_cells is None else (4, card.num_cells)
    return [*(1 << power for power in range(2, 12) if least <= 1 << power < most), most]


def _method(asked: str, num_rows: int) -> str:
    """The method that is meant."""
    if asked not in METHODS:
        raise UsageError(f"method must be one of {', '.join(METHODS)}, got {asked!r}")
    if asked == "hnsw":
        require_usearch()  # before the work
    return ("exact" if num_rows < EXACT_BELOW else "cells") if asked == "auto" else asked


def _write_tables(rows: "Rows | np.ndarray", folder: Path, method: str) -> tuple[int, int | None]:
    """Write the vectors at unit length, in the order that the method wants; number of zero rows, and of cells."""
    num_rows, width = (int(length) for length in rows.shape)
    cells = centres_CD = place_of_N = None
    if method == "cells":
        cells = num_cells(num_rows)
        centres_CD = find_centres(_read(rows, sample_of(num_rows)), cells)
        cell_N = torch.cat([nearest_centres(_read(rows, own), centres_CD) for own in row_slices(num_rows, BLOCK)])
        row_of_N = cell_N.argsort(stable=True)
        place_of_N = torch.empty_like(row_of_N)
        place_of_N[row_of_N] = torch.arange(num_rows)
        np.save(folder / ROWS, row_of_N.numpy())
        counts_C = torch.bincount(cell_N, minlength=cells)
        firsts_C1 = (counts_C.cumsum(0) - counts_C).double()[:, None]
        np.save(folder / CENTRES, torch.cat([centres_CD.double(), firsts_C1], dim=1).numpy())
    num_zero = 0
    with new_array(folder / VECTORS, (num_rows, width), np.float32) as write:
        for own in row_slices(num_rows, BLOCK):
            block_BD = _read(rows, own)
            _check_finite(block_BD, own.start)
            unit_BD = unit_rows(block_BD)
            num_zero += int((unit_BD == 0).all(dim=1).sum())
            if place_of_N is None:
                write(own.start, unit_BD.numpy())
                continue
            # Rows of one cell that come in one block stand together: few writes.
            places, order = place_of_N[own].sort()
            begins = (torch.cat([torch.tensor([-2]), places[:-1]]) + 1 != places).nonzero()[:, 0].tolist()
            sorted_BD = unit_BD[order].numpy()
            for first, last in zip(begins, [*begins[1:], len(places)], strict=True):
                write(int(places[first]), sorted_BD[first:last])
    return num_zero, cells


def _as_rows(vectors: Any) -> "Rows | np.ndarray":
    """Vectors that can be read by rows."""
    if isinstance(vectors, str | Path):
        try:
            return StoredRows(Path(vectors))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{vectors} cannot be indexed: {error}") from None
    rows = vectors if isinstance(vectors, Tensor | StoredRows) else np.asanyarray(vectors)
    if len(rows.shape) != 2 or 0 in rows.shape:
        raise DataError(f"vectors must have shape (n, d), got {tuple(rows.shape)}")
    return rows


def _read(rows: "Rows | np.ndarray", which: "slice | Tensor") -> Tensor:
    """Some rows in float32, in memory."""
    if isinstance(rows, Tensor):
        return rows[which].float()
    if isinstance(rows, StoredRows):
        return rows[which] if isinstance(which, slice) else rows.take(which)[:]
    return torch.from_numpy(np.array(rows[which if isinstance(which, slice) else which.numpy()], dtype=np.float32))


def _check_finite(block_BD: Tensor, first: int) -> None:
    """Name the first row with NaN or infinity."""
    is_finite_B = torch.isfinite(block_BD).all(dim=1)
    if not bool(is_finite_B.all()):
        row = first + int((~is_finite_B).nonzero()[0])
        raise DataError(f"vectors must be finite, but row {row} holds NaN or infinity")


def _table(path: Path) -> Rows:
    """Vectors in memory if half of what is free holds them, which leaves room for float16; else they stay on disk."""
    if path.stat().st_size < available_memory() // 2:
        return torch.from_numpy(np.load(path))
    return StoredRows(path)


def _files(folder: Path) -> list[Path]:
    """The files of an index but for its card."""
    return [path for name in (VECTORS, NAMES, ROWS, CENTRES, GRAPH) if (path := folder / name).is_file()]
