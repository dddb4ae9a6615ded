"""Exact nearest neighbours, and classification by their weighted vote.

Every similarity is computed, block by block, and ties go to the smaller position.
"""

# N bank samples, Q queries, D features, K neighbours, B bank samples of a block, G groups of columns, C classes

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.metric import accuracy_metric
from counterpoint.core.numerics import rowwise, unit_rows
from counterpoint.core.processor_routines import multiply
from counterpoint.core.stored_rows import Rows
from counterpoint.core.thread_parts import side_by_side
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy, check_known

DOT = "dot"  # for rows that are at unit length already
QUERY_CHUNK = 256  # at most; one thread takes a chunk
BANK_BLOCK = 32768  # at most; with a chunk of queries 32 MiB of similarities, in float64 twice that
TILE = 192  # columns: tiles of 8 to 64 columns, and of 48, fit into it a whole number of times
FEW_CHUNKS = 4  # if there are fewer, threads take blocks of the bank instead
LEAST_BLOCKS, LEAST_BLOCK = 8, 4096  # number of blocks of a large bank, for threads, and their smallest number of rows
LEAST_GROUP = 4  # columns; with smaller groups the second search would be as long as one search of all


@dataclass(frozen=True)
class Neighbours:
    """The nearest bank samples of each query, nearest first.

    Attributes:
        similarity_QK: similarity of each query to its neighbours, in descending order.
        positions_QK: positions of the neighbours in the bank, int64; of equal similarities the smaller comes first.
    """

    similarity_QK: Tensor
    positions_QK: Tensor


@torch.no_grad()
def nearest(bank_ND: Rows, queries_QD: Tensor, k: int, *, similarity: str = "cosine") -> Neighbours:
    r"""Find the k bank samples that are most similar to each query.

    .. math:: s(q, b) = \frac{\langle q, b \rangle}{|q| |b|} \text{ (cosine)}, \quad
        s(q, b) = \langle q, b \rangle \text{ (dot)}

    For unit vectors the two agree, and the second copies no row of the bank. Similarities have the precision of the
    features. They are equal if they are so as computed; those of copies of one sample always are.

    Args:
        bank_ND: finite features to choose from, which are read a block at a time.
        queries_QD: finite features of the queries, of the same width.
        k: number of neighbours of a query, 1 <= k <= n.
        similarity: measure of similarity, ``cosine`` or ``dot``.

    Returns:
        The neighbours, with the same bits for any number of threads.

    >>> bank = torch.tensor([[0.0, 1.0], [2.0, 0.0], [2.0, 0.0]])
    >>> nearest(bank, torch.tensor([[1.0, 0.0]]), 2).positions_QK
    tensor([[1, 2]])
    """
    rows_QD = queries_QD if similarity == DOT else rowwise(unit_rows, queries_QD)
    # Chunks are fixed, not cut by the number of threads: all numbers of threads give the same bits.
    chunks = rows_QD.tensor_split(-(-len(rows_QD) // QUERY_CHUNK))
    num_rows = len(bank_ND)
    num_blocks = -(-num_rows // BANK_BLOCK)
    if has_few_chunks := len(chunks) < FEW_CHUNKS:  # else the fewest: the best of every block are merged
        num_blocks = max(num_blocks, min(LEAST_BLOCKS, num_rows // LEAST_BLOCK))
    size = -(-num_rows // num_blocks)
    if size > TILE:  # whole tiles: nothing is left over that would have to be filled up
        size = min(num_rows, size + -size % TILE)
    owns = [range(first, min(first + size, num_rows)) for first in range(0, num_rows, size)]

    def keys_of(own: range) -> Tensor:
        # The last block begins within the one before it: products of another size may have other bits.
        block_BD = bank_ND[own.stop - size : own.stop]
        if similarity != DOT:
            block_BD = rowwise(unit_rows, block_BD)
        if size % TILE == 0:
            return block_BD
        # Products round columns behind the last whole tile in another way, of which zeros are left over instead.
        return torch.cat([block_BD, block_BD.new_zeros(-size % TILE, block_BD.shape[1])])

    best = [Neighbours(chunk[:, :0], torch.empty(len(chunk), 0, dtype=torch.int64)) for chunk in chunks]
    if has_few_chunks:

        def best_of_block(own: range) -> list[Neighbours]:
            keys_BD = keys_of(own)
            return [_nearest_in_block(chunk, keys_BD, own, size, k) for chunk in chunks]

        for block_best in side_by_side(best_of_block, owns):
            best = [_merged(*both, k) for both in zip(best, block_best, strict=True)]
    else:
        for own in owns:
            work = partial(_nearest_in_block, keys_BD=keys_of(own), own=own, size=size, k=k)
            best = [_merged(*both, k) for both in zip(best, side_by_side(work, chunks), strict=True)]
    return Neighbours(torch.cat([part.similarity_QK for part in best]), torch.cat([part.positions_QK for part in best]))


def _nearest_in_block(chunk_QD: Tensor, keys_BD: Tensor, own: range, size: int, k: int) -> Neighbours:
    """The nearest samples of one block, whose own rows are the last of its first ``size``."""
    # A single query is multiplied row by row: a product with columns would round some of them in another way.
    similarity_QB = torch.mv(keys_BD, chunk_QD[0])[None] if len(chunk_QD) == 1 else multiply(chunk_QD, keys_BD.T)
    best = largest(similarity_QB[:, size - len(own) : size], min(k, len(own)))
    return Neighbours(best.similarity_QK, best.positions_QK + own.start)


def _merged(earlier: Neighbours, later: Neighbours, k: int) -> Neighbours:
    if earlier.similarity_QK.shape[1] == 0:
        return later
    # Earlier ones come first: ties stay in the order of the bank.
    similarity_QK = torch.cat([earlier.similarity_QK, later.similarity_QK], dim=1)
    positions_QK = torch.cat([earlier.positions_QK, later.positions_QK], dim=1)
    best = largest(similarity_QK, min(k, similarity_QK.shape[1]))
    return Neighbours(best.similarity_QK, positions_QK.gather(1, best.positions_QK))


def largest(similarity_QN: Tensor, k: int) -> Neighbours:
    """The k largest entries of each row and their columns, largest first; equal ones keep their order.

    ``torch.topk`` leaves open which of equal entries it takes.

    >>> largest(torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]]), 3).positions_QK
    tensor([[1, 3, 2]])
    """
    if k == similarity_QN.shape[1]:
        return Neighbours(*similarity_QN.sort(dim=1, descending=True, stable=True))
    # One more than needed, to see if an entry that is left out equals the last one.
    top = _topk(similarity_QN, k + 1)
    is_tied_Q = (top.similarity_QK[:, 1:] == top.similarity_QK[:, :-1]).any(dim=1)
    similarity_QK, columns_QK = top.similarity_QK[:, :k], top.positions_QK[:, :k]
    if bool(is_tied_Q.any()):
        # Of T rows with ties: all entries above the k-th largest, then the first of those that equal it.
        tied_TN, least_T1 = similarity_QN[is_tied_Q], similarity_QK[is_tied_Q, -1:]
        is_above_TN, is_equal_TN = tied_TN > least_T1, tied_TN == least_T1
        room_T1 = k - is_above_TN.sum(dim=1, keepdim=True)
        is_chosen_TN = is_above_TN | (is_equal_TN & (is_equal_TN.cumsum(dim=1, dtype=torch.int32) <= room_T1))
        columns_TK = is_chosen_TN.nonzero()[:, 1].view(-1, k)
        order_TK = tied_TN.gather(1, columns_TK).argsort(dim=1, descending=True, stable=True)
        columns_QK[is_tied_Q] = columns_TK.gather(1, order_TK)
    return Neighbours(similarity_QK, columns_QK)


def _topk(similarity_QN: Tensor, k: int) -> Neighbours:
    """The k largest entries, ties in any order: first the k best groups of columns, then the best of their entries."""
    num_columns = similarity_QN.shape[1]
    size = math.isqrt(num_columns // k)  # then both searches are about as long
    if size < LEAST_GROUP:
        return Neighbours(*similarity_QN.topk(k, dim=1))
    num_groups = num_columns // size
    # Group g has the columns g, g + G, ...: the maxima are those of whole rows, which is fast.
    most_QG = similarity_QN[:, : size * num_groups].unflatten(1, (size, num_groups)).amax(dim=1)
    # No entry of another group exceeds the maximum of any of these k.
    groups_QK1 = most_QG.topk(k, dim=1, sorted=False).indices[:, :, None]
    columns = (groups_QK1 + num_groups * torch.arange(size)).flatten(1)
    in_no_group = torch.arange(size * num_groups, num_columns).expand(len(columns), -1)
    columns = torch.cat([columns, in_no_group], dim=1)
    best = similarity_QN.gather(1, columns).topk(k, dim=1)
    return Neighbours(best.values, columns.gather(1, best.indices))


def nearest_others(z_ND: Tensor, k: int) -> Neighbours:
    """The k samples most similar by cosine to each sample, which is not among its own; see ``nearest``.

    >>> nearest_others(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 2).positions_QK
    tensor([[1, 2],
            [0, 2],
            [1, 0]])
    """
    neighbours = nearest(z_ND, z_ND, k + 1)
    # A sample may rank below its copies, or outside of the list: the first k others are taken.
    is_self_NK = neighbours.positions_QK == torch.arange(len(z_ND))[:, None]
    order_NK = is_self_NK.byte().argsort(dim=1, stable=True)[:, :k]
    return Neighbours(neighbours.similarity_QK.gather(1, order_NK), neighbours.positions_QK.gather(1, order_NK))


@dataclass(frozen=True)
class Vote:
    r"""A vote of the nearest bank samples of a query, each weighted by :math:`e^{\cos / T}`.

    Attributes:
        k: number of neighbours that vote, >= 1.
        temperature: temperature T > 0 of the weights; a small one trusts only the nearest neighbours.

    Raises:
        ValueError: a value out of its range.
    """

    k: int = 20
    temperature: float = 0.1

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature", hint="0.07 to 0.1 is usual")
        if self.k < 1:
            raise ValueError(f"k must be >= 1, got {self.k}; 20 and 200 are usual")

    def settings(self) -> dict[str, Any]:
        """Settings that the figure depends on."""
        return {"k": self.k, "temperature": self.temperature, "similarity": "cosine"}


def knn_predict(bank_ND: Rows, labels_N: Tensor, queries_QD: Tensor, vote: Vote | None = None) -> Tensor:
    r"""Predict a class for each query by a weighted vote of its nearest bank samples.

    .. math:: \hat y(q) = \arg\max_c \sum_{i \in \mathrm{kNN}(q)} [y_i = c]\, e^{\cos(q, b_i) / T}

    Source: wu2018, section 3.4 (there k = 200, T = 0.07).

    Exact, with ties defined: of equal similarities the smaller bank index is nearer, of equal votes the smaller class
    wins.

    Args:
        bank_ND: features of labelled samples, in memory or on disk.
        labels_N: classes of these samples, int64, from 0.
        queries_QD: features to classify.
        vote: settings of the vote; None takes k = 20 and T = 0.1.

    Returns:
        Classes (q,), int64.

    Raises:
        ValueError: fewer samples than neighbours, shapes that do not fit, or rows that are not finite.

    >>> bank = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> knn_predict(bank, torch.tensor([0, 0, 1]), torch.tensor([[1.0, 0.2], [0.1, 1.0]]), Vote(k=1))
    tensor([0, 1])
    """
    vote = vote or Vote()
    check_known(bank_ND, labels_N, queries_QD)
    if vote.k > len(bank_ND):
        raise ValueError(f"k must be between 1 and the number of bank samples, {len(bank_ND)}, got {vote.k}")
    return _voted_classes(nearest(bank_ND, queries_QD, vote.k), labels_N, vote)


def knn_leave_one_out(z_ND: Tensor, labels_N: Tensor, vote: Vote) -> Tensor:
    """Predict a class for each sample by a vote of the nearest others, as ``knn_predict`` does for queries.

    Args:
        z_ND: features of labelled samples.
        labels_N: classes of these samples, int64, from 0.
        vote: settings of the vote, with at most n - 1 neighbours.

    Returns:
        Classes (n,), int64.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> knn_leave_one_out(z, torch.tensor([0, 0, 1, 1]), Vote(k=1))
    tensor([0, 0, 1, 1])
    """
    check_known(z_ND, labels_N, z_ND)
    if vote.k >= len(z_ND):
        raise ValueError(f"k must be below the number of samples, {len(z_ND)}, got {vote.k}")
    return _voted_classes(nearest_others(z_ND, vote.k), labels_N, vote)


def _voted_classes(neighbours: Neighbours, labels_N: Tensor, vote: Vote) -> Tensor:
    labels_N, num_classes = labels_N.long(), int(labels_N.max()) + 1
    # A chunk at a time: with thousands of classes the votes would take more room than the features.
    chunks = zip(neighbours.similarity_QK.split(QUERY_CHUNK), neighbours.positions_QK.split(QUERY_CHUNK), strict=True)
    classes: list[Tensor] = []
    for similarity_QK, positions_QK in chunks:
        # Relative to the nearest neighbour, so that votes vanish at no temperature; this changes no ranking.
        weight_QK = torch.exp((similarity_QK - similarity_QK[:, :1]) / vote.temperature)
        votes_QC = weight_QK.new_zeros(len(weight_QK), num_classes)
        # The first of equal votes, which is the smaller class number.
        classes.append(votes_QC.scatter_add_(1, labels_N[positions_QK], weight_QK).argmax(dim=1))
    return torch.cat(classes)


def knn_score(labelled: Labelled) -> Score:
    """Accuracy of the requested vote."""
    vote = Vote(labelled.k, labelled.temperature)

    def compute() -> Score:
        predicted_Q = knn_predict(labelled.bank_ND, labelled.labels_N, labelled.queries_QD, vote)
        return accuracy(predicted_Q, labelled.labels_Q, vote.settings())

    return labelled.once("knn", compute)


METRICS = (
    accuracy_metric(
        name="knn",
        title="kNN accuracy",
        short="kNN",
        definition="Share of queries that the vote of the nearest labelled samples classifies correctly.",
        source="wu2018",
        measure=knn_score,
        wording="the [{k} ]nearest samples of the bank[ by {similarity} similarity] vote on each query[, weighted by "
        "exp(similarity / {temperature})]",
        headline="representation",
        in_parts=True,
    ),
)
