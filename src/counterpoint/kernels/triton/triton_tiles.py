"""Device code: the scores of one tile, and psi and its slope there.

The only import of triton, which is optional: modules that need it are imported when a CUDA kernel first runs. A pair
that does not count scores minus infinity, where every psi here and its slope are taken to be 0.
"""

# pyright: reportInvalidTypeForm=false

# O owners of a tile, K others of a tile, D features

from typing import Any

import triton
from triton import knobs

# Device code is a language of its own that looks like Python: a type checker has nothing to say about it.
jit: Any = triton.jit
tl: Any = triton.language


def is_interpreted() -> bool:
    """Programs run as NumPy on the CPU (``TRITON_INTERPRET=1`` when triton was imported)."""
    return bool(knobs.runtime.interpret)


LOG2_E = tl.constexpr(1.4426950408889634)
LARGEST_BOUND = tl.constexpr(57.0)  # in units of ln 2: e^80 = 2^115 is a number of float32


@jit
def dot(left, right, total, tiling: tl.constexpr):
    """Total plus a matrix product, in the accumulator's dtype."""
    if tiling.is_interpreted:  # which takes the bits of a bfloat16 for an integer
        left, right = left.to(tiling.accumulator), right.to(tiling.accumulator)
    return tl.dot(left, right, total, input_precision=tiling.precision, out_dtype=tiling.accumulator)


@jit
def load_vectors(side, index_C, first_feature, size: tl.constexpr, tiling: tl.constexpr):
    """Some features of vectors of one side; zeros outside."""
    d_D = first_feature + tl.arange(0, size)
    # Offsets in 64 bits: 4 million vectors of 512 features pass 2^31.
    pointers_CD = side.vectors_CD + index_C.to(tl.int64)[:, None] * tiling.num_features + d_D[None, :]
    is_inside_CD = (index_C < side.num)[:, None]
    if tiling.num_features % size != 0:
        is_inside_CD = is_inside_CD & (d_D < tiling.num_features)[None, :]
    return tl.load(pointers_CD, mask=is_inside_CD, other=0.0)


@jit
def products(pairs, o_O, k_K, tiling: tl.constexpr):
    """Inner products, a chunk of features at a time."""
    total_OK = tl.zeros((tiling.block_owner, tiling.block_other), tiling.accumulator)
    for first_feature in range(0, tiling.num_features, tiling.chunk):
        own_OD = load_vectors(pairs.owner, o_O, first_feature, tiling.chunk, tiling)
        other_KD = load_vectors(pairs.other, k_K, first_feature, tiling.chunk, tiling)
        total_OK = dot(own_OD, tl.trans(other_KD), total_OK, tiling)
    return total_OK


@jit
def products_at_hand(own_OD, other_KD, tiling: tl.constexpr):
    """Inner products of vectors whose features are all loaded."""
    zeros_OK = tl.zeros((tiling.block_owner, tiling.block_other), tiling.accumulator)
    return dot(own_OD, tl.trans(other_KD), zeros_OK, tiling)


@jit
def counted(product_OK, pairs, o_O, k_K, tiling: tl.constexpr):
    """Products times the factor; minus infinity at pairs that do not count. Most tiles have none and skip the test."""
    # The scale joins the sums, not the vectors: their rounding would be multiplied by 1 / temperature.
    u_OK = product_OK * tl.load(pairs.factor)
    if needs_mask(pairs, o_O, k_K, tiling):
        u_OK = tl.where(left_out(pairs, o_O, k_K, tiling), float("-inf"), u_OK)
    return u_OK


@jit
def needs_mask(pairs, o_O, k_K, tiling: tl.constexpr):
    """Some pair of the tile may not count."""
    is_on_edge = (tl.max(o_O, 0) >= pairs.owner.num) | (tl.max(k_K, 0) >= pairs.other.num)
    if pairs.owner.labels_C is not None:
        is_on_edge = is_on_edge | True  # a pair of labels may be out in any tile
    if tiling.num_excluded > 0:
        e_E = tl.arange(0, tiling.padded_excluded)
        if tiling.is_excluded_by_owner:
            index_C, count, against_C = o_O, pairs.owner.num, k_K
        else:
            index_C, count, against_C = k_K, pairs.other.num, o_O
        is_given_CE = (index_C < count)[:, None] & (e_E < tiling.num_excluded)[None, :]
        pointers_CE = pairs.excluded_CE + index_C.to(tl.int64)[:, None] * tiling.num_excluded + e_E[None, :]
        excluded_CE = tl.load(pointers_CE, mask=is_given_CE, other=-1)
        # Some excluded index lies between the tile's first and last.
        is_near_CE = (excluded_CE >= tl.min(against_C, 0)) & (excluded_CE <= tl.max(against_C, 0))
        is_on_edge = is_on_edge | (tl.max(tl.max(is_near_CE.to(tl.int32), 1), 0) > 0)
    return is_on_edge


@jit
def left_out(pairs, o_O, k_K, tiling: tl.constexpr):
    """True where a pair does not count."""
    is_out_OK = (o_O >= pairs.owner.num)[:, None] | (k_K >= pairs.other.num)[None, :]
    if pairs.owner.labels_C is not None:
        owner_O = tl.load(pairs.owner.labels_C + o_O, mask=o_O < pairs.owner.num, other=0)
        other_K = tl.load(pairs.other.labels_C + k_K, mask=k_K < pairs.other.num, other=0)
        is_same_OK = owner_O[:, None] == other_K[None, :]
        # Equal labels are out, or, where only those are kept, unequal ones.
        is_out_OK = is_out_OK | (is_same_OK != tiling.keeps_same_label)
    for e in tl.static_range(tiling.num_excluded):
        if tiling.is_excluded_by_owner:
            pointers_O = pairs.excluded_CE + o_O.to(tl.int64) * tiling.num_excluded + e
            is_out_OK |= tl.load(pointers_O, mask=o_O < pairs.owner.num, other=-1)[:, None] == k_K[None, :]
        else:
            pointers_K = pairs.excluded_CE + k_K.to(tl.int64) * tiling.num_excluded + e
            is_out_OK |= tl.load(pointers_K, mask=k_K < pairs.other.num, other=-1)[None, :] == o_O[:, None]
    return is_out_OK


@jit
def read(u_OK, direction, pairs, o_O, k_K):
    """Scores of one direction."""
    if direction.by_owner_O is not None:
        u_OK += tl.load(direction.by_owner_O + o_O, mask=o_O < pairs.owner.num, other=0.0)[:, None]
    if direction.by_other_K is not None:
        u_OK += tl.load(direction.by_other_K + k_K, mask=k_K < pairs.other.num, other=0.0)[None, :]
    return u_OK


@jit
def weights(u_OK, direction, pairs, index_OK, tiling: tl.constexpr):
    """Weight g psi' of each pair in one direction; ``index_OK`` holds the indices of owners and of others."""
    o_O, k_K = index_OK
    slope_OK = slope(read(u_OK, direction, pairs, o_O, k_K), tiling)
    if direction.owner_weight_O is not None:
        return slope_OK * tl.load(direction.owner_weight_O + o_O, mask=o_O < pairs.owner.num, other=0.0)[:, None]
    else:
        return slope_OK * tl.load(direction.other_weight_K + k_K, mask=k_K < pairs.other.num, other=0.0)[None, :]


@jit
def pair_weights(product_OK, pairs, index_OK, tiling: tl.constexpr):
    """Weight of each pair in the first and, if there is one, in the second direction.

    Scores that are known to lie close together share one exponential, which numbers per owner and per other turn into
    both weights.
    """
    o_O, k_K = index_OK
    # Both names have to exist before a branch that is decided on the device.
    first_OK = product_OK
    second_OK = product_OK
    if pairs.bound is None:
        first_OK = weights(product_OK, pairs.first, pairs, index_OK, tiling)
        if pairs.second is not None:
            second_OK = weights(product_OK, pairs.second, pairs, index_OK, tiling)
    else:
        bound = tl.load(pairs.bound)
        if bound < LARGEST_BOUND:
            # One exponential for both directions; 2^-inf = 0 leaves pairs out.
            exp_OK = tl.exp2(product_OK - bound)
            first_OK = exp_OK * bounded_factor(pairs.first, pairs, o_O, k_K, bound)
            if pairs.second is not None:
                second_OK = exp_OK * bounded_factor(pairs.second, pairs, o_O, k_K, bound)
        else:
            first_OK = weights(product_OK, pairs.first, pairs, index_OK, tiling)
            if pairs.second is not None:
                second_OK = weights(product_OK, pairs.second, pairs, index_OK, tiling)
    return first_OK, second_OK


@jit
def bounded_factor(direction, pairs, o_O, k_K, bound):
    """Weight times exp(B - r): what turns an exponential into the pair's weight; as a column, or as a row."""
    if direction.owner_weight_O is not None:
        is_there_O = o_O < pairs.owner.num
        minus_O = tl.load(direction.by_owner_O + o_O, mask=is_there_O, other=0.0)
        return (tl.load(direction.owner_weight_O + o_O, mask=is_there_O, other=0.0) * tl.exp2(bound + minus_O))[:, None]
    else:
        is_there_K = k_K < pairs.other.num
        minus_K = tl.load(direction.by_other_K + k_K, mask=is_there_K, other=0.0)
        return (tl.load(direction.other_weight_K + k_K, mask=is_there_K, other=0.0) * tl.exp2(bound + minus_K))[None, :]


@jit
def value(u, tiling: tl.constexpr):
    """Psi, for those that are summed."""
    if tiling.psi == "softplus":
        # No exponential of a positive number, hence no overflow.
        return tl.maximum(u, 0.0) + log1p(tl.exp(-tl.abs(u)), tiling)
    elif tiling.psi == "sigmoid":
        return sigmoid(u)
    elif tiling.psi == "hinge":
        return tl.maximum(u, 0.0)
    elif tiling.psi == "square":
        return tl.where(u == float("-inf"), 0.0, u * u)  # the square of what does not count would be infinite
    else:
        tl.static_assert(tiling.psi == "identity")
        return tl.where(u == float("-inf"), 0.0, u)


@jit
def slope(u, tiling: tl.constexpr):
    """Derivative of psi."""
    if tiling.psi == "exp":
        return tl.exp2(u)
    elif tiling.psi == "softplus":
        return sigmoid(u)
    elif tiling.psi == "sigmoid":
        # The slope is even in u: of -|u|, so that nothing overflows.
        tail = tl.exp(-tl.abs(u))
        return tail / ((1.0 + tail) * (1.0 + tail))
    elif tiling.psi == "hinge":
        return tl.where(u > 0.0, 1.0, 0.0).to(u.dtype)
    elif tiling.psi == "square":
        return tl.where(u == float("-inf"), 0.0, 2.0 * u)
    else:
        tl.static_assert(tiling.psi == "identity")
        return tl.where(u == float("-inf"), 0.0, 1.0).to(u.dtype)


@jit
def sigmoid(u):
    """Logistic function, without overflow and to full relative precision in either tail."""
    tail = tl.exp(-tl.abs(u))
    return tl.where(u >= 0.0, 1.0, tail) / (1.0 + tail)


@jit
def log1p(x, tiling: tl.constexpr):
    r"""Logarithm of 1 + x for x in [0, 1], :math:`2 \operatorname{artanh}(z)` of z = x / (2 + x), to full precision."""
    # 2 (z + z^3 / 3 + z^5 / 5 + ...) by Horner's rule, the last term first; z^2 <= 1/9.
    z = x / (2.0 + x)
    num_terms: tl.constexpr = 17 if tiling.accumulator == tl.float64 else 8  # z is at most 1/3
    series = tl.zeros(x.shape, x.dtype)
    for index in tl.static_range(num_terms):
        series = series * (z * z) + 1.0 / (2 * (num_terms - index) - 1)
    return 2.0 * z * series
