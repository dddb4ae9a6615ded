"""Cuts a score matrix into tiles: the only place that knows the position of a tile and which of its pairs count."""

# N anchors, M keys, D features, H tile rows, W tile columns

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.thread_parts import in_turn
from counterpoint.kernels.contract import PairScores, ScoreTerms

TILE_ROWS, TILE_COLUMNS = 512, 512  # 1 MiB of float32: two such buffers stay in a core's cache
PAIRS_FOR_A_THREAD = 512 * 512  # below, waking another one does not pay
Place = tuple[int, int]


@dataclass(frozen=True)
class Tile:
    """A block of pairs.

    Attributes:
        rows: which anchors.
        columns: which keys.
        product_HW: s <a_i, k_j>, in a buffer that the thread's next tile overwrites.
        is_on_diagonal: anchors are keys, and these rows are these columns.
        excluded: places of pairs that do not count; None where there are none.
        is_out_HW: further pairs that do not count.
        buffers: of one thread, each as large as the largest tile.
    """

    rows: slice
    columns: slice
    product_HW: Tensor
    is_on_diagonal: bool
    excluded: tuple[Tensor, Tensor] | None
    is_out_HW: Tensor | None
    buffers: dict[str, Tensor]

    def filled(self, tile_HW: Tensor, value: float) -> Tensor:
        """``fill`` for a tensor that is not ours to write to, such as what a psi returns."""
        if self.excluded is None and self.is_out_HW is None:
            return tile_HW
        return self.fill(tile_HW.clone(memory_format=torch.contiguous_format), value)

    def fill(self, tile_HW: Tensor, value: float) -> Tensor:
        """Overwrite the pairs that do not count, in place."""
        if self.is_out_HW is not None:
            tile_HW.masked_fill_(self.is_out_HW, value)
        if self.excluded is not None:
            tile_HW[self.excluded] = value
        return tile_HW

    def buffer(self, name: str) -> Tensor:
        """A work space of the tile's shape; the same memory for every tile of a thread."""
        if name not in self.buffers:
            self.buffers[name] = self.product_HW.new_empty(len(self.buffers["product"]))
        return self.buffers[name][: self.product_HW.numel()].view_as(self.product_HW)


class Tiles:
    """The tiles of some scores; of a symmetric matrix only those on and above the diagonal."""

    def __init__(self, scores: PairScores) -> None:
        self.scores = scores
        # Small enough for a CPU's cache; on a GPU, large enough to keep it busy.
        side = 1 if scores.terms.anchors_ND.device.type == "cpu" else 8
        self.size = side * TILE_ROWS, side * TILE_COLUMNS
        self.rows = _cuts(len(scores.terms.anchors_ND), self.size[0])
        # The same cuts for both, so that a tile on the diagonal holds the pairs of a block with itself.
        self.columns = self.rows if scores.is_self else _cuts(len(scores.keys_MD), self.size[1])

    def each(self, work: Callable[[Tile], None]) -> None:
        """Do some work for every tile: on a CPU in several threads, each with whole tiles.

        The work may add to what belongs to the rows or the columns of its tile; such sums are the same bits for any
        number of threads.
        """

        def start() -> Callable[[Place], None]:
            buffers = {"product": self.scores.terms.anchors_ND.new_empty(self.size[0] * self.size[1])}
            return lambda place: work(self._tile(place, buffers))

        if self.scores.terms.anchors_ND.device.type == "cpu":
            num_pairs = len(self.scores.terms.anchors_ND) * len(self.scores.keys_MD)
            is_self = self.scores.is_self

            def touched(place: Place) -> tuple[int, int]:
                # What belongs to the rows, and to the columns; columns that are not rows have negative numbers.
                return place if is_self else (place[0], -1 - place[1])

            in_turn(self._places(), start, touched, most_threads=1 + num_pairs // PAIRS_FOR_A_THREAD)
        else:
            one_by_one = start()
            for place in self._places():
                one_by_one(place)

    def _tile(self, place: Place, buffers: dict[str, Tensor]) -> Tile:
        rows, columns = self.rows[place[0]], self.columns[place[1]]
        anchors_HD, keys_WD = self.scores.terms.anchors_ND[rows], self.scores.keys_MD[columns]
        product_HW = buffers["product"][: len(anchors_HD) * len(keys_WD)].view(len(anchors_HD), len(keys_WD))
        scale = float(self.scores.terms.scale)
        # With beta = 0 what the buffer held is not read, NaN included.
        torch.addmm(product_HW, anchors_HD, keys_WD.mT, beta=0, alpha=scale, out=product_HW)
        is_on_diagonal = self.scores.is_self and rows == columns
        mask, excluded, is_out_HW = self.scores.mask, None, None
        if mask.excluded_NE is not None:
            excluded_HE = mask.excluded_NE[rows]
            # -1 lies in no tile.
            row_K, slot_K = ((excluded_HE >= columns.start) & (excluded_HE < columns.stop)).nonzero(as_tuple=True)
            if len(row_K):
                excluded = row_K, excluded_HE[row_K, slot_K] - columns.start
        if mask.anchor_labels_N is not None and mask.key_labels_M is not None:
            is_same_HW = mask.anchor_labels_N[rows, None] == mask.key_labels_M[None, columns]
            is_out_HW = is_same_HW.logical_not_() if mask.keeps_same_label else is_same_HW
        return Tile(rows, columns, product_HW, is_on_diagonal, excluded, is_out_HW, buffers)

    def _places(self) -> list[Place]:
        """Block numbers of each tile, in an order in which those that follow each other share nothing."""
        if self.scores.is_self:
            return _tournament(len(self.rows))
        is_tall = len(self.rows) > len(self.columns)
        few, many = sorted((len(self.rows), len(self.columns)))
        # Along the diagonals of the matrix of blocks: the next few tiles share neither rows nor columns.
        pairs = [(a, (a + shift) % many) for shift in range(many) for a in range(few)]
        return [(b, a) for a, b in pairs] if is_tall else pairs


def _cuts(count: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def _tournament(count: int) -> list[Place]:
    """Each block with itself, then every two once, in rounds in which a block meets at most one other."""
    places, ring = [(block, block) for block in range(count)], count - 1 + count % 2
    for turn in range(ring):
        # Circle method: in each round the blocks turn + step and turn - step meet.
        places += [((turn + step) % ring, (turn - step) % ring) for step in range(1, (ring + 1) // 2)]
        # An even count leaves one block outside the ring, which meets the one that is left over.
        if ring < count:
            places.append((turn, ring))
    return [(min(place), max(place)) for place in places]


def product_tangent(scores: PairScores, tangent: ScoreTerms, tile: Tile, out_HW: Tensor) -> Tensor:
    r"""Change of the products, :math:`s'\langle a,k\rangle + s\langle a',k\rangle + s\langle a,k'\rangle`."""
    s, ds = float(scores.terms.scale), float(tangent.scale)
    anchors_HD, keys_WD = scores.terms.anchors_ND[tile.rows], scores.keys_MD[tile.columns]
    moved_anchors_HD, moved_keys_WD = tangent.anchors_ND[tile.rows], PairScores(tangent).keys_MD[tile.columns]
    # The first two summands share the keys: one product for both.
    left_HD = ds * anchors_HD + s * moved_anchors_HD
    torch.mm(left_HD, keys_WD.mT, out=out_HW)
    return out_HW.addmm_(anchors_HD, moved_keys_WD.mT, alpha=s)
