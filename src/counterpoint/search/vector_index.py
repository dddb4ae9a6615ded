"""An index of vectors in a folder: built a block at a time, read back against its hashes, searched for nearest rows.

Similarity is the cosine. Every row is compared: a query takes about 10 ms for 10^5 rows of 128 on two cores, 82 ms for
10^6, 0.67 s for 10^7. The similarities of the best are computed again in float64, so that copies get the same bits.
"""

# N rows, Q queries, D features, K neighbours, W candidates

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from counterpoint.core.errors import DataError, RunError
from counterpoint.core.files import file_state, read_sealed, sha256_of, write_file, write_sealed
from counterpoint.core.numerics import unit_rows
from counterpoint.core.operating_system import available_memory
from counterpoint.core.run_records import Record, read_record
from counterpoint.core.stored_rows import Rows, StoredRows, new_array, row_slices, taken, whole
from counterpoint.core.user_files import read_text
from counterpoint.evaluation.knn import DOT, Neighbours, nearest

FORMAT = 3
CARD, VECTORS, NAMES = "index.json", "vectors.npy", "names.json"
BLOCK = 1 << 16  # rows that are read at a time
SPARE = 8  # candidates beyond k: rounding may order the last ones otherwise
RESCORED = 256  # queries at a time


class IndexCard(Record):
    """What an index is; sealed in ``index.json``, which is written last.

    Attributes:
        format: of the files.
        num_rows: of the table.
        width: dimensions.
        files: the hash ``sha256`` of every other file.
        about: what is indexed, as its builder describes it.
    """

    format: int
    num_rows: int
    width: int
    files: Mapping[str, Mapping[str, str]]
    about: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class VectorIndex:
    """An index that can be asked.

    Attributes:
        folder: where it lies.
        card: description of the index.
        names: one per row.
        labels: class names, or None.
        table_ND: rows at unit length.
    """

    folder: Path
    card: IndexCard
    names: tuple[str, ...]
    labels: tuple[str | None, ...] | None
    table_ND: Rows

    def __len__(self) -> int:
        return self.card.num_rows

    def search(self, queries_QD: Tensor, k: int) -> Neighbours:
        """The rows with the largest cosines, largest first; of equal ones the first row.

        Args:
            queries_QD: finite vectors of the width of the index.
            k: rows of each query, 1 <= k <= n.

        Returns:
            Cosines, float64, and rows.
        """
        unit_QD = unit_rows(queries_QD.float())
        wanted = min(k + SPARE, len(self))
        parts = []
        for part_QD in unit_QD.split(1 << 14):
            row_QW = nearest(self.table_ND, part_QD, wanted, similarity=DOT).positions_QK
            # Few enough at a time for the candidates of all to be in memory.
            pieces = zip(part_QD.split(RESCORED), row_QW.split(RESCORED), strict=True)
            parts += [self._ranked(*piece, k) for piece in pieces]
        similarity_QK = torch.cat([each.similarity_QK for each in parts])
        return Neighbours(similarity_QK, torch.cat([each.positions_QK for each in parts]))

    def vectors(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """Some rows at unit length."""
        return self.table_ND[rows] if isinstance(rows, slice) else whole(taken(self.table_ND, rows))

    def _ranked(self, queries_QD: Tensor, row_QW: Tensor, k: int) -> Neighbours:
        """The best k candidates by their cosines in float64."""
        rows = whole(taken(self.table_ND, row_QW.flatten()))
        # Row by row, so that copies get the same bits.
        similarity_QW = (rows.view(*row_QW.shape, -1).double() * queries_QD.double()[:, None]).sum(dim=2)
        by_row_QW = row_QW.argsort(dim=1)
        similarity_QW, row_QW = similarity_QW.gather(1, by_row_QW), row_QW.gather(1, by_row_QW)
        best_QK = similarity_QW.argsort(dim=1, descending=True, stable=True)[:, :k]
        return Neighbours(similarity_QW.gather(1, best_QK), row_QW.gather(1, best_QK))


def build_index(
    rows_ND: Rows,
    folder: Path,
    *,
    names: Sequence[str],
    labels: Sequence[str | None] | None = None,
    about: Mapping[str, Any] | None = None,
) -> VectorIndex:
    """Build an index in a folder, in memory bounds that do not depend on the number of rows.

    Args:
        rows_ND: vectors, in memory or on disk, read by blocks.
        folder: a new one.
        names: one per row.
        labels: class names, None where unknown.
        about: what is indexed, for the card.

    Raises:
        DataError: rows that are not finite: the first is named.
        OSError: the folder cannot be written.
    """
    num_rows, width = (int(length) for length in rows_ND.shape)
    with new_array(folder / VECTORS, (num_rows, width), np.float32) as write:
        for own in row_slices(num_rows, BLOCK):
            block_BD = rows_ND[own].float()
            if not bool((is_finite_B := torch.isfinite(block_BD).all(dim=1)).all()):
                row = own.start + int((~is_finite_B).nonzero()[0])
                raise DataError(f"vectors must be finite, but row {row} holds NaN or infinity")
            write(own.start, unit_rows(block_BD).numpy())
    held = {"names": list(names), "labels": None if labels is None else list(labels)}
    write_file(folder / NAMES, [json.dumps(held).encode()])
    files = [folder / name for name in (VECTORS, NAMES)]
    card = IndexCard(
        format=FORMAT,
        num_rows=num_rows,
        width=width,
        files={path.name: {"sha256": sha256_of(path)} for path in files},
        about=dict(about or {}),
    )
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
            f"{folder / CARD} has format {values.get('format')}; this version reads {FORMAT}: rebuild it with --rebuild"
        )
    return read_record(IndexCard, values, str(folder / CARD))


def open_index(folder: Path) -> VectorIndex | None:
    """The index that lies in a folder; None where there is none.

    A build may put another one in its place meanwhile: then what was read of the first counts for nothing.

    Raises:
        RunError: a file is missing or damaged; it is named.
    """
    while (before := file_state(folder / CARD)) is not None:
        found = problem = None
        try:
            found = _opened(folder, read_card(folder))
        except RunError as error:
            problem = error
        # Another file, or a forged one.
        except (OSError, ValueError, EOFError, LookupError, TypeError, RecursionError) as error:
            problem = RunError(f"the index {folder} cannot be read ({error!r}); rebuild it with --rebuild")
        if file_state(folder / CARD) != before:
            continue
        if problem is not None:
            raise problem
        return found
    return None


def _opened(folder: Path, card: IndexCard) -> VectorIndex:
    """The index, each of its files as it was written."""
    for name, seal in card.files.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != seal.get("sha256", ""):
            raise RunError(f"{folder / name} is missing or damaged; make the index again with --rebuild")
    held = json.loads(read_text(folder / NAMES))
    labels = None if held["labels"] is None else tuple(held["labels"])
    for texts, kinds in ((held["names"], str), (labels, str | None)):  # the file may be forged
        if texts is not None and (len(texts) != card.num_rows or not all(isinstance(each, kinds) for each in texts)):
            raise ValueError(f"{NAMES} does not name each of {card.num_rows} rows")
    return VectorIndex(folder, card, tuple(held["names"]), labels, _table(folder / VECTORS))


def _table(path: Path) -> Rows:
    """Vectors in memory if half of what is free holds them; else they stay on disk."""
    if path.stat().st_size < available_memory() // 2:
        return torch.from_numpy(np.load(path))
    return StoredRows(path)
