"""Approximate search by a graph of near rows (HNSW): the one module that imports usearch (extra ``search``)."""

# N rows, Q queries, D features, K neighbours

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import RunError, first_line
from counterpoint.core.stored_rows import Rows, row_slices, taken, whole
from counterpoint.data.order import random_order
from counterpoint.evaluation.knn import DOT, nearest

CONNECTIVITY = 16  # neighbours of a row in the graph
EXPANSION_ADD = 64
EXPANSION_SEARCH = 512  # rows that a query keeps in sight
ADDED = 1 << 16  # rows at a time
NUM_QUERIES, NEAR = 256, 10  # by which recall is measured


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
    for part in row_slices(len(rows_ND), ADDED):
        keys = np.arange(part.start, part.stop, dtype=np.uint64)
        graph.add(keys, rows_ND[part].numpy(), threads=torch.get_num_threads())
    graph.save(str(path))
    chosen = random_order(0, 2, len(rows_ND))[:NUM_QUERIES]
    queries_QD, k = whole(taken(rows_ND, chosen)), min(NEAR + 1, len(rows_ND))
    truth_QK = nearest(rows_ND, queries_QD, k, similarity=DOT).positions_QK
    found_QK, counts_QK = look_up_graph(graph, queries_QD, k), truth_QK != chosen[:, None]
    is_found_QK = (truth_QK[:, :, None] == found_QK[:, None, :]).any(dim=2) & counts_QK
    return float((is_found_QK.sum(dim=1).double() / counts_QK.sum(dim=1).clamp(min=1)).mean())


def open_graph(path: Path) -> Any:
    """Read a graph that ``build_graph`` wrote.

    Raises:
        RunError: it cannot be read.
    """
    from usearch.index import Index  # deferred: as above

    try:
        return Index.restore(str(path))
    except (RuntimeError, OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {first_line(error)}; make it again with --rebuild") from None


def look_up_graph(graph: Any, queries_QD: Tensor, num_found: int) -> Tensor:
    """The rows that the graph leads to, (q, num_found); where it finds fewer, places of -1 follow.

    Args:
        graph: from ``open_graph``.
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
