"""Runs the fused programs: block sizes, spans that fill the device, and the sums of what blocks leave behind.

Partial results are added in a fixed order, so that two runs on one device give the same bits.
"""

# N anchors, M keys, D features, O owners, K others, S spans of others, B blocks of owners

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.stored_rows import row_slices
from counterpoint.kernels.triton import triton_programs as programs
from counterpoint.kernels.triton.triton_language import is_interpreted, tl
from counterpoint.kernels.triton.triton_records import (
    Direction,
    GradientOut,
    Pairs,
    PairSide,
    Shape,
    SlabOut,
    StatisticOut,
    Tiling,
    padded,
)

PARTIAL_BYTES = 16 * 2**20  # what blocks may leave behind before it is added up
SLAB_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Program:
    """Constants that a call has in common with the next one.

    Attributes:
        psi: name of the elementwise function.
        precision: precision of float32 products, one of ``PRECISIONS``.
        keeps_same_label: whether only keys of the anchor's label count, see ``contract.PairMask``.
        is_excluded_by_owner: whether the excluded indices belong to the owners.
        shape: block sizes of the program.
    """

    psi: str
    precision: str
    keeps_same_label: bool
    is_excluded_by_owner: bool
    shape: Shape

    def tiling(self, pairs: Pairs) -> Tiling:
        """The constants to compile for."""
        vectors_CD = pairs.owner.vectors_CD
        num_excluded = 0 if pairs.excluded_CE is None else pairs.excluded_CE.shape[1]
        return Tiling(
            psi=self.psi,
            # Only float32 has several, and the interpreter knows but one.
            precision=self.precision if vectors_CD.dtype == torch.float32 and not is_interpreted() else "ieee",
            accumulator=tl.float64 if vectors_CD.dtype == torch.float64 else tl.float32,
            is_interpreted=is_interpreted(),
            num_features=vectors_CD.shape[1],
            block_owner=self.shape.block_owner,
            block_other=self.shape.block_other,
            chunk=self.shape.chunk,
            all_features=padded(vectors_CD.shape[1]),
            num_excluded=num_excluded,
            # A power of two, as tl.arange wants it; 1 where nothing is excluded.
            padded_excluded=1 << max(num_excluded - 1, 0).bit_length(),
            is_excluded_by_owner=self.is_excluded_by_owner,
            keeps_same_label=self.keeps_same_label,
            is_two_way=pairs.second is not None,
        )

    def run(self, function: Any, grid: tuple[int, int], pairs: Pairs, out: Any) -> None:
        """Launch on the device that holds the vectors."""
        how = {"num_warps": self.shape.num_warps, "num_stages": self.shape.num_stages, "enable_fp_fusion": True}
        launch(function[grid], pairs.owner.vectors_CD, pairs, out, tiling=self.tiling(pairs), **how)


def launch(function: Any, like: Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch a program, its grid chosen, on the device of a tensor, which need not be the current one."""
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        function(*arguments, **constants)


def statistics(pairs: Pairs, program: Program) -> Tensor:
    """Statistic of each owner in the first direction."""
    num_blocks, span, num_spans = _grid(pairs, program.shape, 1)
    per_owner_SO = pairs.factor.new_empty(num_spans, pairs.owner.num)
    if num_blocks:  # an empty grid cannot be launched
        program.run(programs.statistics, (num_blocks, num_spans), pairs, StatisticOut(per_owner_SO, span))
    return _merged(per_owner_SO, program.psi)


@dataclass(frozen=True)
class Sums:
    """Weights added up: times vectors (not yet times the scale), times products, and by themselves."""

    total_OD: Tensor
    products_O: Tensor
    first_O: Tensor | None
    second_O: Tensor | None


def gradients(pairs: Pairs, program: Program, *, wants_first: bool, wants_second: bool) -> Sums:
    """Weighted sums over the others for each owner, D small enough to be held in registers."""
    num_owners, num_features = pairs.owner.vectors_CD.shape
    num_blocks, span, num_spans = _grid(pairs, program.shape, num_features)
    new_empty = pairs.factor.new_empty
    out = GradientOut(
        total_SOD=new_empty(num_spans, num_owners, num_features),
        products_SO=new_empty(num_spans, num_owners),
        first_SO=new_empty(num_spans, num_owners) if wants_first else None,
        second_SO=new_empty(num_spans, num_owners) if wants_second else None,
        span=span,
    )
    if num_blocks:
        program.run(programs.gradients, (num_blocks, num_spans), pairs, out)
    return Sums(*(None if part is None else _merged(part, "sum") for part in out[:4]))  # pyright: ignore[reportArgumentType]


class SlabSums:
    """Weights added up for both sides and any D: a slab of pairs at a time, multiplied by the matrix library.

    Args:
        pairs: all pairs.
        program: program that computes their weights; its excluded indices belong to the owners.
        is_self: whether owners are others: slabs left of the diagonal are then left out, and one sum serves both.
    """

    def __init__(self, pairs: Pairs, program: Program, *, is_self: bool) -> None:
        self.pairs, self.program, self.is_self = pairs, program, is_self
        new_zeros, counts = pairs.factor.new_zeros, (pairs.owner.num, pairs.other.num)
        num_features = pairs.owner.vectors_CD.shape[1]
        self.to_owners_OD = new_zeros(counts[0], num_features)
        self.to_others_KD = self.to_owners_OD if is_self else new_zeros(counts[1], num_features)
        self.sums = [new_zeros(count) for _ in range(2) for count in counts]  # first O, first K, second O, second K
        if is_self:  # what an other gets in the second direction, an owner gets in the first
            self.sums[2:] = self.sums[1::-1]

    def run(self) -> "SlabSums":
        """Go through all slabs."""
        height, width = self._slab_size()
        size = min(height, self.pairs.owner.num) * min(width, self.pairs.other.num)
        # The buffer has the dtype of the vectors: the matrix library multiplies two of a kind.
        buffer = self.pairs.owner.vectors_CD.new_empty(size)
        for rows in row_slices(self.pairs.owner.num, height):
            for first_column in range(rows.start if self.is_self else 0, self.pairs.other.num, width):
                columns = slice(first_column, min(first_column + width, self.pairs.other.num))
                shape = rows.stop - rows.start, columns.stop - columns.start
                self._add(rows, columns, buffer[: shape[0] * shape[1]].view(shape))
        return self

    def products(self) -> Tensor:
        """Sum of weights times products."""
        total = self.pairs.factor.new_zeros(())
        for rows in row_slices(self.pairs.owner.num, self._slab_size()[0]):
            # sum_ij w_ij <o_i, k_j> = <O, w K>, of sums that are there already.
            total = total + (self.pairs.owner.vectors_CD[rows].to(total.dtype) * self.to_owners_OD[rows]).sum()
        return total

    def _add(self, rows: slice, columns: slice, slab_HW: Tensor) -> None:
        part, shape = cut(self.pairs, rows, columns), self.program.shape
        grid = -(-part.owner.num // shape.block_owner), -(-part.other.num // shape.block_other)
        new_empty = self.pairs.factor.new_empty
        # One row per tile and no atomic sums: they are added up below in a fixed order.
        sums = [new_empty(grid[1 - axis], (part.owner, part.other)[axis].num) for axis in (0, 1, 0, 1)]
        self.program.run(programs.slab_weights, grid, part, SlabOut(slab_HW, *sums))
        self.to_owners_OD[rows] += _product(slab_HW, part.other.vectors_CD, self.to_owners_OD.dtype)
        # The rows among themselves hold each pair twice: as others they have had it.
        twice = max(0, rows.stop - columns.start) if self.is_self else 0
        later = slice(columns.start + twice, columns.stop)
        if later.start < later.stop:
            weight_LH = slab_HW[:, twice:].mT
            self.to_others_KD[later] += _product(weight_LH, part.owner.vectors_CD, self.to_others_KD.dtype)
        places = ((rows, 0), (later, twice)) * (1 if part.second is None else 2)
        for total, (place, skipped), partial in zip(self.sums, places, sums, strict=False):
            total[place] += partial.sum(0)[skipped:]

    def _slab_size(self) -> tuple[int, int]:
        """Return a size that is about square, so that each sum is read and written seldom."""
        height = width = 2048
        while 2 * height * width * self.pairs.owner.vectors_CD.element_size() <= SLAB_BYTES:
            height, width = width, 2 * height
        return height, width


def cut(pairs: Pairs, rows: slice, columns: slice) -> Pairs:
    """The pairs of some owners and some others, renumbered."""

    def side(of: PairSide, place: slice) -> PairSide:
        return PairSide(of.vectors_CD[place], place.stop - place.start, _at(of.labels_C, place))

    def direction(of: Direction) -> Direction:
        return Direction(*(_at(value, place) for value, place in zip(of, (rows, columns) * 2, strict=True)))

    excluded_HE = None if pairs.excluded_CE is None else pairs.excluded_CE[rows]
    if excluded_HE is not None:  # what lies before the slab, -1 too, becomes negative and meets no index
        excluded_HE = (excluded_HE - columns.start).contiguous()
    return pairs._replace(
        owner=side(pairs.owner, rows),
        other=side(pairs.other, columns),
        excluded_CE=excluded_HE,
        first=direction(pairs.first),
        second=None if pairs.second is None else direction(pairs.second),
    )


def _at(values: Tensor | None, place: slice) -> Tensor | None:
    return None if values is None else values[place]


def _product(weight_HW: Tensor, vectors_WD: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrix product with sums in ``dtype``."""
    if weight_HW.dtype == dtype:
        return weight_HW @ vectors_WD
    # Half-precision factors with float32 sums; torch takes out_dtype on CUDA only.
    if weight_HW.device.type == "cuda":
        return torch.mm(weight_HW, vectors_WD, out_dtype=dtype)
    return weight_HW.to(dtype) @ vectors_WD.to(dtype)


def _grid(pairs: Pairs, shape: Shape, numbers_per_owner: int) -> tuple[int, int, int]:
    """Blocks of owners, others in a span, and spans: more than one where blocks alone leave the device idle."""
    num_blocks = -(-pairs.owner.num // shape.block_owner)
    num_other_blocks = max(1, -(-pairs.other.num // shape.block_other))
    bytes_per_span = max(1, pairs.owner.num * numbers_per_owner * pairs.factor.element_size())
    most = max(1, min(num_other_blocks, PARTIAL_BYTES // bytes_per_span))
    device = pairs.factor.device
    # Interpreted programs pretend to have a few processors.
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4

    def busy(num_spans: int) -> float:
        num_programs = max(1, num_blocks * num_spans)
        # Programs run in waves, one per processor; in the last wave some may be idle.
        return num_programs / (-(-num_programs // processors) * processors)

    # The fewest spans that keep 85 % of the processors busy, or those that keep most of them busy.
    candidates = range(1, min(most, 2 * processors) + 1)
    num_spans = next((n for n in candidates if busy(n) >= 0.85), max(candidates, key=busy))
    # Spans of whole tiles, as even as can be; the last one may be shorter.
    span = -(-num_other_blocks // num_spans)
    return num_blocks, span * shape.block_other, -(-num_other_blocks // span)


def _merged(partial_SO: Tensor, psi: str) -> Tensor:
    if len(partial_SO) == 1:
        return partial_SO[0]
    return torch.logsumexp(partial_SO, 0) if psi == "exp" else partial_SO.sum(0)
