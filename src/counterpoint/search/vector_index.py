"""An index of vectors in a folder: built a block at a time, read back against its hashes, asked for nearest rows.

Similarity is the cosine. Every row is compared; above ``MOST_COMPARED`` numbers a graph proposes candidates, whose
similarities are computed again, so that both methods give the same numbers, and the same order. The one module that
imports usearch (extra ``search``).
"""

# N rows, Q queries, D features, K neighbours, W candidates

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from counterpoint.core.errors import DataError, RunError, first_line
from counterpoint.core.files import file_state, read_sealed, sha256_of, write_file, write_sealed
from counterpoint.core.numerics import unit_rows
from counterpoint.core.run_records import Record, read_record
from counterpoint.core.stored_rows import Rows, StoredRows, new_array, row_slices, taken, whole
from counterpoint.core.user_files import available_memory, read_text
from counterpoint.data.order import random_order
from counterpoint.evaluation.knn import DOT, Neighbours, nearest

FORMAT = 3
INSTALL = "pip install 'counterpoint[search]'"
# Numbers of a table up to which every row is compared. A query then takes about a second on two cores: 10 ms for 10^5
# rows of 128, 82 ms for 10^6, 0.67 s for 10^7.
MOST_COMPARED = 2_000_000_000
CARD, VECTORS, NAMES, GRAPH = "index.json", "vectors.npy", "names.json", "graph.usearch"
BLOCK = 1 << 16  # rows that are read at a time
SPARE = 8  # candidates beyond k: rounding may order the last ones otherwise
RESCORED = 256  # queries at a time
CONNECTIVITY = 16  # neighbours of a row in the graph
EXPANSION_ADD = 64
EXPANSION_SEARCH = 512  # rows that a query keeps in sight
NUM_QUERIES, NEAR = 256, 10  # by which recall is measured


class IndexCard(Record):
    """What an index is; sealed in ``index.json``, which is written last.

    Attributes:
        format: of the files.
        method: exact or hnsw.
        num_rows: of the table.
        width: dimensions.
        recall: of the graph, measured on its own rows.
        files: the hash ``sha256`` of every other file.
        about: what is indexed, in the words of whoever built it.
    """

    format: int
    method: str
    num_rows: int
    width: int
    recall: float | None = None
    files: Mapping[str, Mapping[str, str]]
    about: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class VectorIndex:
    """An index that can be asked.

    Attributes:
        folder: where it lies.
        card: what it is.
        names: one per row.
        labels: class names, or None.
        table_ND: rows at unit length.
        graph: of usearch; None where every row is compared.
    """

    folder: Path
    card: IndexCard
    names: tuple[str, ...]
    labels: tuple[str | None, ...] | None
    table_ND: Rows
    graph: Any = None

    def __len__(self) -> int:
        return self.card.num_rows

    def search(self, queries_QD: Tensor, k: int) -> Neighbours:
        """The rows with the largest cosines, largest first; of equal ones the first row.

        Args:
            queries_QD: finite vectors of the width of the index.
            k: rows of each query, 1 <= k <= n.

        Returns:
            Cosines, float64, and rows. A graph may find fewer than k: then rows of -1 end a line.
        """
        unit_QD = unit_rows(queries_QD.float())
        wanted = min(k + SPARE, len(self))
        parts = []
        for part_QD in unit_QD.split(1 << 14):
            if self.graph is None:
                row_QW = nearest(self.table_ND, part_QD, wanted, similarity=DOT).positions_QK
            else:
                row_QW = look_up_graph(self.graph, part_QD, wanted)
            # Few enough at a time for the candidates of all to be in memory.
            pieces = zip(part_QD.split(RESCORED), row_QW.split(RESCORED), strict=True)
            parts += [self._ranked(*piece, k) for piece in pieces]
        similarity_QK = torch.cat([each.similarity_QK for each in parts])
        return Neighbours(similarity_QK, torch.cat([each.positions_QK for each in parts]))

    def vectors(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """Some rows at unit length."""
        return self.table_ND[rows] if isinstance(rows, slice) else whole(taken(self.table_ND, rows))

    def how(self) -> str:
        """How rows are found, with the recall where not every one is compared."""
        if self.graph is not None:
            return f"{self.card.method}, approximate: recall@10 {self.card.recall:.3f}, measured on its own rows"
        is_large = len(self) * self.card.width > MOST_COMPARED
        return "every row compared" + f" (usearch is faster: {INSTALL}, then --rebuild)" * is_large

    def _ranked(self, queries_QD: Tensor, row_QW: Tensor, k: int) -> Neighbours:
        """The best k candidates by their cosines in float64."""
        known = row_QW.clamp(min=0)
        rows = whole(taken(self.table_ND, known.flatten()))
        # Row by row, so that copies get the same bits.
        similarity_QW = (rows.view(*known.shape, -1).double() * queries_QD.double()[:, None]).sum(dim=2)
        similarity_QW = torch.where(row_QW < 0, -torch.inf, similarity_QW)
        row_QW = torch.where(row_QW < 0, len(self), row_QW)
        by_row_QW = row_QW.argsort(dim=1)
        similarity_QW, row_QW = similarity_QW.gather(1, by_row_QW), row_QW.gather(1, by_row_QW)
        best_QK = similarity_QW.argsort(dim=1, descending=True, stable=True)[:, :k]
        row_QK = row_QW.gather(1, best_QK)
        return Neighbours(similarity_QW.gather(1, best_QK), torch.where(row_QK == len(self), -1, row_QK))


def build_index(
    rows_ND: Rows,
    folder: Path,
    *,
    names: Sequence[str],
    labels: Sequence[str | None] | None = None,
    about: Mapping[str, Any] | None = None,
    has_graph: bool | None = None,
) -> VectorIndex:
    """Build an index in a folder, in memory bounds that do not depend on the number of rows.

    Args:
        rows_ND: vectors, in memory or on disk, read by blocks.
        folder: a new one.
        names: one per row.
        labels: class names, None where unknown.
        about: what is indexed, for the card.
        has_graph: whether a graph of usearch proposes candidates; None: above ``MOST_COMPARED`` numbers, where usearch
            is installed.

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
    has_graph = num_rows * width > MOST_COMPARED and has_usearch() if has_graph is None else has_graph
    recall = build_graph(_table(folder / VECTORS), folder / GRAPH) if has_graph else None
    files = [path for name in (VECTORS, NAMES, GRAPH) if (path := folder / name).is_file()]
    card = IndexCard(
        format=FORMAT,
        method="hnsw" if has_graph else "exact",
        num_rows=num_rows,
        width=width,
        recall=recall,
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
            f"{folder / CARD} has format {values.get('format')}; this version reads {FORMAT}: make it again "
            "with --rebuild"
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
            problem = RunError(f"the index {folder} cannot be read ({error!r}); make it again with --rebuild")
        if file_state(folder / CARD) != before:
            continue
        if problem is not None:
            raise problem
        return found
    return None


def _opened(folder: Path, card: IndexCard) -> VectorIndex:
    """The index, each of its files as it was written, with what its method needs."""
    for name, seal in card.files.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != seal.get("sha256", ""):
            raise RunError(f"{folder / name} is missing or damaged; make the index again with --rebuild")
    held = json.loads(read_text(folder / NAMES))
    labels = None if held["labels"] is None else tuple(held["labels"])
    for texts, kinds in ((held["names"], str), (labels, str | None)):  # the file may be forged
        if texts is not None and (len(texts) != card.num_rows or not all(isinstance(each, kinds) for each in texts)):
            raise ValueError(f"{NAMES} does not name each of {card.num_rows} rows")
    graph = None
    if card.method == "hnsw" and has_usearch():
        from usearch.index import Index  # deferred: as above

        try:
            graph = Index.restore(str(folder / GRAPH))
        except (RuntimeError, OSError, ValueError) as error:
            raise RunError(f"{folder / GRAPH} is damaged: {first_line(error)}; make it again with --rebuild") from None
    return VectorIndex(folder, card, tuple(held["names"]), labels, _table(folder / VECTORS), graph)


def _table(path: Path) -> Rows:
    """Vectors in memory if half of what is free holds them; else they stay on disk."""
    if path.stat().st_size < available_memory() // 2:
        return torch.from_numpy(np.load(path))
    return StoredRows(path)


def has_usearch() -> bool:
    """Whether usearch is installed."""
    return importlib.util.find_spec("usearch") is not None


def build_graph(rows_ND: Rows, path: Path) -> float:
    """Add all rows, a part at a time, and write the graph.

    Args:
        rows_ND: at unit length.
        path: of the file.

    Returns:
        Recall: the mean share of the ten nearest rows that it finds of some of its own rows, which do not count
        themselves.
    """
    from usearch.index import Index  # deferred: the extra `search` may be absent

    graph = Index(
        ndim=rows_ND.shape[1], metric="ip", dtype="f16", connectivity=CONNECTIVITY, expansion_add=EXPANSION_ADD
    )
    for part in row_slices(len(rows_ND), BLOCK):
        keys = np.arange(part.start, part.stop, dtype=np.uint64)
        graph.add(keys, rows_ND[part].numpy(), threads=torch.get_num_threads())
    graph.save(str(path))
    chosen = random_order(0, 2, len(rows_ND))[:NUM_QUERIES]
    queries_QD, k = whole(taken(rows_ND, chosen)), min(NEAR + 1, len(rows_ND))
    truth_QK = nearest(rows_ND, queries_QD, k, similarity=DOT).positions_QK
    found_QK, counts_QK = look_up_graph(graph, queries_QD, k), truth_QK != chosen[:, None]
    is_found_QK = (truth_QK[:, :, None] == found_QK[:, None, :]).any(dim=2) & counts_QK
    return float((is_found_QK.sum(dim=1).double() / counts_QK.sum(dim=1).clamp(min=1)).mean())


def look_up_graph(graph: Any, queries_QD: Tensor, num_found: int) -> Tensor:
    """The rows that the graph leads to, (q, num_found); where it finds fewer, places of -1 follow.

    Args:
        graph: of usearch.
        queries_QD: at unit length.
        num_found: how many of each query.
    """
    graph.expansion_search = max(EXPANSION_SEARCH, num_found)
    found = graph.search(queries_QD.numpy(), num_found, threads=torch.get_num_threads())
    # One query gives no axis of queries.
    keys = torch.from_numpy(np.atleast_2d(found.keys).astype(np.int64))
    places = torch.full((len(queries_QD), num_found), -1)
    places[:, : keys.shape[1]] = keys
    counts = torch.as_tensor(np.atleast_1d(getattr(found, "counts", keys.shape[1]))).reshape(-1, 1)
    return torch.where(torch.arange(num_found) < counts, places, -1)
