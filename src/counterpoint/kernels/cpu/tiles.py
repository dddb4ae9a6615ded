"""Cuts a score matrix into tiles, and adds up what they give: each is read along its rows and, maybe, its columns.

Nothing else knows the position of a tile and which of its pairs count. Columns are read where keys are anchors, too.
A reading gives statistics, log-sum-exp or plain sums per anchor; the weights of pairs give the gradient of every term.
"""

# N anchors, M keys, D features, H tile rows, W tile columns, O own anchors of a reading, K keys of a reading

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from counterpoint.core.numerics import by_rows
from counterpoint.core.processor_routines import add_product_, exp_, multiply
from counterpoint.core.stored_rows import row_slices
from counterpoint.core.thread_parts import ordered_writes
from counterpoint.kernels.contract import PairFunction, PairScores, ScoreTerms

TILE_ROWS, TILE_COLUMNS = 512, 512  # 1 MiB of float32: two such buffers stay in a core's cache
PAIRS_FOR_A_THREAD = 512 * 512  # below, waking another one does not pay
# Smaller exponents are lifted to -60; e^-60 = 9e-27 is below the least weight and becomes an exact zero.
LEAST_EXPONENT = -60.0
LEAST_WEIGHT = 1e-26  # above e^-60
# One reference c for all rows, so that an exponential serves both readings of a pair. float32: thousands of e^55, and
# one over their sum, are ordinary numbers, e^-85 is a normal one; above 120 hardly any batch would be exact.
HIGHEST, LARGEST_BOUND = {torch.float32: 55.0, torch.float64: 300.0}, {torch.float32: 120.0, torch.float64: 300.0}
LOWEST = -85.0  # smaller exponents are lifted to it
LEAST_SHARE = 1e-8  # what all that were lifted may add to a row's sum
Place = tuple[int, int]


@dataclass(frozen=True)
class Tile:
    """A block of pairs.

    Attributes:
        rows: positions of the tile's anchors.
        columns: positions of the tile's keys.
        product_HW: scaled products s <a_i, k_j>, (h, w), in a buffer that the thread's next tile overwrites.
        is_on_diagonal: whether anchors are keys, and these rows are these columns.
        excluded: rows and columns, within the tile, of pairs that do not count; None if there are none.
        is_out_HW: mask of further pairs that do not count, (h, w); None if there are none.
        buffers: work spaces of one thread by name, each as large as the largest tile.
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
        self.rows = row_slices(len(scores.terms.anchors_ND), self.size[0])
        # The same cuts for both, so that a tile on the diagonal holds the pairs of a block with itself.
        self.columns = self.rows if scores.is_self else row_slices(len(scores.keys_MD), self.size[1])

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
            ordered_writes(
                self._places(),
                start,
                # One number for the rows, and one for the columns; columns that are not rows have negative ones.
                lambda place: place if self.scores.is_self else (place[0], -1 - place[1]),
                most_threads=1 + num_pairs // PAIRS_FOR_A_THREAD,
            )
        else:
            one_by_one = start()
            for place in self._places():
                one_by_one(place)

    def _tile(self, place: Place, buffers: dict[str, Tensor]) -> Tile:
        rows, columns = self.rows[place[0]], self.columns[place[1]]
        anchors_HD, keys_WD = self.scores.terms.anchors_ND[rows], self.scores.keys_MD[columns]
        product_HW = buffers["product"][: len(anchors_HD) * len(keys_WD)].view(len(anchors_HD), len(keys_WD))
        scale = float(self.scores.terms.scale)
        product_HW = multiply(anchors_HD, keys_WD.mT, scale=scale, room_HW=product_HW)
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
            # Each block with itself, then every two once, in rounds in which a block meets at most one other.
            count = len(self.rows)
            places, ring = [(block, block) for block in range(count)], count - 1 + count % 2
            for turn in range(ring):
                # Circle method: in each round the blocks turn + step and turn - step meet.
                places += [((turn + step) % ring, (turn - step) % ring) for step in range(1, (ring + 1) // 2)]
                # An even count leaves one block outside the ring, which meets the one that is left over.
                if ring < count:
                    places.append((turn, ring))
            return [(min(place), max(place)) for place in places]
        is_tall = len(self.rows) > len(self.columns)
        few, many = sorted((len(self.rows), len(self.columns)))
        # Along the diagonals of the matrix of blocks: the next few tiles share neither rows nor columns.
        pairs = [(a, (a + shift) % many) for shift in range(many) for a in range(few)]
        return [(b, a) for a, b in pairs] if is_tall else pairs


def product_tangent(scores: PairScores, tangent: ScoreTerms, tile: Tile) -> Tensor:
    r"""Change of the products, :math:`s'\langle a,k\rangle + s\langle a',k\rangle + s\langle a,k'\rangle`."""
    s, ds = float(scores.terms.scale), float(tangent.scale)
    anchors_HD, keys_WD = scores.terms.anchors_ND[tile.rows], scores.keys_MD[tile.columns]
    moved_anchors_HD, moved_keys_WD = tangent.anchors_ND[tile.rows], PairScores(tangent).keys_MD[tile.columns]
    # The first two summands share the keys: one product for both.
    moved_HD = ds * anchors_HD + s * moved_anchors_HD
    moved_HW = multiply(moved_HD, keys_WD.mT, room_HW=tile.buffer("moved"))
    return add_product_(moved_HW, anchors_HD, moved_keys_WD.mT, scale=s)


def common_reference(bound: float, dtype: torch.dtype) -> float | None:
    """The c for scores of at most this size: 0 up to ``HIGHEST``, else what prevents overflow; None if too large."""
    return max(0.0, bound - HIGHEST[dtype]) if bound <= LARGEST_BOUND.get(dtype, -1.0) else None


def exponentials_(score_HW: Tensor, reference: float, unit: float | None = None) -> Tensor:
    """e^(u - c) in place; of scores that have been multiplied by ``exponent_unit``, if that is given."""
    if reference:
        score_HW.sub_(reference * (unit or 1.0)).clamp_(min=LOWEST * (unit or 1.0))
    return exp_(score_HW) if unit in (None, 1.0) else score_HW.exp2_()


def is_exact(log_sum_N: Tensor, num_keys: int) -> bool:
    """Tell whether lifted exponents are too small to show in any of the sums, relative to e^c; NaN fails."""
    return log_sum_N.amin().item() >= LOWEST + math.log(num_keys / LEAST_SHARE)


@dataclass(frozen=True)
class Reading:
    """One direction in which a tile is read.

    Attributes:
        is_column: whether the anchors are the columns of the tile.
        statistic: number of the statistic that it belongs to: 0 rows, 1 columns.
        own_name: name of the field of ``ScoreTerms`` that holds what each anchor adds.
        other_name: name of the field of ``ScoreTerms`` that holds what each key adds.
    """

    is_column: bool
    statistic: int
    own_name: str = "row_own_N"
    other_name: str = "row_other_M"

    def own(self, tile: Tile) -> slice:
        """Anchors of the tile in this reading."""
        return tile.columns if self.is_column else tile.rows

    def other(self, tile: Tile) -> slice:
        """Keys of the tile in this reading."""
        return tile.rows if self.is_column else tile.columns

    def orient(self, tile_HW: Tensor) -> Tensor:
        """View a tile with its anchors as rows, (o, k)."""
        return tile_HW.mT if self.is_column else tile_HW

    def scores(self, tile: Tile, terms: ScoreTerms) -> Tensor:
        """The tile's scores, (o, k), in a buffer that the next reading overwrites."""
        return self.add_biases(self.orient(tile.buffer("work").copy_(tile.product_HW)), terms, tile)

    def add_biases(self, oriented_OK: Tensor, terms: ScoreTerms, tile: Tile) -> Tensor:
        """Add what anchors and keys add, in place."""
        own_O, other_K = getattr(terms, self.own_name), getattr(terms, self.other_name)
        if own_O is not None:
            oriented_OK.add_(own_O[self.own(tile), None])
        if other_K is not None:
            oriented_OK.add_(other_K[None, self.other(tile)])
        return oriented_OK


ROWS = Reading(is_column=False, statistic=0)
MIRRORED = Reading(is_column=True, statistic=0)  # the anchors are the keys: below the diagonal
COLUMNS = Reading(is_column=True, statistic=1, own_name="column_own_M", other_name="column_other_N")


def readings(scores: PairScores) -> tuple[Reading, ...]:
    """Directions in which a tile off the diagonal is read."""
    if scores.is_self:
        return (ROWS, MIRRORED)
    return (ROWS, COLUMNS) if scores.is_two_way else (ROWS,)


def counted_readings(scores: PairScores, tile: Tile) -> tuple[Reading, ...]:
    """Directions in which a tile is read, with each pair of a tile on the diagonal counted once."""
    return (ROWS,) if tile.is_on_diagonal else readings(scores)


def prepare(tile: Tile, psi: PairFunction) -> None:
    """Make the pairs that do not count harmless, in place: weightless for exp, finite for any other psi."""
    tile.fill(tile.product_HW, float("-inf") if psi.in_log_domain else 0.0)


def exp_or_zero_(v: Tensor) -> Tensor:
    """Exponential in place, of numbers relative to the largest of a row, or to the logarithm of its sum.

    Below 1e-26, which no sum with a 1 in it shows, it is zero: computed as such, exponentials that are subnormal or
    zero take forty and ten times as long.
    """
    return torch.threshold_(exp_(v.clamp_(min=LEAST_EXPONENT)), LEAST_WEIGHT, 0.0)


def add_exponentials(top_O: Tensor, sum_O: Tensor, u_OK: Tensor) -> None:
    """Add a tile, which is overwritten, to the largest score per anchor so far and the sum of exp relative to it."""
    # Running reference: the sum so far is taken from the old largest score to the new one.
    new_O = torch.maximum(top_O, u_OK.amax(1))
    shift_O = torch.where(new_O == float("-inf"), 0.0, new_O)  # an anchor without any key so far
    sum_O.copy_(sum_O * torch.exp(top_O - shift_O) + exp_or_zero_(u_OK.sub_(shift_O[:, None])).sum(1))
    top_O.copy_(new_O)


class TermSums:
    """Gradient of the weighted statistics: w K, w^T A, and the row and column sums of w.

    Args:
        scores: the scores; only terms that are not None get a sum.
    """

    def __init__(self, scores: PairScores) -> None:
        self.scores = scores
        self.biases = empty_biases(scores)
        self.sums = empty_sides(scores)

    def add_products(self, tile: Tile, weight_HW: Tensor) -> None:
        """Take in the total weight of a tile."""
        add_both_ways(*self.sums, self.scores, tile, weight_HW)

    def result(self, factor: Tensor | float = 1.0) -> ScoreTerms:
        """The gradient, times a factor where there are no biases."""
        # dL/ds = sum w_ij <a_i, k_j> = <A, w K>, before those sums are multiplied by s.
        scale = half_if_self(self.scores) * factor * dot(self.scores.terms.anchors_ND, self.sums[0])
        for sums in self.sums:
            if sums is not None:
                scale_rows(sums, self.scores.terms.scale * factor)
        return ScoreTerms(*self.sums, scale, **self.biases)


class TermTangentSums:
    """Change of that gradient: changed weights times vectors, and weights times changed vectors.

    Args:
        scores: the scores.
        tangent: direction in which their terms move.
    """

    def __init__(self, scores: PairScores, tangent: ScoreTerms) -> None:
        self.scores, self.moved = scores, PairScores(tangent)
        self.biases = empty_biases(scores)
        self.changed, self.held = empty_sides(scores), empty_sides(scores)

    def add_products(self, tile: Tile, weight_HW: Tensor, change_HW: Tensor) -> None:
        """Take in the total weight of a tile and its change."""
        # changed = w' K + w K', held = w K, and the same for the keys.
        add_both_ways(*self.changed, self.scores, tile, change_HW)
        add_both_ways(*self.changed, self.moved, tile, weight_HW)
        add_both_ways(*self.held, self.scores, tile, weight_HW)

    def result(self) -> ScoreTerms:
        """The change of the gradient."""
        terms, tangent = self.scores.terms, self.moved.terms
        (changed_ND, changed_MD), (held_ND, held_MD) = self.changed, self.held
        # <A, w K>' = <A, (w K)'> + <A', w K>
        scale = dot(terms.anchors_ND, changed_ND) + dot(tangent.anchors_ND, held_ND)
        for changed, held in ((changed_ND, held_ND), (changed_MD, held_MD)):
            if changed is not None and held is not None:
                scale_rows(changed, terms.scale, plus=(held, tangent.scale))  # (s w K)' = s (w K)' + s' w K
        return ScoreTerms(changed_ND, changed_MD, scale * half_if_self(self.scores), **self.biases)


def dot(left_ND: Tensor, right_ND: Tensor) -> Tensor:
    """Inner product of two matrices, the same bits for any number of threads."""
    parts: dict[int, Tensor] = {}
    by_rows(left_ND, lambda rows: parts.update({rows.start: (left_ND[rows] * right_ND[rows]).sum()}))
    # Threads finish in any order; the parts are added in the order of their rows.
    return torch.stack([parts[start] for start in sorted(parts)]).sum()


def scale_rows(sums_ND: Tensor, scale: Tensor, plus: tuple[Tensor, Tensor] | None = None) -> None:
    """Multiply in place, and add a multiple of another matrix."""

    def work(rows: slice) -> None:
        own_HD = sums_ND[rows].mul_(scale)
        if plus is not None:
            own_HD.add_(plus[1] * plus[0][rows])

    by_rows(sums_ND, work)


def half_if_self(scores: PairScores) -> float:
    """Return 1/2 if anchors are keys, as total weights then hold each pair twice; else 1."""
    return 0.5 if scores.is_self else 1.0


def empty_sides(scores: PairScores) -> tuple[Tensor, Tensor | None]:
    """Zeros for the anchors, and for the keys where these are other vectors."""
    return torch.zeros_like(scores.terms.anchors_ND), None if scores.is_self else torch.zeros_like(scores.keys_MD)


def empty_biases(scores: PairScores) -> dict[str, Tensor | None]:
    """Zeros for each bias that the scores have."""
    names = [field.name for field in fields(ScoreTerms)][3:]  # all but anchors, keys and scale
    terms = scores.terms
    return {name: None if getattr(terms, name) is None else torch.zeros_like(getattr(terms, name)) for name in names}


def add_biases(biases: dict[str, Tensor | None], reading: Reading, tile: Tile, weight_OK: Tensor) -> None:
    """Add row and column sums of one reading's weights; a tile on the diagonal holds each pair once already."""
    if tile.is_on_diagonal and reading.is_column:
        return
    own_O, other_K = biases[reading.own_name], biases[reading.other_name]
    if own_O is not None:
        own_O[reading.own(tile)] += weight_OK.sum(1)
    if other_K is not None:
        other_K[reading.other(tile)] += weight_OK.sum(0)


def add_both_ways(
    to_anchors_ND: Tensor, to_keys_MD: Tensor | None, scores: PairScores, tile: Tile, weight_HW: Tensor
) -> None:
    """Add w K to the anchors and w^T A to the keys; where they are the same, off the diagonal only."""
    add_product_(to_anchors_ND[tile.rows], weight_HW, scores.keys_MD[tile.columns])
    # The total of a tile on the diagonal holds w + w^T already.
    if tile.is_on_diagonal:
        return
    to_columns_WD = (to_anchors_ND if to_keys_MD is None else to_keys_MD)[tile.columns]
    add_product_(to_columns_WD, weight_HW.mT, scores.terms.anchors_ND[tile.rows])
