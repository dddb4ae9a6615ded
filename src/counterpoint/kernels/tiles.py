"""Cuts a score matrix into tiles: the only place that knows where a tile stands and which of its pairs count."""

# N anchors, M keys, D features, H tile rows, W tile columns

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairMask, PairScores, ScoreTerms

TILE_ROWS, TILE_COLUMNS = 512, 512  # 1 MiB of float32: two such buffers stay in a core's cache


@dataclass(frozen=True)
class TileMask:
    """The pairs of one tile that do not count."""

    index: tuple[Tensor, Tensor] | None
    is_out_HW: Tensor | None

    def filled(self, tile_HW: Tensor, value: float) -> Tensor:
        """The same for a tensor that is not ours to write to, such as what a psi returns."""
        if self.index is None and self.is_out_HW is None:
            return tile_HW
        return self.fill(tile_HW.clone(memory_format=torch.contiguous_format), value)

    def fill(self, tile_HW: Tensor, value: float) -> Tensor:
        """Overwrite the pairs that do not count, in place."""
        if self.is_out_HW is not None:
            tile_HW.masked_fill_(self.is_out_HW, value)
        if self.index is not None:
            tile_HW[self.index] = value
        return tile_HW


@dataclass(frozen=True)
class Tile:
    """A block of pairs.

    Attributes:
        rows: which anchors.
        columns: which keys.
        product_HW: s <a_i, k_j>, in a buffer that the next tile overwrites.
        mask: the pairs that do not count.
        is_on_diagonal: anchors are keys, and these rows are these columns.
    """

    rows: slice
    columns: slice
    product_HW: Tensor
    mask: TileMask
    is_on_diagonal: bool


class Tiles:
    """The tiles of some scores; of a symmetric matrix only those on and above the diagonal.

    Args:
        scores: the pair scores.
        size: rows and columns of a tile.
    """

    def __init__(self, scores: PairScores, size: tuple[int, int] | None = None) -> None:
        self.scores = scores
        self.height, self.width = size or tile_size(scores)
        self.num_anchors, self.num_keys = len(scores.terms.anchors_ND), len(scores.keys_MD)
        self._buffers: dict[str, Tensor] = {}

    def __iter__(self) -> Iterator[Tile]:
        """Yield the tiles, with their products."""
        scale = float(self.scores.terms.scale)
        for rows, columns in self._places():
            anchors_HD, keys_WD = self.scores.terms.anchors_ND[rows], self.scores.keys_MD[columns]
            product_HW = self.buffer("product", rows, columns)
            torch.addmm(product_HW, anchors_HD, keys_WD.mT, beta=0, alpha=scale, out=product_HW)
            is_on_diagonal = self.scores.is_self and rows == columns
            yield Tile(rows, columns, product_HW, _mask_of(self.scores.mask, rows, columns), is_on_diagonal)

    def buffer(self, name: str, rows: slice, columns: slice) -> Tensor:
        """A work space of the tile's shape; the same memory for every tile."""
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if name not in self._buffers:
            self._buffers[name] = self.scores.terms.anchors_ND.new_empty(self.height * self.width)
        return self._buffers[name][: height * width].view(height, width)

    def _places(self) -> Iterator[tuple[slice, slice]]:
        """Yield rows and columns of each tile."""
        for top in range(0, self.num_anchors, self.height):
            rows = slice(top, min(top + self.height, self.num_anchors))
            for left in range(top if self.scores.is_self else 0, self.num_keys, self.width):
                yield rows, slice(left, min(left + self.width, self.num_keys))


def tile_size(scores: PairScores) -> tuple[int, int]:
    """Tiles small enough for a CPU's cache; on a GPU, large enough to keep it busy."""
    side = 1 if scores.terms.anchors_ND.device.type == "cpu" else 8
    return side * TILE_ROWS, side * TILE_COLUMNS


def product_tangent(scores: PairScores, tangent: ScoreTerms, tile: Tile, out_HW: Tensor) -> Tensor:
    r"""Change of the products, :math:`s'\langle a,k\rangle + s\langle a',k\rangle + s\langle a,k'\rangle`."""
    s, ds = float(scores.terms.scale), float(tangent.scale)
    anchors_HD, keys_WD = scores.terms.anchors_ND[tile.rows], scores.keys_MD[tile.columns]
    moved_anchors_HD, moved_keys_WD = tangent.anchors_ND[tile.rows], moved_keys(scores, tangent)[tile.columns]
    left_HD = ds * anchors_HD + s * moved_anchors_HD
    torch.mm(left_HD, keys_WD.mT, out=out_HW)
    return out_HW.addmm_(anchors_HD, moved_keys_WD.mT, alpha=s)


def moved_keys(scores: PairScores, tangent: ScoreTerms) -> Tensor:
    """Tangent of the keys, whichever they are, shape (m, d)."""
    moved_MD = tangent.anchors_ND if scores.is_self else tangent.keys_MD
    assert moved_MD is not None
    return moved_MD


def _mask_of(mask: PairMask, rows: slice, columns: slice) -> TileMask:
    """The part of the mask that falls on a tile."""
    index, is_out_HW = None, None
    if mask.excluded_NE is not None:
        excluded_HE = mask.excluded_NE[rows]
        row_K, slot_K = ((excluded_HE >= columns.start) & (excluded_HE < columns.stop)).nonzero(as_tuple=True)
        if len(row_K):
            index = row_K, excluded_HE[row_K, slot_K] - columns.start
    if mask.anchor_labels_N is not None and mask.key_labels_M is not None:
        is_same_HW = mask.anchor_labels_N[rows, None] == mask.key_labels_M[None, columns]
        is_out_HW = is_same_HW.logical_not_() if mask.keeps_same_label else is_same_HW
    return TileMask(index, is_out_HW)
