"""Pairs of near rows among too many rows to compare all: within k-means buckets, and with the buckets nearest to each.

Rows of one direction nearly always fall into one bucket or into two neighbouring ones (abbas2023). How many are lost is
measured: some rows are compared with all others.
"""

# N rows, D features, B buckets, P pairs, Q rows that are compared with all

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import unit_rows
from counterpoint.core.pieces import HERE, PieceEngine
from counterpoint.core.stored_rows import Rows, StoredRows, row_slices, taken, whole
from counterpoint.core.thread_parts import one_thread
from counterpoint.core.torch_state import usual_modes
from counterpoint.data.order import random_order
from counterpoint.evaluation.metric_types import Proportion, wilson

SAMPLED = 256  # rows for each centre
NEAREST_BUCKETS = 3  # that the rows of a bucket are compared with, beside their own
FIRST = 10  # near rows of each row that are kept, the first of the collection: of 1,000 equal rows no 500,000 pairs
ASSIGNED, QUERIES, KEYS = 1 << 14, 1 << 11, 1 << 13  # rows at a time
CHECKED = 4096  # rows that are compared with all
ROUNDING = 1e-6  # of a cosine in float32


@dataclass(frozen=True)
class NearPairs:
    """Pairs of near rows.

    Attributes:
        pairs_P2: rows, the smaller first, ascending.
        cosine_P: float64.
        recall: of sampled rows that have a near one, the share for which a pair was found; None where none has.
    """

    pairs_P2: Tensor
    cosine_P: Tensor
    recall: Proportion | None = None


@dataclass(frozen=True)
class _Bucket:
    """Rows of a bucket, and of those neighbouring buckets that are not compared with it elsewhere."""

    own: np.ndarray
    others: np.ndarray


def bucket_pairs(
    rows_ND: Rows,
    least: float,
    *,
    num_buckets: int,
    engine: PieceEngine = HERE,
    advance: Callable[[], object] = lambda: None,
) -> NearPairs:
    """Pairs of rows whose cosine is large enough; the same with any engine.

    Args:
        rows_ND: finite.
        least: cosine, at most 1.
        num_buckets: one for some 1,000 to 10,000 rows; more are faster and lose more pairs.
        engine: whose workers compare.
        advance: called once for each bucket that holds rows.

    Raises:
        UsageError: more buckets than rows.

    >>> found = bucket_pairs(torch.eye(8)[[0, 1, 2, 3, 1, 1]], 0.99, num_buckets=2)
    >>> found.pairs_P2.tolist(), found.cosine_P.tolist()
    ([[1, 4], [1, 5], [4, 5]], [1.0, 1.0, 1.0])
    """
    if not 1 <= num_buckets <= len(rows_ND):
        raise UsageError(f"buckets must be between 1 and the {len(rows_ND):,} rows, got {num_buckets}")
    # Unit vectors around which rows lie, from a sample of them.
    sampled = random_order(0, 6, len(rows_ND))[: SAMPLED * num_buckets].sort().values
    with one_thread():  # sums of several threads have other bits
        unit = unit_rows(whole(taken(rows_ND, sampled)).float())
        means = MiniBatchKMeans(num_buckets, batch_size=4096, n_init="auto", random_state=0).fit(unit.numpy())
    centres_BD = unit_rows(torch.from_numpy(means.cluster_centers_).float())
    # An open file cannot be sent to another process.
    begin = partial(StoredRows, rows_ND.path) if isinstance(rows_ND, StoredRows) else partial(torch.as_tensor, rows_ND)
    with engine.opened(begin) as workers:
        slices = [(rows.start, rows.stop) for rows in row_slices(len(rows_ND), ASSIGNED)]
        nearest = dict(workers.each(partial(_nearest_centres, centres_BD=centres_BD), slices))
        buckets = _buckets(np.concatenate([nearest[rows] for rows in slices]), centres_BD)
        found = []
        for _, pairs in workers.each(partial(_near_rows, least=least), buckets):
            found.append(pairs)
            advance()
    pairs = _first_of_each(torch.cat([part.pairs_P2 for part in found]), torch.cat([part.cosine_P for part in found]))
    return NearPairs(pairs.pairs_P2, pairs.cosine_P, _recall(rows_ND, least, pairs))


def direct_groups(pairs: NearPairs) -> list[tuple[tuple[int, ...], float]]:
    """Rows with those that are near to them directly, and the least cosine; the largest group first, then by first row.

    Rows come in their order. Each joins the first one that it is near to and that began a group itself, or none; two
    rows are never put together because both are near to a third.

    >>> pairs = NearPairs(torch.tensor([[0, 4], [4, 7], [0, 9]]), torch.tensor([0.75, 0.5, 0.25]))
    >>> direct_groups(pairs)
    [((0, 4, 9), 0.25)]
    """
    joined: set[int] = set()
    groups: dict[int, list[tuple[int, float]]] = {}
    order = np.lexsort(pairs.pairs_P2.numpy().T)  # by the later row, then by the earlier one
    rows, cosines = pairs.pairs_P2[order].tolist(), pairs.cosine_P[order].tolist()
    for (first, second), cosine in zip(rows, cosines, strict=True):
        if first not in joined and second not in joined:
            joined.add(second)
            groups.setdefault(first, []).append((second, round(cosine, 9)))
    found = [
        ((first, *(row for row, _ in members)), min(cosine for _, cosine in members))
        for first, members in groups.items()
    ]
    return sorted(found, key=lambda group: (-len(group[0]), group[0]))


@usual_modes()
def _nearest_centres(rows_ND: Rows, rows: tuple[int, int], centres_BD: Tensor) -> np.ndarray:
    unit = unit_rows(rows_ND[slice(*rows)].float())
    return torch.cat([(part @ centres_BD.T).argmax(dim=1) for part in unit.split(QUERIES)]).numpy().astype(np.int32)


def _buckets(bucket_N: np.ndarray, centres_BD: Tensor) -> list[_Bucket]:
    """Rows of each bucket, and whom they are compared with; each two neighbouring buckets meet once."""
    similarity_BB = (centres_BD @ centres_BD.T).fill_diagonal_(-torch.inf)
    near = similarity_BB.topk(min(NEAREST_BUCKETS, len(centres_BD) - 1), dim=1).indices.tolist()
    meets: dict[int, list[int]] = {number: [] for number in range(len(near))}
    for one, other in sorted({(min(one, other), max(one, other)) for one, some in enumerate(near) for other in some}):
        meets[one].append(other)
    ends = np.cumsum(np.bincount(bucket_N, minlength=len(near)))[:-1]
    rows_of = np.split(np.argsort(bucket_N, kind="stable"), ends)
    return [
        _Bucket(own, np.concatenate([own[:0], *(rows_of[other] for other in meets[number])]))
        for number, own in enumerate(rows_of)
        if len(own)
    ]


@usual_modes()
def _near_rows(rows_ND: Rows, bucket: _Bucket, least: float) -> NearPairs:
    """Pairs of a row of the bucket with another one of it, or of its neighbours."""
    keys = torch.from_numpy(np.sort(np.concatenate([bucket.own, bucket.others])))
    own = torch.from_numpy(bucket.own)
    own_QD, key_KD = (unit_rows(whole(taken(rows_ND, rows)).float()) for rows in (own, keys))
    pairs, cosines = [torch.empty(0, 2, dtype=torch.int64)], [torch.empty(0, dtype=torch.float64)]
    for query in row_slices(len(own), QUERIES):
        for key in row_slices(len(keys), KEYS):
            at_Q, at_K = (own_QD[query] @ key_KD[key].T >= least - ROUNDING).nonzero().T
            is_pair = own[query][at_Q] != keys[key][at_K]
            at_Q, at_K = at_Q[is_pair], at_K[is_pair]
            block = torch.stack([own[query][at_Q], keys[key][at_K]], dim=1)
            cosine = _cosines(own_QD[query], key_KD[key], at_Q, at_K)
            kept = _first_of_each(block.sort(dim=1).values[cosine >= least], cosine[cosine >= least])
            pairs.append(kept.pairs_P2)
            cosines.append(kept.cosine_P)
    return _first_of_each(torch.cat(pairs), torch.cat(cosines))


def _cosines(first_QD: Tensor, second_KD: Tensor, at_Q: Tensor, at_K: Tensor) -> Tensor:
    """Products of some rows in float64, which have the same bits wherever a pair is computed."""
    parts = [
        (first_QD[one].double() * second_KD[other].double()).sum(dim=1)
        for one, other in zip(at_Q.split(ASSIGNED), at_K.split(ASSIGNED), strict=True)
    ]
    return torch.cat([torch.empty(0, dtype=torch.float64), *parts])


def _first_of_each(pairs_P2: Tensor, cosine_P: Tensor) -> NearPairs:
    """Each pair once, and of each row the first ``FIRST`` that it is near to and that come before it."""
    order = torch.from_numpy(np.lexsort(pairs_P2.numpy().T))  # by the later row, then by the earlier one
    pairs_P2, cosine_P = pairs_P2[order], cosine_P[order]
    is_new = torch.ones(len(pairs_P2), dtype=torch.bool)
    is_new[1:] = (pairs_P2[1:] != pairs_P2[:-1]).any(dim=1)
    pairs_P2, cosine_P = pairs_P2[is_new], cosine_P[is_new]
    later = pairs_P2[:, 1].contiguous()
    is_kept = torch.arange(len(later)) - torch.searchsorted(later, later) < FIRST
    return NearPairs(pairs_P2[is_kept], cosine_P[is_kept])


def _recall(rows_ND: Rows, least: float, pairs: NearPairs) -> Proportion | None:
    """Of some rows that are compared with all and have a near one, the share of which a pair is known."""
    sampled = random_order(0, 7, len(rows_ND))[:CHECKED].sort().values
    query_QD = unit_rows(whole(taken(rows_ND, sampled)).float())
    has_near_Q = torch.zeros(len(sampled), dtype=torch.bool)
    for rows in row_slices(len(rows_ND), KEYS):
        # What rounding alone decides is no miss.
        near = query_QD @ unit_rows(rows_ND[rows].float()).T >= min(least + ROUNDING, 1 - ROUNDING)
        near &= sampled[:, None] != torch.arange(rows.start, rows.stop)
        has_near_Q |= near.any(dim=1)
    is_found = torch.isin(sampled[has_near_Q], pairs.pairs_P2)
    return wilson(int(is_found.sum()), len(is_found)) if len(is_found) else None
