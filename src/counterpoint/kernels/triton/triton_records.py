"""What a fused program is given, and the size of its tiles. Every field is a pointer, a number or a constant.

A program owns some vectors and runs over all others; the owners are the anchors in one call and the keys in another.
"""

# N anchors, M keys, D features, E excluded keys per anchor, O owners, K others

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Side(NamedTuple):
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

    owner: Side
    other: Side
    factor: Tensor  # shape (): scale, over ln 2 where psi is an exponential
    excluded_CE: Tensor | None  # int32; one row per owner or per other, see ``Tiling``
    first: Direction
    second: Direction | None
    bound: Tensor | None = None  # shape (): of all scores, in units of ln 2; None where it is not known


class StatisticOut(NamedTuple):
    """Where ``statistics`` writes: one row per span of others, and one per block of owners."""

    per_owner_SO: Tensor
    per_other_BK: Tensor | None  # given with a second direction; filled, as a triangle leaves places out
    span: int
    first_block: int


class GradientOut(NamedTuple):
    """Where ``gradients`` writes: one row per span of others. Sums of weights are None where no bias needs them."""

    total_SOD: Tensor
    products_SO: Tensor
    first_SO: Tensor | None
    second_SO: Tensor | None
    span: int


class SlabOut(NamedTuple):
    """Where ``slab_weights`` writes: weights, and their sums per tile along and across each direction."""

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
    is_triangle: bool  # owners are others: a pair is computed once, on or above the diagonal


class Shape(NamedTuple):
    """Size of a program's tiles, and how many warps and tiles in flight it has."""

    block_owner: int
    block_other: int
    chunk: int  # features that are multiplied at a time
    num_warps: int
    num_stages: int


# Shared memory that a block may have, in bytes: compute capability 8.6, 8.9 and 12.0 have the least, 8.0 has enough for
# any of the tiles. These are chosen so that nothing spills on 9.0; tests compile them for the others.
LEAST_SHARED = 101_376
AMPLE_SHARED = 166_912
_SCALAR_UNITS = {torch.float32: Shape(128, 64, 16, 8, 2), torch.float64: Shape(64, 64, 16, 8, 2)}
_SMALL_PRODUCTS = {4: Shape(128, 64, 64, 8, 2), 2: Shape(128, 128, 256, 8, 2)}  # by bytes per number
_LARGE_PRODUCTS = {4: Shape(128, 64, 32, 8, 3), 2: Shape(128, 128, 64, 8, 3)}
_SMALL_GRADIENTS = {4: Shape(128, 32, 64, 8, 2), 2: Shape(128, 64, 128, 8, 3)}
_LARGE_GRADIENTS = {4: Shape(64, 64, 32, 8, 2), 2: Shape(64, 64, 256, 8, 2)}


def holds_gradient(num_features: int, dtype: torch.dtype, precision: str) -> bool:
    """Registers hold a tile's gradient sums; without matrix units, the matrix library is faster at any size."""
    if dtype == torch.float64 or (dtype == torch.float32 and precision == "ieee"):
        return False
    return num_features <= _LARGE_GRADIENTS[dtype.itemsize].chunk * (4 if dtype == torch.float32 else 1)


def product_shape(num_features: int, dtype: torch.dtype, precision: str, shared: int) -> Shape:
    """Tiles of programs that only multiply owners and others: the statistic, and the weights of a slab."""
    if dtype == torch.float64 or (dtype == torch.float32 and precision == "ieee"):
        return _SCALAR_UNITS[dtype]
    small = _SMALL_PRODUCTS[dtype.itemsize]
    if shared < AMPLE_SHARED:
        small = small._replace(chunk=min(small.chunk, 128))
    return _fitted(small if num_features <= small.chunk else _LARGE_PRODUCTS[dtype.itemsize], num_features)


def gradient_shape(num_features: int, dtype: torch.dtype) -> Shape:
    """Tiles of the gradient, which also holds one sum of D numbers per owner."""
    small = _SMALL_GRADIENTS[dtype.itemsize]
    return _fitted(small if num_features <= small.chunk else _LARGE_GRADIENTS[dtype.itemsize], num_features)


def padded(num_features: int) -> int:
    """The next power of two, at least 16 as matrix units want."""
    return max(16, 1 << (num_features - 1).bit_length())


def _fitted(shape: Shape, num_features: int) -> Shape:
    """Chunks no larger than what there is."""
    return shape._replace(chunk=min(shape.chunk, padded(num_features)))
