"""Approximate search by a graph of near rows (HNSW): the one module that imports usearch (extra ``search``)."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import RunError, UsageError, first_line
from counterpoint.core.stored_rows import Rows, row_slices
from counterpoint.evaluation.nearest import Neighbours

CONNECTIVITY = 16  # neighbours of a row in the graph
EXPANSION_ADD = 64
ADDED = 1 << 16  # rows at a time


def require_usearch() -> Any:
    """Import usearch.

    Raises:
        UsageError: it is not installed; the text says how to get it.
    """
    try:
        import usearch.index  # deferred: the extra `search` may be absent
    except ImportError:
        raise UsageError(
            "the method hnsw needs usearch; install it with: pip install 'counterpoint[search]', or take cells, which "
            "needs nothing"
        ) from None
    return usearch.index


def build_graph(rows_ND: Rows, path: Path) -> None:
    """Add all rows, a part at a time, and write the graph.

    Args:
        rows_ND: at unit length.
        path: of the file.
    """
    graph = require_usearch().Index(
        ndim=rows_ND.shape[1], metric="ip", dtype="f16", connectivity=CONNECTIVITY, expansion_add=EXPANSION_ADD
    )
    for part in row_slices(len(rows_ND), ADDED):
        keys = np.arange(part.start, part.stop, dtype=np.uint64)
        graph.add(keys, rows_ND[part].numpy(), threads=torch.get_num_threads())
    graph.save(str(path))


def open_graph(path: Path) -> Any:
    """Read a graph that ``build_graph`` wrote.

    Raises:
        RunError: it cannot be read.
    """
    usearch = require_usearch()
    try:
        return usearch.Index.restore(str(path))
    except (RuntimeError, OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {first_line(error)}; make it again with --rebuild") from None


def look_up_graph(graph: Any, queries_QD: Tensor, num_found: int, expansion: int) -> Neighbours:
    """The rows that the graph leads to; where it finds fewer, places of -1 follow.

    Args:
        graph: from ``open_graph``.
        queries_QD: at unit length.
        num_found: how many of each query.
        expansion: how many rows are kept in sight.
    """
    graph.expansion_search = expansion
    found = graph.search(queries_QD.numpy(), num_found, threads=torch.get_num_threads())
    # One query gives no axis of queries.
    keys = np.atleast_2d(found.keys).astype(np.int64)
    values, places = torch.full((len(queries_QD), num_found), -torch.inf), torch.full((len(queries_QD), num_found), -1)
    values[:, : keys.shape[1]] = torch.from_numpy(1 - np.atleast_2d(found.distances).astype(np.float32))
    places[:, : keys.shape[1]] = torch.from_numpy(keys)
    counts = torch.as_tensor(np.atleast_1d(getattr(found, "counts", keys.shape[1]))).reshape(-1, 1)
    is_found = torch.arange(num_found) < counts
    return Neighbours(torch.where(is_found, values, -torch.inf), torch.where(is_found, places, -1))
