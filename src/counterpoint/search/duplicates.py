"""Near-duplicates of a collection: neighbours that are nearly the same, by their pixels or by their embedding."""

# N rows, K neighbours, P pairs

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from counterpoint.audit.picture_pass import array_pixels, looks_of
from counterpoint.audit.set_evidence import BLANK_RANGE, clear_copies, same_content
from counterpoint.core.errors import UsageError
from counterpoint.core.pieces import HERE, PieceEngine
from counterpoint.core.run import Run
from counterpoint.core.stored_rows import row_slices
from counterpoint.core.torch_state import usual_modes
from counterpoint.data.source import Source
from counterpoint.evaluation.search_records import Copies, CopyGroup
from counterpoint.runs.sample_collection import thumbnails
from counterpoint.search.bucket_pairs import NEAREST_BUCKETS, NearPairs, bucket_pairs, direct_groups
from counterpoint.search.searched_samples import SearchedSamples, open_samples

NEIGHBOURS = 10  # of each sample that are compared with it
SAME_EMBEDDING = 0.9999  # cosine, where there are no pictures
FETCHED = 512  # pictures at a time
MOST_DRAWN = 2000  # pictures of a page
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
class Buckets:
    """How rows are compared that are too many to compare all: in how many buckets, and by whose workers."""

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
    """Groups of near-duplicates of a collection.

    Args:
        run: the run or its folder.
        to: other samples than the run's own.
        threshold: least cosine of a pair; None asks for none of pictures, which are compared by their pixels, and for
            ``SAME_EMBEDDING`` of anything else.
        buckets: compare embeddings within k-means buckets, for more rows than can all be compared; None compares all.
        pictures: keep small pictures in the answer, for a page.
        quiet: show no progress.
        options: as those of ``search``.

    Raises:
        UsageError: the threshold is out of range.
    """
    if threshold is not None and not -1 <= threshold <= 1:
        raise UsageError(f"threshold must be a cosine, between -1 and 1, got {threshold}; 0.99 is usual")
    known = open_samples(run, to, options, "duplicates", quiet=quiet)
    source = known.subject.source
    has_pictures = source.kind == "images" and buckets is None
    least = threshold if threshold is not None else (-1.0 if has_pictures else SAME_EMBEDDING)
    if buckets is not None:
        with known.reporter.bar(f"comparing {buckets.number:,} buckets", buckets.number) as advance:
            how = {"num_buckets": buckets.number, "engine": buckets.engine, "advance": advance}
            pairs = bucket_pairs(known.rows_ND, least, **how)
        found, words = direct_groups(pairs), f"{BY_BUCKETS} {_told(pairs)}"
    elif has_pictures:
        found, words = _alike_pictures(known), BY_PIXELS
    else:
        found, words = groups_of(*near_pairs(known, least), len(known)), BY_EMBEDDING
    words = words.format(k=min(NEIGHBOURS, len(known) - 1), layer=known.layer, threshold=least)
    held_out = set(known.subject.split.held_out.tolist()) if known.subject.is_own_data else set()
    groups = tuple(
        CopyGroup(
            rows=rows,
            names=tuple(known.names[row] for row in rows),
            labels=tuple(known.labels[row] for row in rows),
            least_similarity=least_cosine,
            by="pixels" if has_pictures else "embedding",
            crosses_split=0 < len(held_out.intersection(rows)) < len(rows),
        )
        for rows, least_cosine in found
        if least_cosine >= least
    )
    drawn = drawn_rows(source, [row for group in groups for row in group.rows]) if pictures else {}
    facts = known.facts()
    if buckets is not None:
        facts["method"] = f"{buckets.number:,} buckets, each compared with itself and {NEAREST_BUCKETS} others"
    return Copies(known.run, facts, (words,), groups, drawn)


def _told(pairs: NearPairs) -> str:
    recall = pairs.recall
    if recall is None:
        return "No sampled row has a near one, so that nothing says how many pairs were missed."
    return (
        f"Of {recall.total:,} sampled rows with a near one, {recall.correct:,} were found: recall {recall.value:.3f}, "
        f"95 % interval {recall.low:.3f} to {recall.high:.3f}."
    )


def drawn_rows(source: Source, rows: list[int]) -> dict[str, np.ndarray]:
    """Small pictures of the first ``MOST_DRAWN`` of some rows, by name; none where there are no pictures."""
    rows = rows[:MOST_DRAWN] if source.kind == "images" else []
    images = thumbnails(source, rows) if rows else ()
    return {f"row-{row}": image for row, image in zip(rows, images, strict=True)}


def near_pairs(known: SearchedSamples, least: float) -> tuple[Tensor, Tensor]:
    """Pairs of rows, the smaller first, of which one is a near neighbour of the other; and their cosines."""
    k = min(NEIGHBOURS + 1, len(known))
    firsts, seconds, cosines = [], [], []
    for own in row_slices(len(known), 1 << 14):
        found = known.search(known.vectors(own), k)
        row_Q = torch.arange(own.start, own.stop)[:, None].expand_as(found.positions_QK)
        is_pair = (found.positions_QK != row_Q) & (found.similarity_QK >= least)
        firsts.append(row_Q[is_pair])
        seconds.append(found.positions_QK[is_pair])
        cosines.append(found.similarity_QK[is_pair])
    pairs_P2 = torch.stack([torch.cat(firsts), torch.cat(seconds)], dim=1).sort(dim=1).values
    unique_P2, inverse = pairs_P2.unique(dim=0, return_inverse=True)
    cosine_P = torch.zeros(len(unique_P2), dtype=torch.float64)
    cosine_P[inverse] = torch.cat(cosines)
    return unique_P2, cosine_P


def groups_of(pairs_P2: Tensor, cosine_P: Tensor, num_rows: int) -> list[tuple[tuple[int, ...], float]]:
    """Rows that pairs join, with the least cosine of these pairs; the largest group first, then by its first row.

    >>> groups_of(torch.tensor([[0, 4], [4, 7], [1, 2]]), torch.tensor([0.75, 0.5, 0.25]), 8)
    [((0, 4, 7), 0.5), ((1, 2), 0.25)]
    """
    if len(pairs_P2) == 0:
        return []
    first, second = pairs_P2.T.numpy()
    graph = coo_matrix((np.ones(len(first)), (first, second)), shape=(num_rows, num_rows))
    group_N = connected_components(graph, directed=False)[1]
    rows_of: dict[int, list[int]] = {}
    for row in np.unique(pairs_P2.numpy()).tolist():
        rows_of.setdefault(int(group_N[row]), []).append(row)
    least = dict.fromkeys(rows_of, 1.0)
    for row, cosine in zip(first.tolist(), cosine_P.tolist(), strict=True):
        group = int(group_N[row])
        least[group] = min(least[group], round(cosine, 9))
    found = [(tuple(rows), least[group]) for group, rows in rows_of.items()]
    return sorted(found, key=lambda group: (-len(group[0]), group[0]))


def _alike_pictures(known: SearchedSamples) -> list[tuple[tuple[int, ...], float]]:
    """Rows of equal pictures, then pairs of near copies, each with the least cosine to its first row."""
    source, looks, sizes, digests = known.subject.source, [], [], []
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
    found = []
    for rows in map(tuple, [*equal, *pairs]):
        unit = known.vectors(torch.tensor(rows)).double()
        found.append((rows, round(float((unit[1:] @ unit[0]).min()), 9)))
    return found
