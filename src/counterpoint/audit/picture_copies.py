"""Copies among pictures: the same bytes, and pictures that differ by a new compression, size, brightness or crop.

Candidates are the nearest neighbours of each picture by its coarse structure; each candidate is then laid over the
other, cut by up to 15 % of its side, and has to agree in its detail, too.
Mirrored and turned copies are not looked for.
"""

# N pictures, P pairs, S = SIDE pixels, K frequencies, W windows

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.fft import dct
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.core.thread_parts import side_by_side
from counterpoint.evaluation.knn import nearest

SIDE = 32  # of the grey pictures that are compared
LOW = 8  # frequencies along each axis of the coarse structure
NUM_NEIGHBOURS = 6
ZOOMS = (1.0, 0.95, 0.9, 0.85)  # share of a side that a crop keeps
SHIFTS = (0.0, 0.5, 1.0)  # of what a crop leaves over
BLUR = 5  # pixels; what is finer is detail
# Chosen on Caltech-101, see docs/audit.md; its figures there are of other data.
COARSE, ROUGH, STRUCTURE, DETAIL = 0.60, 0.80, 0.93, 0.75
CHUNK = 512  # pairs that are compared at once


@dataclass(frozen=True)
class Alike:
    """Pairs of pictures that show the same.

    Attributes:
        pairs_P2: positions, the smaller first.
        similarity_P: correlation of their detail, laid over each other, at most 1.
    """

    pairs_P2: np.ndarray
    similarity_P: np.ndarray


NO_PAIRS = Alike(np.empty((0, 2), np.int64), np.empty(0, np.float32))


def coarse_structure(grey_NSS: np.ndarray) -> Tensor:
    """The lowest spatial frequencies of pictures at unit length, without their mean, float32 (n, k).

    Brightness and contrast change nothing; a picture of one value is a zero vector.

    >>> pictures = np.arange(2.0 * SIDE * SIDE).reshape(2, SIDE, SIDE)
    >>> bool((coarse_structure(pictures)[0] - coarse_structure(pictures * 0.5 + 9)[1]).abs().max() < 1e-6)
    True
    """
    spectrum: Any = dct(dct(grey_NSS.astype(np.float32), axis=1, norm="ortho"), axis=2, norm="ortho")
    low_NK = np.ascontiguousarray(spectrum[:, :LOW, :LOW].reshape(len(grey_NSS), -1)[:, 1:])
    return unit_rows(torch.from_numpy(low_NK))


def near_copies(grey_NSS: np.ndarray, is_looked_at_N: np.ndarray) -> Alike:
    """Pairs of pictures that show the same.

    Args:
        grey_NSS: grey levels of all pictures at ``SIDE`` pixels, uint8.
        is_looked_at_N: which of them have something to compare: not those of one colour.
    """
    ids = np.flatnonzero(is_looked_at_N)
    if len(ids) < 2:
        return NO_PAIRS
    pairs_P2 = _candidates(grey_NSS[ids])
    chunks = [pairs_P2[first : first + CHUNK] for first in range(0, len(pairs_P2), CHUNK)]
    kept = grey_NSS[ids]
    found = side_by_side(lambda chunk: agreement(kept[chunk[:, 0]], kept[chunk[:, 1]]), chunks)
    scores_P2 = np.concatenate([np.empty((0, 2), np.float32), *found])
    is_same_P = (scores_P2[:, 0] >= STRUCTURE) & (scores_P2[:, 1] >= DETAIL)
    return Alike(ids[pairs_P2[is_same_P]], scores_P2[is_same_P, 1])


def _candidates(grey_NSS: np.ndarray) -> np.ndarray:
    """Pairs that are near by their coarse structure, each once."""
    coarse_NK = coarse_structure(grey_NSS)
    found = nearest(coarse_NK, coarse_NK, min(NUM_NEIGHBOURS, len(coarse_NK)))
    is_near = (found.similarity_QK >= COARSE).numpy()
    first, place = np.nonzero(is_near)
    second = found.positions_QK.numpy()[first, place]
    pairs_P2 = np.stack([np.minimum(first, second), np.maximum(first, second)], axis=1)
    return np.unique(pairs_P2[first != second], axis=0)


def agreement(first_PSS: np.ndarray, second_PSS: np.ndarray) -> np.ndarray:
    """How far pairs agree, laid over each other in the best way: correlation of structure and of detail, (p, 2).

    >>> rng = np.random.default_rng(0)
    >>> one, other = rng.normal(size=(2, 1, SIDE, SIDE))
    >>> agreement(one, one).round(3).tolist(), bool((agreement(one, other) < 0.3).all())
    ([[1.0, 1.0]], True)
    """
    pair = (first_PSS.astype(np.float32), second_PSS.astype(np.float32))
    best_P2 = np.full((len(first_PSS), 2), -1.0, np.float32)
    # Either may be the crop of the other.
    for whole_PSS, part_PSS in (pair, pair[::-1]):
        rough_P, at_P3 = _rough_place(whole_PSS, part_PSS)
        near = np.flatnonzero(rough_P >= ROUGH)
        best_P2[:, 0] = np.maximum(best_P2[:, 0], np.minimum(rough_P, ROUGH))
        found_P2 = _laid_over(whole_PSS[near], part_PSS[near], at_P3[near])
        is_better = found_P2.sum(1) > best_P2[near].sum(1)
        best_P2[near[is_better]] = found_P2[is_better]
    return best_P2


def _laid_over(whole_PSS: np.ndarray, part_PSS: np.ndarray, at_P3: np.ndarray) -> np.ndarray:
    """Correlation of structure and of detail of a picture and the best cut of another about a place, (p, 2)."""
    structure_PK, detail_PK = _centred(part_PSS), _centred(_detail(part_PSS))
    best_P2 = np.full((len(part_PSS), 2), -1.0, np.float32)
    for step in STEPS:
        centre_P3 = at_P3.copy()
        for move_3 in MOVES_M3:
            tried_P3 = (centre_P3 + step * move_3).clip([min(ZOOMS), 0, 0], 1).astype(np.float32)
            cut_PSS = _cut(whole_PSS, tried_P3)
            structure_P = (_centred(cut_PSS) * structure_PK).sum(1)
            found_P2 = np.stack([structure_P, (_centred(_detail(cut_PSS)) * detail_PK).sum(1)], axis=1)
            is_better_P = found_P2.sum(1) > best_P2.sum(1)
            best_P2[is_better_P], at_P3[is_better_P] = found_P2[is_better_P], tried_P3[is_better_P]
    return best_P2


def _rough_place(whole_PSS: np.ndarray, part_PSS: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Best correlation of pictures of half the side with cuts of others, (p,), and their zoom and shifts, (p, 3)."""
    small_PK = _centred(HALF_TS @ part_PSS @ HALF_TS.T)
    found_WP = np.stack(
        [
            (_centred((HALF_TS @ rows) @ whole_PSS @ (HALF_TS @ columns).T) * small_PK).sum(1)
            for rows, columns in WINDOWS
        ]
    )
    return found_WP.max(0), PLACES_W3[found_WP.argmax(0)]


def clusters(pairs_P2: np.ndarray | Sequence[tuple[int, int]]) -> list[list[int]]:
    """Groups of positions that pairs connect, each sorted, the largest first.

    >>> clusters([(1, 2), (5, 6), (2, 4)])
    [[1, 2, 4], [5, 6]]
    """
    ids, ends = np.unique(np.reshape(pairs_P2, (-1, 2)).astype(np.int64), return_inverse=True)
    first, second = ends.reshape(-1, 2).T
    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(len(ids), len(ids)))
    groups: dict[int, list[int]] = defaultdict(list)
    for place, group in zip(ids.tolist(), connected_components(graph, directed=False)[1].tolist(), strict=True):
        groups[group].append(place)
    return sorted(groups.values(), key=lambda group: (-len(group), group))


def _cut(whole_PSS: np.ndarray, at_P3: np.ndarray) -> np.ndarray:
    """A part of each picture, brought to its full size."""
    rows_PSS, columns_PSS = (_windows(at_P3[:, 0], at_P3[:, axis]) for axis in (1, 2))
    return rows_PSS @ whole_PSS @ columns_PSS.transpose(0, 2, 1)


def _windows(zoom_P: np.ndarray, shift_P: np.ndarray) -> np.ndarray:
    """Matrices that cut a part out of a row of pixels and bring it to the full length, linearly, (p, s, s)."""
    places_PS = (np.arange(SIDE) + 0.5) * zoom_P[:, None] + (shift_P * (1 - zoom_P) * SIDE)[:, None] - 0.5
    # A hat around each place; at the ends the first and last pixel go on.
    distance_PSS = np.abs(places_PS.clip(0, SIDE - 1)[:, :, None] - np.arange(SIDE))
    return (1 - distance_PSS).clip(0).astype(np.float32)


def _detail(grey_PSS: np.ndarray) -> np.ndarray:
    """What is left of pictures when their blurred copy is taken away."""
    return grey_PSS - BLUR_SS @ grey_PSS @ BLUR_SS.T


def _centred(grey_PSS: np.ndarray) -> np.ndarray:
    """Pictures as rows of mean 0 and unit length."""
    rows = grey_PSS.reshape(len(grey_PSS), grey_PSS.shape[1] * grey_PSS.shape[2])  # also of no picture
    rows = rows - rows.mean(1, keepdims=True)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


def _running_mean(width: int) -> np.ndarray:
    """Matrix of a running mean over so many pixels, whose window is cut at both ends."""
    distance_SS = np.abs(np.arange(SIDE)[:, None] - np.arange(SIDE))
    matrix_SS = (distance_SS <= width // 2).astype(np.float32)
    return matrix_SS / matrix_SS.sum(1, keepdims=True)


BLUR_SS = _running_mean(BLUR)
HALF_TS = np.repeat(np.eye(SIDE // 2, dtype=np.float32), 2, axis=1) / 2  # means of two pixels
PLACES_W3 = np.array(
    [(zoom, *shifts) for zoom in ZOOMS for shifts in (itertools.product(SHIFTS, SHIFTS) if zoom < 1 else [(0.0, 0.0)])],
    np.float32,
)
WINDOWS = list(zip(*(_windows(PLACES_W3[:, 0], PLACES_W3[:, axis]) for axis in (1, 2)), strict=True))
MOVES_M3 = np.array(
    [(0, 0, 0), *itertools.product((-0.1, 0.1), (-1, 1), (-1, 1)), *itertools.product((0,), (-1, 0, 1), (-1, 0, 1))],
    np.float32,
)
STEPS = (0.25, 0.12)  # of a shift; zooms move by a tenth of it
