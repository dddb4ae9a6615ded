"""Near-duplicates of a collection: neighbours that are nearly the same, by their pixels or by their embedding.

If the rows are too many to compare all, those within a k-means bucket are compared, and those of the buckets nearest to
it: rows of one direction nearly always fall into one bucket or into two neighbouring ones (abbas2023). How many
pairs this loses is measured: some rows are compared with all others.
"""

# N rows, D features, K neighbours, B buckets, P pairs, Q rows that are compared with all

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from counterpoint.audit.picture_pass import array_pixels, looks_of
from counterpoint.audit.set_evidence import BLANK_RANGE, clear_copies, same_content
from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import unit_rows
from counterpoint.core.ranks import HERE, PieceEngine
from counterpoint.core.run import Run
from counterpoint.core.stored_rows import Rows, StoredRows, gather, load, row_slices
from counterpoint.core.thread_parts import one_thread
from counterpoint.core.torch_state import usual_modes
from counterpoint.data.order import random_order
from counterpoint.data.source import Source
from counterpoint.evaluation.metric_types import Proportion, wilson
from counterpoint.evaluation.search_records import Copies, CopyGroup
from counterpoint.runs.sample_collection import thumbnails
from counterpoint.search.searched_samples import SearchedSamples, open_samples

NEIGHBOURS = 10  # neighbours of each sample that are compared with it
SAME_EMBEDDING = 0.9999  # cosine, if there are no pictures
FETCHED = 512  # pictures at a time
MOST_DRAWN = 2000  # pictures of a page
SAMPLED = 256  # rows for each centre
NEAREST_BUCKETS = 3  # buckets that the rows of a bucket are compared with, beside their own
FIRST = 10  # near rows of each row that are kept, the first of the collection: 1,000 equal rows give no 500,000 pairs
ASSIGNED, QUERIES, KEYS = 1 << 14, 1 << 11, 1 << 13  # rows at a time
CHECKED = 4096  # rows that are compared with all
ROUNDING = 1e-6  # error of a cosine in float32
BY_PIXELS = (
    "Two samples are near-duplicates by the rule of `counterpoint audit`: the same picture compressed, resized, a "
    "little cropped, brighter, turned, mirrored, framed or marked. Each pair is listed separately; groups of more have "
    "equal pixels. Look at them before you delete one."
)
BY_EMBEDDING = (
    "Two samples are near-duplicates if one is among the {k} nearest of the other and the cosine of their {layer}s is "
    "at least {threshold}; there are no pictures to compare."
)
BY_BUCKETS = (
    "A group is a sample and those whose {layer}s have a cosine of at least {threshold} with it directly; the others "
    "of a group need not be near to each other."
)


@dataclass(frozen=True)
class NearPairs:
    """Pairs of near rows, with their cosines.

    Attributes:
        pairs_P2: rows of each pair, the smaller first; pairs in ascending order.
        cosine_P: cosine of each pair, float64.
        recall: share of the sampled rows with a near one for which a pair was found; None if no row has one.
    """

    pairs_P2: Tensor
    cosine_P: Tensor
    recall: Proportion | None = None


@dataclass(frozen=True)
class Buckets:
    """Number of buckets for rows that are too many to compare all, and the engine that compares the rows of each."""

    number: int
    engine: PieceEngine = HERE


@usual_modes()
def duplicates(
    run: Run | str | Path,
    *,
    to: Any = None,
    threshold: float | None = None,
    buckets: Buckets | None = None,
    pictures: bool = False,
    quiet: bool = False,
    **options: Any,
) -> Copies:
    """Find groups of near-duplicates of a collection.

    Args:
        run: the run or its folder.
        to: other samples to compare; None takes the run's own.
        threshold: least cosine of a pair; None sets none for pictures, which are compared by their pixels, and
            ``SAME_EMBEDDING`` for anything else.
        buckets: compare embeddings within k-means buckets, for more rows than can all be compared; None compares all.
        pictures: keep small pictures in the answer, for a page.
        quiet: show no progress.
        options: ``layer`` and the settings of ``embed``, as in ``search``.

    Raises:
        UsageError: the threshold is out of range.
    """
    if threshold is not None and not -1 <= threshold <= 1:
        raise UsageError(f"threshold must be a cosine, between -1 and 1, got {threshold}; 0.99 is usual")
    collection = open_samples(run, to, options, "duplicates", quiet=quiet)
    source = collection.subject.source
    has_pictures = source.kind == "images" and buckets is None
    least = threshold if threshold is not None else (-1.0 if has_pictures else SAME_EMBEDDING)
    if buckets is not None:
        with collection.reporter.bar(f"comparing {buckets.number:,} buckets", buckets.number) as advance:
            settings = {"num_buckets": buckets.number, "engine": buckets.engine, "advance": advance}
            pairs = bucket_pairs(collection.rows_ND, least, **settings)
        row_groups, words = direct_groups(pairs), f"{BY_BUCKETS} {_recall_sentence(pairs)}"
    elif has_pictures:
        row_groups, words = _alike_pictures(collection), BY_PIXELS
    else:
        row_groups, words = groups_of(near_pairs(collection, least), len(collection)), BY_EMBEDDING
    words = words.format(k=min(NEIGHBOURS, len(collection) - 1), layer=collection.layer, threshold=least)
    held_out = set(collection.subject.split.held_out.tolist()) if collection.subject.is_own_data else set()
    groups = tuple(
        CopyGroup(
            rows=rows,
            names=tuple(collection.names[row] for row in rows),
            labels=tuple(collection.labels[row] for row in rows),
            least_similarity=least_cosine,
            by="pixels" if has_pictures else "embedding",
            crosses_split=0 < len(held_out.intersection(rows)) < len(rows),
        )
        for rows, least_cosine in row_groups
        if least_cosine >= least
    )
    drawn = drawn_rows(source, [row for group in groups for row in group.rows]) if pictures else {}
    facts = collection.facts()
    if buckets is not None:
        facts["method"] = f"{buckets.number:,} buckets, each compared with itself and {NEAREST_BUCKETS} others"
    return Copies(collection.run, facts, (words,), groups, pictures=drawn)


def _recall_sentence(pairs: NearPairs) -> str:
    recall = pairs.recall
    if recall is None:
        return "No sampled row has a near one, so that nothing says how many pairs were missed."
    return (
        f"Of {recall.total:,} sampled rows with a near one, {recall.correct:,} were found: recall {recall.value:.3f}, "
        f"95 % interval {recall.low:.3f} to {recall.high:.3f}."
    )


def drawn_rows(source: Source, rows: list[int]) -> dict[str, np.ndarray]:
    """Small pictures of the first ``MOST_DRAWN`` rows, by name; none if the samples are no pictures."""
    rows = rows[:MOST_DRAWN] if source.kind == "images" else []
    images = thumbnails(source, rows) if rows else ()
    return {f"row-{row}": image for row, image in zip(rows, images, strict=True)}


def near_pairs(collection: SearchedSamples, least: float) -> NearPairs:
    """Pairs of rows, the smaller first, of which one is a near neighbour of the other; and their cosines."""
    k = min(NEIGHBOURS + 1, len(collection))
    firsts, seconds, cosines = [], [], []
    for own in row_slices(len(collection), ASSIGNED):
        neighbours = collection.search(collection.vectors(own), k)
        row_Q = torch.arange(own.start, own.stop)[:, None].expand_as(neighbours.positions_QK)
        is_pair = (neighbours.positions_QK != row_Q) & (neighbours.similarity_QK >= least)
        firsts.append(row_Q[is_pair])
        seconds.append(neighbours.positions_QK[is_pair])
        cosines.append(neighbours.similarity_QK[is_pair])
    pairs_P2 = torch.stack([torch.cat(firsts), torch.cat(seconds)], dim=1).sort(dim=1).values
    unique_P2, inverse = pairs_P2.unique(dim=0, return_inverse=True)
    cosine_P = torch.zeros(len(unique_P2), dtype=torch.float64)
    cosine_P[inverse] = torch.cat(cosines)
    return NearPairs(unique_P2, cosine_P)


def groups_of(pairs: NearPairs, num_rows: int) -> list[tuple[tuple[int, ...], float]]:
    """Group rows that pairs join, with the least cosine of these pairs; the largest group first, then by its first row.

    >>> pairs = NearPairs(torch.tensor([[0, 4], [4, 7], [1, 2]]), torch.tensor([0.75, 0.5, 0.25]))
    >>> groups_of(pairs, 8)
    [((0, 4, 7), 0.5), ((1, 2), 0.25)]
    """
    first, second = pairs.pairs_P2.T.numpy()
    graph = coo_matrix((np.ones(len(first)), (first, second)), shape=(num_rows, num_rows))
    group_P = connected_components(graph, directed=False)[1][first]
    return _grouped(NearPairs(pairs.pairs_P2, pairs.cosine_P.clamp(max=1.0)), group_P)


def _grouped(pairs: NearPairs, group_P: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    """Rows of the pairs of each group, with their least cosine; the largest group first, then by its first row."""
    rows_of, least = dict[int, set[int]](), dict[int, float]()
    for group, rows, cosine in zip(group_P.tolist(), pairs.pairs_P2.tolist(), pairs.cosine_P.tolist(), strict=True):
        rows_of.setdefault(group, set()).update(rows)
        least[group] = min(least.get(group, math.inf), round(cosine, 9))
    groups = [(tuple(sorted(rows)), least[group]) for group, rows in rows_of.items()]
    return sorted(groups, key=lambda group: (-len(group[0]), group[0]))


def _alike_pictures(collection: SearchedSamples) -> list[tuple[tuple[int, ...], float]]:
    """Rows of equal pictures, then pairs of near copies, each with the least cosine to its first row."""
    source, looks, sizes, digests = collection.subject.source, [], [], []
    for rows in row_slices(len(source), FETCHED):
        images_NCHW = source.store.fetch(list(range(rows.start, rows.stop)))
        looks.append(looks_of(array_pixels(images_NCHW)))
        sizes += [min(images_NCHW.shape[2:])] * len(images_NCHW)
        digests += [hashlib.sha256(image.numpy().tobytes()).digest() for image in images_NCHW]
    equal = same_content(digests)
    is_compared_N = np.concatenate([each.range_N for each in looks]) >= BLANK_RANGE
    for group in equal:
        is_compared_N[group[1:]] = False
    small_NSS3 = np.concatenate([each.small_NSS3 for each in looks])
    frame_N4 = np.concatenate([each.frame_N4 for each in looks])
    pairs = clear_copies(small_NSS3, frame_N4, is_compared_N, np.array(sizes)).pairs_P2.tolist()
    groups = []
    for rows in map(tuple, [*equal, *pairs]):
        unit = collection.vectors(torch.tensor(rows)).double()
        groups.append((rows, round(float((unit[1:] @ unit[0]).min()), 9)))
    return groups


@dataclass(frozen=True)
class _Bucket:
    """Rows of a bucket, and rows of those neighbouring buckets that are not compared with it elsewhere."""

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
    """Find pairs of rows whose cosine is large enough; they are the same with any engine.

    Args:
        rows_ND: finite features.
        least: smallest cosine of a pair, at most 1.
        num_buckets: number of buckets, one for some 1,000 to 10,000 rows; more are faster and lose more pairs.
        engine: engine whose workers compare the rows.
        advance: function called once for each bucket that holds rows.

    Raises:
        UsageError: more buckets than rows.

    >>> pairs = bucket_pairs(torch.eye(8)[[0, 1, 2, 3, 1, 1]], 0.99, num_buckets=2)
    >>> pairs.pairs_P2.tolist(), pairs.cosine_P.tolist()
    ([[1, 4], [1, 5], [4, 5]], [1.0, 1.0, 1.0])
    """
    if not 1 <= num_buckets <= len(rows_ND):
        raise UsageError(f"buckets must be between 1 and the {len(rows_ND):,} rows, got {num_buckets}")
    # Unit vectors around which rows lie, from a sample of them.
    sampled = random_order(0, 6, len(rows_ND))[: SAMPLED * num_buckets].sort().values
    with one_thread():  # sums of several threads have other bits
        unit = unit_rows(load(gather(rows_ND, sampled)).float())
        means = MiniBatchKMeans(num_buckets, batch_size=4096, n_init="auto", random_state=0).fit(unit.numpy())
    centres_BD = unit_rows(torch.from_numpy(means.cluster_centers_).float())
    # An open file cannot be sent to another process.
    begin = partial(StoredRows, rows_ND.path) if isinstance(rows_ND, StoredRows) else partial(torch.as_tensor, rows_ND)
    with engine.opened(begin) as workers:
        slices = [(rows.start, rows.stop) for rows in row_slices(len(rows_ND), ASSIGNED)]
        nearest = dict(workers.each(partial(_nearest_centres, centres_BD=centres_BD), slices))
        buckets = _buckets(np.concatenate([nearest[rows] for rows in slices]), centres_BD)
        parts = []
        for _, pairs in workers.each(partial(_near_rows, least=least), buckets):
            parts.append(pairs)
            advance()
    pairs = _merged_pairs(parts)
    return NearPairs(pairs.pairs_P2, pairs.cosine_P, _recall(rows_ND, least, pairs))


def direct_groups(pairs: NearPairs) -> list[tuple[tuple[int, ...], float]]:
    """Group rows with those directly near to them, with the least cosine; the largest group first, then by first row.

    Rows come in their order. Each joins the first one that it is near to and that began a group itself, or none; two
    rows are never put together because both are near to a third.

    >>> pairs = NearPairs(torch.tensor([[0, 4], [4, 7], [0, 9]]), torch.tensor([0.75, 0.5, 0.25]))
    >>> direct_groups(pairs)
    [((0, 4, 9), 0.25)]
    """
    joined: set[int] = set()
    order = np.lexsort(pairs.pairs_P2.numpy().T)  # by the later row, then by the earlier one
    is_joining = []
    for first, second in pairs.pairs_P2[order].tolist():
        is_joining.append(joined.isdisjoint((first, second)))
        if is_joining[-1]:
            joined.add(second)
    joining = order[np.array(is_joining, bool)]
    return _grouped(NearPairs(pairs.pairs_P2[joining], pairs.cosine_P[joining]), pairs.pairs_P2[joining, 0].numpy())


@usual_modes()
def _nearest_centres(rows_ND: Rows, rows: tuple[int, int], centres_BD: Tensor) -> np.ndarray:
    unit = unit_rows(rows_ND[slice(*rows)].float())
    return torch.cat([(part @ centres_BD.T).argmax(dim=1) for part in unit.split(QUERIES)]).numpy().astype(np.int32)


def _buckets(bucket_N: np.ndarray, centres_BD: Tensor) -> list[_Bucket]:
    """Rows of each bucket, and rows to compare them with; each two neighbouring buckets are compared once."""
    similarity_BB = (centres_BD @ centres_BD.T).fill_diagonal_(-torch.inf)
    near = similarity_BB.topk(min(NEAREST_BUCKETS, len(centres_BD) - 1), dim=1).indices.tolist()
    meets: dict[int, list[int]] = {number: [] for number in range(len(near))}
    for first, second in sorted({(min(i, j), max(i, j)) for i, neighbours in enumerate(near) for j in neighbours}):
        meets[first].append(second)
    ends = np.cumsum(np.bincount(bucket_N, minlength=len(near)))[:-1]
    rows_of = np.split(np.argsort(bucket_N, kind="stable"), ends)
    return [
        _Bucket(own, np.concatenate([own[:0], *(rows_of[other] for other in meets[number])]))
        for number, own in enumerate(rows_of)
        if len(own)
    ]


@usual_modes()
def _near_rows(rows_ND: Rows, bucket: _Bucket, least: float) -> NearPairs:
    """Near pairs of a row of the bucket with another row of it or of its neighbours."""
    keys = torch.from_numpy(np.sort(np.concatenate([bucket.own, bucket.others])))
    own = torch.from_numpy(bucket.own)
    own_QD, key_KD = (unit_rows(load(gather(rows_ND, rows)).float()) for rows in (own, keys))
    parts = [NearPairs(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, dtype=torch.float64))]
    for query in row_slices(len(own), QUERIES):
        for key in row_slices(len(keys), KEYS):
            at_Q, at_K = (own_QD[query] @ key_KD[key].T >= least - ROUNDING).nonzero().T
            is_pair = own[query][at_Q] != keys[key][at_K]
            at_Q, at_K = at_Q[is_pair], at_K[is_pair]
            block = torch.stack([own[query][at_Q], keys[key][at_K]], dim=1)
            # Products in float64 have the same bits wherever a pair is computed.
            products = [
                (own_QD[query][rows_Q].double() * key_KD[key][rows_K].double()).sum(dim=1)
                for rows_Q, rows_K in zip(at_Q.split(ASSIGNED), at_K.split(ASSIGNED), strict=True)
            ]
            cosine = torch.cat(products)
            near = NearPairs(block.sort(dim=1).values[cosine >= least], cosine[cosine >= least])
            parts.append(_merged_pairs([near]))
    return _merged_pairs(parts)


def _merged_pairs(parts: Sequence[NearPairs]) -> NearPairs:
    """Keep each pair once, and for each row the first ``FIRST`` of the near rows that come before it."""
    pairs_P2, cosine_P = torch.cat([part.pairs_P2 for part in parts]), torch.cat([part.cosine_P for part in parts])
    order = torch.from_numpy(np.lexsort(pairs_P2.numpy().T))  # by the later row, then by the earlier one
    pairs_P2, cosine_P = pairs_P2[order], cosine_P[order]
    is_new = torch.ones(len(pairs_P2), dtype=torch.bool)
    is_new[1:] = (pairs_P2[1:] != pairs_P2[:-1]).any(dim=1)
    pairs_P2, cosine_P = pairs_P2[is_new], cosine_P[is_new]
    later = pairs_P2[:, 1].contiguous()
    is_kept = torch.arange(len(later)) - torch.searchsorted(later, later) < FIRST
    return NearPairs(pairs_P2[is_kept], cosine_P[is_kept])


def _recall(rows_ND: Rows, least: float, pairs: NearPairs) -> Proportion | None:
    """Share of the sampled rows with a near one for which there is a pair; None if no sampled row has a near one."""
    sampled = random_order(0, 7, len(rows_ND))[:CHECKED].sort().values
    query_QD = unit_rows(load(gather(rows_ND, sampled)).float())
    has_near_Q = torch.zeros(len(sampled), dtype=torch.bool)
    for rows in row_slices(len(rows_ND), KEYS):
        # A pair that rounding alone decides is no miss.
        near = query_QD @ unit_rows(rows_ND[rows].float()).T >= min(least + ROUNDING, 1 - ROUNDING)
        near &= sampled[:, None] != torch.arange(rows.start, rows.stop)
        has_near_Q |= near.any(dim=1)
    is_found = torch.isin(sampled[has_near_Q], pairs.pairs_P2)
    return wilson(int(is_found.sum()), len(is_found)) if len(is_found) else None
