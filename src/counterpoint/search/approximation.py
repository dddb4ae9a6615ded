"""How far an approximate search must look: the least effort whose recall, measured on rows themselves, is enough."""

# N rows, Q queries, K neighbours

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.run_records import Record
from counterpoint.core.stored_rows import Rows, taken, whole
from counterpoint.data.order import random_order
from counterpoint.evaluation.nearest import DOT, Neighbours, nearest

WANTED_RECALL = 0.995  # of the first ten
NUM_QUERIES = 256
NEAR = 10


class Effort(Record):
    """How far a search looks, and what it finds of the exact answer.

    Attributes:
        level: cells that a query looks into, or rows that a graph keeps in sight.
        recall: share of the ten nearest rows that are found.
        low: lower end of the 95 % interval over the queries.
        high: upper end.
        num_queries: rows that were asked for their neighbours, themselves left out.
    """

    level: int
    recall: float
    low: float
    high: float
    num_queries: int


@dataclass(frozen=True)
class Recall:
    """Mean share of neighbours that are found, and its 95 % interval over the queries."""

    value: float
    low: float
    high: float


def calibrate(table_ND: Rows, search: Callable[[Tensor, int, int], Neighbours], levels: Sequence[int]) -> Effort:
    """The least level whose recall is ``WANTED_RECALL``, else the last one.

    Args:
        table_ND: rows at unit length.
        search: by queries, number and level.
        levels: ascending.
    """
    chosen = random_order(0, 2, len(table_ND))[:NUM_QUERIES]
    queries_QD = whole(taken(table_ND, chosen))
    k = min(NEAR + 1, len(table_ND))
    truth_QK = nearest(table_ND, queries_QD, k, similarity=DOT).positions_QK
    effort = None
    for level in levels:
        share = recall(truth_QK, search(queries_QD, k, level).positions_QK, leave_out=chosen)
        effort = Effort(level=level, recall=share.value, low=share.low, high=share.high, num_queries=len(chosen))
        if share.value >= WANTED_RECALL:
            break
    assert effort is not None
    return effort


def recall(truth_QK: Tensor, found_QK: Tensor, *, leave_out: Tensor | None = None) -> Recall:
    """Mean share of the true neighbours that were found, with its 95 % interval over the queries.

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
    return Recall(mean, max(0.0, mean - half), min(1.0, mean + half))
