"""Approximate search by cells: rows lie in the cell of their nearest centre, and a query looks into the nearest cells.

What is looked at is compared in float32. With every cell looked into, the answer is that of the exact search. A query
by itself takes as long as it takes to read its cells from memory, so that rows which lie there are read in float16
first. The nearest by that are read in float32, too, and all are where the rounding of float16 leaves a doubt.
"""

# N rows, Q queries, D features, C cells, P cells that a query looks into, S rows from which the centres are found

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.core.stored_rows import Rows, row_slices, taken, whole
from counterpoint.core.thread_parts import alone, side_by_side
from counterpoint.data.order import random_order
from counterpoint.evaluation.nearest import Neighbours

MOST_CELLS = 4096
ROUNDS = 8  # of k-means: more change no figure of recall measurably
ROWS_PER_CENTRE = 64  # of the sample from which centres are found
ASSIGNED = 8192  # rows of a block
MOST_QUERIES = 4096  # together
FEW_QUERIES = 8  # up to which each goes through its own cells; of more, each cell takes its queries together
READ_AGAIN = 8  # times as many rows as are wanted
# Of a cosine by float16: 2^-11 for each entry of a row and of the query, 2^-12 for the sum, and a little for the rest.
HALF_ERROR = 1.3e-3


@dataclass(frozen=True)
class Cells:
    """Centres and the rows of each cell.

    Attributes:
        centres_CD: at unit length.
        edges_C1: rows of cell c stand at the places ``edges[c]`` to ``edges[c + 1] - 1``.
        halves_ND: the rows in float16; None where they lie on disk.
    """

    centres_CD: Tensor
    edges_C1: Tensor
    halves_ND: Tensor | None = None

    def __len__(self) -> int:
        return len(self.centres_CD)


def num_cells(num_rows: int) -> int:
    """About 2 sqrt(n), a power of two; at most ``MOST_CELLS``.

    >>> num_cells(20_000), num_cells(1_000_000)
    (256, 2048)
    """
    return min(MOST_CELLS, 2 << round(math.log2(max(num_rows, 2)) / 2))


def sample_of(num_rows: int) -> Tensor:
    """Rows from which centres are found, ascending."""
    return random_order(0, 0, num_rows)[: num_cells(num_rows) * ROWS_PER_CENTRE].sort().values


def find_centres(sample_SD: Tensor, number: int) -> Tensor:
    """Centres of cells by spherical k-means; (c, d), at unit length.

    The same rows give the same centres with any number of threads.
    """
    sample_SD = unit_rows(sample_SD)
    centres_CD = sample_SD[random_order(0, 1, len(sample_SD))[:number].sort().values]
    for _ in range(ROUNDS):
        cell_S = nearest_centres(sample_SD, centres_CD)
        sums_CD = torch.zeros_like(centres_CD).index_add_(0, cell_S, sample_SD)
        # A centre that lost all its rows stays where it is.
        is_empty_C1 = sums_CD.norm(dim=1, keepdim=True) == 0
        centres_CD = torch.where(is_empty_C1, centres_CD, unit_rows(sums_CD))
    return centres_CD


def nearest_centres(rows_ND: Tensor, centres_CD: Tensor) -> Tensor:
    """Number of the nearest centre of each row; int64 (n,). The length of rows does not count."""
    parts = side_by_side(lambda own: (rows_ND[own] @ centres_CD.T).argmax(dim=1), row_slices(len(rows_ND), ASSIGNED))
    return torch.cat(parts)


def look_up(cells: Cells, rows_ND: Rows, queries_QD: Tensor, num_found: int, num_probes: int) -> Neighbours:
    """The rows that are most similar to each query in the cells nearest to it.

    Args:
        cells: of the rows.
        rows_ND: at unit length, in the order of cells.
        queries_QD: at unit length.
        num_found: how many of each query; where its cells hold fewer, places of -1 follow.
        num_probes: how many cells a query looks into.
    """
    probes = min(num_probes, len(cells))
    if len(queries_QD) <= FEW_QUERIES:
        with alone():
            found = [_of_query(cells, rows_ND, query_D, num_found, probes) for query_D in queries_QD]
    else:
        found = [_of_queries(cells, rows_ND, part, num_found, probes) for part in queries_QD.split(MOST_QUERIES)]
    return Neighbours(
        torch.cat([each.similarity_QK for each in found]), torch.cat([each.positions_QK for each in found])
    )


def _of_query(cells: Cells, rows_ND: Rows, query_D: Tensor, num_found: int, probes: int) -> Neighbours:
    """Cell after cell."""
    near = torch.mv(cells.centres_CD, query_D).topk(probes, sorted=False).indices
    firsts_P, lasts_P = cells.edges_C1[near], cells.edges_C1[near + 1]
    own = list(zip(firsts_P.tolist(), lasts_P.tolist(), strict=True))
    # Place of each row that is looked at, less its place among them; empty cells begin where the next one does.
    ends_P = (lasts_P - firsts_P).cumsum(0)
    shift_P = lasts_P - ends_P

    def best_of(table_ND: Rows, number: int) -> tuple[Tensor, Tensor]:
        asked_D = query_D.to(table_ND.dtype)
        similarity = torch.cat([torch.mv(table_ND[first:last], asked_D) for first, last in own])
        values, seen = similarity.topk(min(number, len(similarity)))
        return values, seen + shift_P[torch.searchsorted(ends_P, seen, right=True)]

    values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
    is_settled = False
    if cells.halves_ND is not None:
        rough, among = best_of(cells.halves_ND, READ_AGAIN * num_found)
        values, order = torch.mv(whole(taken(rows_ND, among)), query_D).topk(min(num_found, len(among)))
        places = among[order]
        # No row that was left out can be nearer than the last one found.
        is_settled = len(among) < READ_AGAIN * num_found or bool(values[-1] > rough[-1].float() + HALF_ERROR)
    if not is_settled:
        values, places = best_of(rows_ND, num_found)
    missing = (0, num_found - len(places))
    pad = torch.nn.functional.pad
    return Neighbours(pad(values[None], missing, value=-math.inf), pad(places[None], missing, value=-1))


def _of_queries(cells: Cells, rows_ND: Rows, queries_QD: Tensor, num_found: int, probes: int) -> Neighbours:
    """Queries by cell: a cell's rows are read once for all that look into it."""
    cells_QP = torch.cat(
        side_by_side(
            lambda own: (queries_QD[own] @ cells.centres_CD.T).topk(probes, dim=1).indices,
            row_slices(len(queries_QD), ASSIGNED),
        )
    )
    cell_of, order = cells_QP.flatten().sort(stable=True)
    used, counts = cell_of.unique_consecutive(return_counts=True)
    values = torch.full((len(order), num_found), -math.inf)
    places = torch.full((len(order), num_found), -1)

    def of_cell(group: tuple[int, Tensor]) -> None:
        cell, pairs = group
        first, last = cells.edges_C1[cell : cell + 2].tolist()
        best = (queries_QD[pairs // probes] @ rows_ND[first:last].T).topk(min(num_found, last - first), dim=1)
        values[pairs, : best.values.shape[1]], places[pairs, : best.values.shape[1]] = best.values, best.indices + first

    side_by_side(of_cell, zip(used.tolist(), order.split(counts.tolist()), strict=True))
    best = values.view(len(queries_QD), -1).topk(num_found, dim=1)
    return Neighbours(best.values, places.view(len(queries_QD), -1).gather(1, best.indices))
