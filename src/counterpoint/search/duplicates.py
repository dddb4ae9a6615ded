"""Near-duplicates of a collection: neighbours that are nearly the same, by their pixels or by their embedding."""

# N rows, K neighbours, P pairs

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import unit_rows
from counterpoint.core.run import Run
from counterpoint.core.search_records import Copies, CopyGroup
from counterpoint.core.stored_rows import row_slices
from counterpoint.core.torch_state import usual_modes
from counterpoint.data.source import Source
from counterpoint.evaluation.knn import DOT, nearest
from counterpoint.runs.sample_collection import thumbnails
from counterpoint.search.run_index import RunIndex, open_run_index

NEIGHBOURS = 10  # of each sample that are compared with it
SIDE = 16  # pixels of the small pictures that are compared
CROPS = (0.03, 0.06)  # shares of a side that may be cut off at each end
# Correlation of the small pictures from which two are nearly the same. Of 8,000 pairs of neighbours among Caltech-101
# no two that are different pictures are above 0.942; of 40 copies, resized, compressed, brightened or cropped, 39 are.
SAME_PIXELS = 0.945
MOST_PIXELS, NEAR_BY_PIXELS = 50_000, 3  # pictures up to which neighbours by pixels are compared, too; and how many
SAME_EMBEDDING = 0.9999  # cosine, where there are no pictures
FLAT = 1e-3  # standard deviation of a picture of one colour
FETCHED = 512  # pictures at a time
MOST_DRAWN = 2000  # pictures of a page
BY_PIXELS = (
    "Two samples are near-duplicates if one is among the nearest of the other, {k} in the {layer}"
    f" and {NEAR_BY_PIXELS} by pixels, and their pictures, "
    f"brought to {SIDE} x {SIDE} pixels, correlate by {SAME_PIXELS} or more: the same picture resized, compressed, a "
    "little cropped, brighter or darker. Look at them before you delete one."
)
BY_EMBEDDING = (
    "Two samples are near-duplicates if one is among the {k} nearest of the other and the cosine of their {layer}s is "
    "at least {threshold}; there are no pictures to compare."
)


@usual_modes()
def duplicates(
    run: Run | str | Path,
    *,
    to: Any = None,
    threshold: float | None = None,
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
        pictures: keep small pictures in the answer, for a page.
        quiet: show no progress.
        options: as those of ``search``.

    Raises:
        UsageError: the threshold is out of range.
    """
    if threshold is not None and not -1 <= threshold <= 1:
        raise UsageError(f"threshold must be a cosine, between -1 and 1, got {threshold}; 0.99 is usual")
    known = open_run_index(run, to, options, "duplicates", quiet=quiet)
    index, source = known.index, known.subject.source
    has_pictures = source.kind == "images"
    least = threshold if threshold is not None else (-1.0 if has_pictures else SAME_EMBEDDING)
    pairs_P2, cosine_P = near_pairs(known, least)
    if has_pictures:
        pairs_P2 = _alike_pictures(source, pairs_P2)
        cosine_P = _cosines(known, pairs_P2)
        pairs_P2, cosine_P = pairs_P2[cosine_P >= least], cosine_P[cosine_P >= least]
    words = (BY_PIXELS if has_pictures else BY_EMBEDDING).format(
        k=min(NEIGHBOURS, len(index) - 1), layer=known.about.layer, threshold=least
    )
    held_out = set(known.subject.split.held_out.tolist()) if known.subject.is_own_data else set()
    groups = tuple(
        CopyGroup(
            rows=rows,
            names=tuple(index.names[row] for row in rows),
            labels=tuple(None if index.labels is None else index.labels[row] for row in rows),
            least_similarity=least_cosine,
            by="pixels" if has_pictures else "embedding",
            crosses_split=0 < len(held_out.intersection(rows)) < len(rows),
        )
        for rows, least_cosine in groups_of(pairs_P2, cosine_P, len(index))
    )
    drawn = drawn_rows(source, [row for group in groups for row in group.rows]) if pictures else {}
    return Copies(known.run, known.facts(), (words,), groups, drawn)


def drawn_rows(source: Source, rows: list[int]) -> dict[str, np.ndarray]:
    """Small pictures of the first ``MOST_DRAWN`` of some rows, by name; none where there are no pictures."""
    rows = rows[:MOST_DRAWN] if source.kind == "images" else []
    images = thumbnails(source, rows) if rows else ()
    return {f"row-{row}": image for row, image in zip(rows, images, strict=True)}


def near_pairs(known: RunIndex, least: float) -> tuple[Tensor, Tensor]:
    """Pairs of rows, the smaller first, of which one is a near neighbour of the other; and their cosines."""
    index = known.index
    k = min(NEIGHBOURS + 1, len(index))
    firsts, seconds, cosines = [], [], []
    for own in row_slices(len(index), 1 << 14):
        found = index.search(index.vectors(own), k)
        row_Q = torch.arange(own.start, own.stop)[:, None].expand_as(found.positions_QK)
        is_pair = (found.positions_QK != row_Q) & (found.positions_QK >= 0) & (found.similarity_QK >= least)
        firsts.append(row_Q[is_pair])
        seconds.append(found.positions_QK[is_pair])
        cosines.append(found.similarity_QK[is_pair])
    pairs_P2 = torch.stack([torch.cat(firsts), torch.cat(seconds)], dim=1).sort(dim=1).values
    unique_P2, inverse = pairs_P2.unique(dim=0, return_inverse=True)
    cosine_P = torch.zeros(len(unique_P2), dtype=torch.float64)
    cosine_P[inverse] = torch.cat(cosines)
    return unique_P2, cosine_P


def _cosines(known: RunIndex, pairs_P2: Tensor) -> Tensor:
    """Cosine of each pair of rows."""
    parts = [
        (known.index.vectors(part[:, 0]).double() * known.index.vectors(part[:, 1]).double()).sum(dim=1)
        for part in pairs_P2.split(1 << 14)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


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


@dataclass(frozen=True)
class PictureKeys:
    """What of pictures is compared.

    Attributes:
        small_CND: pictures of ``SIDE`` x ``SIDE`` pixels as centred rows of unit length, so that brightness and
            contrast do not count; zeros for pictures of one colour. First of whole ones, then of what each of ``CROPS``
            leaves.
        colour_NC: mean of each channel.
    """

    small_CND: Tensor
    colour_NC: Tensor

    def at(self, places: Tensor) -> "PictureKeys":
        """Those of some pictures."""
        return PictureKeys(self.small_CND[:, places], self.colour_NC[places])


def picture_keys(images_NCHW: Tensor) -> PictureKeys:
    """Of pictures in [0, 1], or of bytes."""
    images, (height, width) = to_unit_float(images_NCHW), images_NCHW.shape[2:]
    small = []
    for share in (0.0, *CROPS):
        top, left = round(share * height), round(share * width)
        kept = images[:, :, top : height - top, left : width - left]
        small.append(torch.nn.functional.interpolate(kept, (SIDE, SIDE), mode="area").flatten(1))
    small_CND = torch.stack(small)
    centred_CND = small_CND - small_CND.mean(dim=2, keepdim=True)
    is_flat_CN1 = centred_CND.std(dim=2, keepdim=True) < FLAT
    unit_CND = unit_rows(torch.where(is_flat_CN1, 0.0, centred_CND).flatten(0, 1)).view_as(small_CND)
    return PictureKeys(unit_CND, images.mean(dim=(2, 3)))


def likeness(first: PictureKeys, second: PictureKeys) -> Tensor:
    """Largest correlation of the small pictures of each pair, either of which may be a crop of the other.

    Of two pictures of one colour it is 1 if the colours are the same, else 0.
    """
    whole_ND, other_ND = first.small_CND[0], second.small_CND[0]
    cropped_CN = torch.cat([(whole_ND * second.small_CND).sum(dim=2), (first.small_CND[1:] * other_ND).sum(dim=2)])
    both_flat_N = ~whole_ND.any(dim=1) & ~other_ND.any(dim=1)
    is_same_colour_N = (first.colour_NC - second.colour_NC).abs().amax(dim=1) < FLAT
    return torch.where(both_flat_N, is_same_colour_N.float(), cropped_CN.amax(dim=0))


def keys_of_rows(source: Source, rows: Tensor) -> PictureKeys:
    """Keys of some samples of a source of pictures, a part at a time."""
    parts = [picture_keys(source.store.fetch(part.tolist())) for part in rows.split(FETCHED)]
    small = torch.cat([each.small_CND for each in parts], dim=1)
    return PictureKeys(small, torch.cat([each.colour_NC for each in parts]))


def _alike_pictures(source: Source, pairs_P2: Tensor) -> Tensor:
    """The pairs whose pictures are nearly the same: of those that are given, and of those that are near by pixels."""
    if len(source) <= MOST_PIXELS:
        rows = torch.arange(len(source))
        keys = keys_of_rows(source, rows)
        small_ND = keys.small_CND[0]
        k = min(NEAR_BY_PIXELS + 1, len(source))
        found_NK = nearest(small_ND, small_ND, k, similarity=DOT).positions_QK
        near_P2 = torch.stack([rows[:, None].expand_as(found_NK), found_NK], dim=2).flatten(0, 1)
        near_P2 = near_P2[near_P2[:, 0] != near_P2[:, 1]].sort(dim=1).values
        pairs_P2 = torch.cat([pairs_P2, near_P2]).unique(dim=0)
    elif len(pairs_P2) == 0:
        return pairs_P2
    else:
        rows = pairs_P2.unique()
        keys = keys_of_rows(source, rows)
    place_P2 = torch.searchsorted(rows, pairs_P2)
    parts = place_P2.split(1 << 12)
    likeness_P = torch.cat([likeness(keys.at(part[:, 0]), keys.at(part[:, 1])) for part in parts])
    return pairs_P2[likeness_P >= SAME_PIXELS]
