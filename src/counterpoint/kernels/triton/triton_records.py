"""Arguments of a fused program, how they come from pair scores, and the size of its tiles.

A program owns some vectors and runs over all others; the owners are the anchors in one call and the keys in another.
Every field is a pointer, a number or a constant: contiguous vectors, biases and statistics in one vector per side.
"""

# N anchors, M keys, D features, E excluded keys per anchor, O owners, K others

from typing import Any, NamedTuple

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairScores, PerAnchor


class PairSide(NamedTuple):
    """Owners or others."""

    vectors_CD: Tensor  # contiguous
    num: int
    labels_C: Tensor | None


class Direction(NamedTuple):
    """One reading of the products: what is added to a pair's score, and what the pair's slope is multiplied by.

    Biases hold minus the statistic where psi is an exponential, and are in units of ln 2 then. One of the two weights
    is None, both are where a statistic is asked for.
    """

    by_owner_O: Tensor | None
    by_other_K: Tensor | None
    owner_weight_O: Tensor | None = None
    other_weight_K: Tensor | None = None


class Pairs(NamedTuple):
    """All pairs of owners and others."""

    owner: PairSide
    other: PairSide
    factor: Tensor  # shape (): scale, over ln 2 where psi is an exponential
    excluded_CE: Tensor | None  # int32; one row per owner or per other, see ``Tiling``
    first: Direction
    second: Direction | None
    bound: Tensor | None = None  # shape (): of all scores, in units of ln 2; None if it is not known


class StatisticOut(NamedTuple):
    """Output of ``statistics``: one row per span of others."""

    per_owner_SO: Tensor
    span: int


class GradientOut(NamedTuple):
    """Output of ``gradients``: one row per span of others. Sums of weights are None if no bias needs them."""

    total_SOD: Tensor
    products_SO: Tensor
    first_SO: Tensor | None
    second_SO: Tensor | None
    span: int


class SlabOut(NamedTuple):
    """Output of ``slab_weights``: weights, and their sums per tile along and across each direction."""

    weight_OK: Tensor
    first_TO: Tensor | None
    first_TK: Tensor | None
    second_TO: Tensor | None
    second_TK: Tensor | None


class Tiling(NamedTuple):
    """Constants that a program is compiled for."""

    psi: str
    precision: str  # of float32 products: ieee, tf32x3 or tf32
    accumulator: Any  # triton's dtype of products and sums
    is_interpreted: bool
    num_features: int
    block_owner: int
    block_other: int
    chunk: int  # features that are multiplied at a time
    all_features: int  # padded to a power of two
    num_excluded: int
    padded_excluded: int  # next power of two
    is_excluded_by_owner: bool
    keeps_same_label: bool
    is_two_way: bool  # there is a second direction; triton 3.6 cannot compare a tuple that holds None with None


class Shape(NamedTuple):
    """Size of a program's tiles, and how many warps and tiles in flight it has."""

    block_owner: int
    block_other: int
    chunk: int  # features that are multiplied at a time
    num_warps: int
    num_stages: int


# Shared memory that a block may have, in bytes: compute capability 8.6, 8.9 and 12.0 have the least, 8.0 has enough for
# any of the tiles. These are the fastest of some 40 on an H200, at 32,768 rows of 128 features; tests compile them for
# the others.
LEAST_SHARED = 101_376
AMPLE_SHARED = 166_912
_SCALAR_UNITS = Shape(64, 64, 16, 8, 2)  # float64, without matrix units
_SMALL_PRODUCTS = {4: Shape(128, 128, 32, 8, 3), 2: Shape(128, 64, 256, 8, 3)}  # by bytes per number
_LARGE_PRODUCTS = {4: Shape(128, 128, 32, 8, 3), 2: Shape(128, 128, 64, 8, 3)}
_SMALL_GRADIENTS = {4: Shape(128, 64, 64, 8, 2), 2: Shape(128, 128, 128, 8, 2)}
_LARGE_GRADIENTS = {4: Shape(128, 64, 32, 8, 3), 2: Shape(64, 64, 256, 8, 2)}


def holds_gradient(num_features: int, dtype: torch.dtype) -> bool:
    """Tell whether registers hold a tile's gradient sums; without matrix units the matrix library is always faster."""
    return dtype != torch.float64 and num_features <= (128 if dtype == torch.float32 else 256)


def product_shape(num_features: int, dtype: torch.dtype, shared: int) -> Shape:
    """Tiles of programs that only multiply owners and others: the statistic, and the weights of a slab."""
    if dtype == torch.float64:
        return _SCALAR_UNITS
    small = _SMALL_PRODUCTS[dtype.itemsize]
    if shared < AMPLE_SHARED:  # a tile of 256 features in bfloat16 would ask for 163,840 bytes
        small = small._replace(chunk=min(small.chunk, 128))
    return _fitted(small if num_features <= small.chunk else _LARGE_PRODUCTS[dtype.itemsize], num_features)


def gradient_shape(num_features: int, dtype: torch.dtype, shared: int) -> Shape:
    """Tiles of the gradient, which also holds one sum of D numbers per owner."""
    small = _SMALL_GRADIENTS[dtype.itemsize]
    shape = _fitted(small if num_features <= small.chunk else _LARGE_GRADIENTS[dtype.itemsize], num_features)
    return shape if shared >= AMPLE_SHARED else shape._replace(block_other=shape.block_other // 2)


def padded(num_features: int) -> int:
    """The next power of two, at least 16 as matrix units want."""
    return max(16, 1 << (num_features - 1).bit_length())


def _fitted(shape: Shape, num_features: int) -> Shape:
    """Return a shape whose chunks are no larger than the number of features."""
    return shape._replace(chunk=min(shape.chunk, padded(num_features)))


LOG2_E = 1.4426950408889634


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Dtype of products, sums and statistics for vectors of a dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def as_pairs(
    scores: PairScores, psi: PairFunction, dtype: torch.dtype, *, weighing: tuple[PerAnchor, PerAnchor] | None = None
) -> Pairs:
    """All pairs with the anchors as owners.

    Args:
        scores: the scores.
        psi: the elementwise function; scores are in units of ln 2 where it is the exponential.
        dtype: dtype of the vectors that are multiplied.
        weighing: statistic and weight of each anchor, for a gradient; None where the statistic itself is asked for.

    Returns:
        The pairs; the first direction reads along the rows, the second along the columns, also where anchors are keys.
    """
    terms, mask, unit = scores.terms, scores.mask, LOG2_E if psi.in_log_domain else 1.0
    wide = accumulator(dtype)

    def direction(own: Tensor | None, other: Tensor | None, index: int) -> Direction:
        """One reading, the anchors as owners: what is added to the scores, in the accumulator's dtype and unit."""
        own, other = (None if value is None else (value.to(wide) * unit).contiguous() for value in (own, other))
        weight = None
        if weighing is not None:
            statistic, weight = (part.both()[index].to(wide) for part in weighing)
            if psi.in_log_domain:
                # 0 for an anchor without keys; posinf as it is, so that an overflow shows.
                shift = torch.nan_to_num(statistic, nan=torch.nan, posinf=torch.inf, neginf=0.0)
                # v = u - h: what an owner adds to all its scores takes the statistic in.
                own = shift * -unit if own is None else own - shift * unit
            weight = weight.contiguous()
        return Direction(own, other, weight, None)

    owner = PairSide(_vectors(terms.anchors_ND, dtype), len(terms.anchors_ND), _contiguous(mask.anchor_labels_N))
    keys_MD = owner.vectors_CD if scores.is_self else _vectors(scores.keys_MD, dtype)
    other = PairSide(keys_MD, len(keys_MD), _contiguous(mask.key_labels_M))
    excluded_NE = None if mask.excluded_NE is None else mask.excluded_NE.to(torch.int32).contiguous()
    # e^u = 2^(u / ln 2): 1 / ln 2 joins the scale and costs no product per pair.
    factor = (terms.scale.to(owner.vectors_CD.device, wide) * unit).reshape(())
    bound = _bound(scores, owner.vectors_CD, other.vectors_CD, factor) if psi.in_log_domain else None
    rows = direction(terms.row_own_N, terms.row_other_M, 0)
    columns = None
    if scores.is_two_way:
        columns = flipped(direction(terms.column_own_M, terms.column_other_N, 1))
    elif scores.is_self:
        columns = flipped(rows)
    return Pairs(owner, other, factor, excluded_NE, rows, columns, bound)


def from_the_keys(pairs: Pairs) -> Pairs:
    """The same pairs with the keys as owners; directions stay what they are, excluded indices belong to the others."""
    first, second = flipped(pairs.first), None if pairs.second is None else flipped(pairs.second)
    return pairs._replace(owner=pairs.other, other=pairs.owner, first=first, second=second)


def flipped(direction: Direction) -> Direction:
    """A direction with owners and others exchanged."""
    by_owner_O, by_other_K, owner_weight_O, other_weight_K = direction
    return Direction(by_other_K, by_owner_O, other_weight_K, owner_weight_O)


def _bound(scores: PairScores, owner_ND: Tensor, other_MD: Tensor, factor: Tensor) -> Tensor | None:
    """Bound on the size of scores, on the device: nothing waits for it. None if something is added to products."""
    if any(bias is not None for bias in scores.terms.flat()[3:]) or not len(owner_ND) or not len(other_MD):
        return None
    if scores.is_unit:
        return factor.abs()
    sides = (owner_ND,) if other_MD is owner_ND else (owner_ND, other_MD)
    # Lengths have the accumulator's dtype: the square of 256 overflows float16.
    longest = [torch.linalg.vector_norm(side, dim=1, dtype=factor.dtype).amax() for side in sides]
    return (factor * longest[0] * longest[-1]).abs()


def _vectors(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    return vectors.detach().to(dtype).contiguous()


def _contiguous(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.contiguous()
