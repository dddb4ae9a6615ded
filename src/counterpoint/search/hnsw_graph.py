"""Approximate search by a graph of near rows (HNSW): the one module that imports usearch (extra ``search``)."""

# N rows, Q queries, D features, K neighbours

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import RunError, UsageError, first_line
from counterpoint.core.run_records import Record
from counterpoint.core.stored_rows import Rows, row_slices, taken, whole
from counterpoint.data.order import random_order
from counterpoint.evaluation.nearest import DOT, Neighbours, nearest

CONNECTIVITY = 16  # neighbours of a row in the graph
EXPANSION_ADD = 64
EXPANSION_SEARCH = 512  # rows that a query keeps in sight
ADDED = 1 << 16  # rows at a time
NUM_QUERIES, NEAR = 256, 10  # by which recall is measured
INSTALL = "pip install 'counterpoint[search]'"


class Recall(Record):
    """Mean share of the nearest rows that are found, and its 95 % interval over the queries."""

    value: float
    low: float
    high: float


def has_usearch() -> bool:
    """Whether usearch is installed."""
    try:
        return importlib.util.find_spec("usearch.index") is not None
    except (ImportError, ValueError):
        return False


def require_usearch() -> Any:
    """Import usearch.

    Raises:
        UsageError: it is not installed; the text says how to get it.
    """
    try:
        import usearch.index  # deferred: the extra `search` may be absent
    except ImportError:
        raise UsageError(f"the method hnsw needs usearch; install it with: {INSTALL}, or take exact") from None
    return usearch.index


def build_graph(rows_ND: Rows, path: Path) -> Recall:
    """Add all rows, a part at a time, and write the graph.

    Args:
        rows_ND: at unit length.
        path: of the file.

    Returns:
        Share of the ten nearest rows that it finds of some of its own rows, which do not count themselves.

    Raises:
        UsageError: usearch is not installed.
    """
    graph = require_usearch().Index(
        ndim=rows_ND.shape[1], metric="ip", dtype="f16", connectivity=CONNECTIVITY, expansion_add=EXPANSION_ADD
    )
    for part in row_slices(len(rows_ND), ADDED):
        keys = np.arange(part.start, part.stop, dtype=np.uint64)
        graph.add(keys, rows_ND[part].numpy(), threads=torch.get_num_threads())
    graph.save(str(path))
    chosen = random_order(0, 2, len(rows_ND))[:NUM_QUERIES]
    queries_QD, k = whole(taken(rows_ND, chosen)), min(NEAR + 1, len(rows_ND))
    truth_QK = nearest(rows_ND, queries_QD, k, similarity=DOT).positions_QK
    return recall(truth_QK, look_up_graph(graph, queries_QD, k).positions_QK, leave_out=chosen)


def open_graph(path: Path) -> Any:
    """Read a graph that ``build_graph`` wrote.

    Raises:
        UsageError: usearch is not installed.
        RunError: it cannot be read.
    """
    usearch = require_usearch()
    try:
        return usearch.Index.restore(str(path))
    except (RuntimeError, OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {first_line(error)}; make it again with --rebuild") from None


def look_up_graph(graph: Any, queries_QD: Tensor, num_found: int) -> Neighbours:
    """The rows that the graph leads to; where it finds fewer, places of -1 follow.

    Args:
        graph: from ``open_graph``.
        queries_QD: at unit length.
        num_found: how many of each query.
    """
    graph.expansion_search = max(EXPANSION_SEARCH, num_found)
    found = graph.search(queries_QD.numpy(), num_found, threads=torch.get_num_threads())
    # One query gives no axis of queries.
    keys = np.atleast_2d(found.keys).astype(np.int64)
    values, places = torch.full((len(queries_QD), num_found), -torch.inf), torch.full((len(queries_QD), num_found), -1)
    values[:, : keys.shape[1]] = torch.from_numpy(1 - np.atleast_2d(found.distances).astype(np.float32))
    places[:, : keys.shape[1]] = torch.from_numpy(keys)
    counts = torch.as_tensor(np.atleast_1d(getattr(found, "counts", keys.shape[1]))).reshape(-1, 1)
    is_found = torch.arange(num_found) < counts
    return Neighbours(torch.where(is_found, values, -torch.inf), torch.where(is_found, places, -1))


def recall(truth_QK: Tensor, found_QK: Tensor, *, leave_out: Tensor | None = None) -> Recall:
    """Mean share of the true neighbours that were found.

    Args:
        truth_QK: rows.
        found_QK: rows, as many queries.
        leave_out: a row of each query that does not count, such as itself.

    >>> recall(torch.tensor([[1, 2]]), torch.tensor([[2, 5]])).value
    0.5
    """
    counts_QK = torch.ones_like(truth_QK, dtype=torch.bool) if leave_out is None else truth_QK != leave_out[:, None]
    is_found_QK = (truth_QK[:, :, None] == found_QK[:, None, :]).any(dim=2) & counts_QK
    share_Q = is_found_QK.sum(dim=1).double() / counts_QK.sum(dim=1).clamp(min=1)
    mean = float(share_Q.mean())
    half = 1.96 * float(share_Q.std()) / len(share_Q) ** 0.5 if len(share_Q) > 1 else 0.0
    return Recall(value=mean, low=max(0.0, mean - half), high=min(1.0, mean + half))
