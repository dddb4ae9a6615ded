"""Device code: the statistic of each owner, the gradient of each owner, and the weights of a slab of pairs."""

# pyright: reportInvalidTypeForm=false
# ``tl`` is not typed, see triton_tiles.

# O owners of a tile, K others of a tile, D features

from counterpoint.kernels.triton.triton_tiles import (
    LARGEST_BOUND,
    counted,
    dot,
    jit,
    load_vectors,
    pair_weights,
    products,
    products_at_hand,
    read,
    tl,
    value,
)

LN_2 = tl.constexpr(0.6931471805599453)


@jit
def statistics(pairs, out, tiling: tl.constexpr):
    """Sum of psi or log-sum-exp per owner over a span of others; per other over the owners of a block if asked.

    Of a triangle, a block's owners meet each other and all that follow: among themselves they are owners twice.
    """
    first_owner = (out.first_block + tl.program_id(0)) * tiling.block_owner
    o_O = first_owner + tl.arange(0, tiling.block_owner)
    start = tl.program_id(1) * out.span
    end = tl.minimum(start + out.span, pairs.other.num)
    if tiling.is_triangle:
        tl.static_assert(tiling.block_owner % tiling.block_other == 0)  # tiles of all blocks and spans are the same
        start = tl.maximum(start, first_owner)
    # Loaded once for the whole span, if one chunk holds all features.
    own_OD = load_vectors(pairs.owner, o_O, 0, tiling.chunk, tiling)
    top_O = tl.full((tiling.block_owner,), float("-inf"), tiling.accumulator)
    sum_O = tl.zeros((tiling.block_owner,), tiling.accumulator)
    for first in range(start, end, tiling.block_other):
        k_K = first + tl.arange(0, tiling.block_other)
        if tiling.num_features <= tiling.chunk:
            product_OK = products_at_hand(own_OD, load_vectors(pairs.other, k_K, 0, tiling.chunk, tiling), tiling)
        else:
            product_OK = products(pairs, o_O, k_K, tiling)
        product_OK = counted(product_OK, pairs, o_O, k_K, tiling)
        top_O, sum_O, across_K = taken_in(product_OK, top_O, sum_O, pairs, (o_O, k_K), tiling)
        if pairs.second is not None:
            is_new_K = k_K < pairs.other.num
            if tiling.is_triangle:
                # Others of the own block have these owners among their own already.
                is_new_K = is_new_K & (k_K >= first_owner + tiling.block_owner)
            # A row per block instead of an atomic sum: rows are merged in a fixed order.
            place = tl.program_id(0).to(tl.int64) * pairs.other.num
            tl.store(out.per_other_BK + place + k_K, across_K, mask=is_new_K)
    # From units of ln 2, in which exp2 and log2 work, to natural logarithms.
    result_O = (top_O + tl.log2(sum_O)) * LN_2 if tiling.psi == "exp" else sum_O
    place = tl.program_id(1).to(tl.int64) * pairs.owner.num
    tl.store(out.per_owner_SO + place + o_O, result_O, mask=o_O < pairs.owner.num)


@jit
def taken_in(product_OK, top_O, sum_O, pairs, index_OK, tiling: tl.constexpr):
    """One more tile: the running statistic of each owner, and the statistic of each other over the tile's owners.

    Where all scores lie close together, their bound stands for the largest score so far, and one exponential serves
    both.
    """
    o_O, k_K = index_OK
    across_K = tl.zeros((tiling.block_other,), tiling.accumulator)
    if pairs.bound is None:
        top_O, sum_O = along(read(product_OK, pairs.first, pairs, o_O, k_K), top_O, sum_O, tiling)
        if pairs.second is not None:
            across_K = across(read(product_OK, pairs.second, pairs, o_O, k_K), tiling)
    else:
        bound = tl.load(pairs.bound)
        if bound < LARGEST_BOUND:
            exp_OK = tl.exp2(product_OK - bound)
            sum_O += tl.sum(exp_OK, 1)
            top_O = tl.zeros_like(top_O) + bound  # the bound in place of the largest score
            if pairs.second is not None:
                across_K = (bound + tl.log2(tl.sum(exp_OK, 0))) * LN_2
        else:
            top_O, sum_O = along(product_OK, top_O, sum_O, tiling)
            if pairs.second is not None:
                across_K = across(product_OK, tiling)
    return top_O, sum_O, across_K


@jit
def along(u_OK, top_O, sum_O, tiling: tl.constexpr):
    """Largest score so far and sum of exponentials relative to it, or sum of psi, with one more tile."""
    if tiling.psi == "exp":
        new_O = tl.maximum(top_O, tl.max(u_OK, 1))
        shift_O = tl.where(new_O == float("-inf"), 0.0, new_O)  # an owner without any other so far
        sum_O = sum_O * tl.exp2(top_O - shift_O) + tl.sum(tl.exp2(u_OK - shift_O[:, None]), 1)
        return new_O, sum_O
    else:
        return top_O, sum_O + tl.sum(value(u_OK, tiling), 1)


@jit
def across(u_OK, tiling: tl.constexpr):
    """Statistic of each other over the owners of one tile."""
    if tiling.psi == "exp":
        top_K = tl.max(u_OK, 0)
        shift_K = tl.where(top_K == float("-inf"), 0.0, top_K)
        return (shift_K + tl.log2(tl.sum(tl.exp2(u_OK - shift_K[None, :]), 0))) * LN_2
    else:
        return tl.sum(value(u_OK, tiling), 0)


@jit
def gradients(pairs, out, tiling: tl.constexpr):
    """Weighted sum of others per owner over a span of others, its product with the owner, and the sums of weights."""
    o_O = tl.program_id(0) * tiling.block_owner + tl.arange(0, tiling.block_owner)
    start = tl.program_id(1) * out.span
    own_OD = load_vectors(pairs.owner, o_O, 0, tiling.all_features, tiling)
    total_OD = tl.zeros((tiling.block_owner, tiling.all_features), tiling.accumulator)
    first_O = tl.zeros((tiling.block_owner,), tiling.accumulator)
    second_O = tl.zeros((tiling.block_owner,), tiling.accumulator)
    for first in range(start, tl.minimum(start + out.span, pairs.other.num), tiling.block_other):
        k_K = first + tl.arange(0, tiling.block_other)
        other_KD = load_vectors(pairs.other, k_K, 0, tiling.all_features, tiling)
        if tiling.num_features <= tiling.chunk:
            product_OK = products_at_hand(own_OD, other_KD, tiling)
        else:
            product_OK = products(pairs, o_O, k_K, tiling)
        product_OK = counted(product_OK, pairs, o_O, k_K, tiling)
        weight_OK, more_OK = pair_weights(product_OK, pairs, (o_O, k_K), tiling)
        if out.first_SO is not None:
            first_O += tl.sum(weight_OK, 1)
        if pairs.second is not None:
            if out.second_SO is not None:
                second_O += tl.sum(more_OK, 1)
            weight_OK += more_OK
        # Matrix units take two factors of one dtype; the total stays in the accumulator's.
        total_OD = dot(weight_OK.to(other_KD.dtype), other_KD, total_OD, tiling)
    is_owner_O = o_O < pairs.owner.num
    # From here on places in arrays that have a row of owners per span.
    o_O = tl.program_id(1).to(tl.int64) * pairs.owner.num + o_O
    d_D = tl.arange(0, tiling.all_features)
    is_inside_OD = is_owner_O[:, None] & (d_D < tiling.num_features)[None, :]
    tl.store(out.total_SOD + o_O[:, None] * tiling.num_features + d_D[None, :], total_OD, mask=is_inside_OD)
    # <o_i, sum_k w_ik k>: the owner's part of the slope in the scale.
    tl.store(out.products_SO + o_O, tl.sum(total_OD * own_OD.to(total_OD.dtype), 1), mask=is_owner_O)
    if out.first_SO is not None:
        tl.store(out.first_SO + o_O, first_O, mask=is_owner_O)
    if out.second_SO is not None:
        tl.store(out.second_SO + o_O, second_O, mask=is_owner_O)


@jit
def slab_weights(pairs, out, tiling: tl.constexpr):
    """Total weight of each pair of a slab, written out for matrix products, and sums of weights per tile."""
    o_O = tl.program_id(0) * tiling.block_owner + tl.arange(0, tiling.block_owner)
    k_K = tl.program_id(1) * tiling.block_other + tl.arange(0, tiling.block_other)
    product_OK = counted(products(pairs, o_O, k_K, tiling), pairs, o_O, k_K, tiling)
    weight_OK, more_OK = pair_weights(product_OK, pairs, (o_O, k_K), tiling)
    store_sum(out.first_TO, weight_OK, 1, (o_O, pairs.owner.num, tl.program_id(1)))
    store_sum(out.first_TK, weight_OK, 0, (k_K, pairs.other.num, tl.program_id(0)))
    if pairs.second is not None:
        store_sum(out.second_TO, more_OK, 1, (o_O, pairs.owner.num, tl.program_id(1)))
        store_sum(out.second_TK, more_OK, 0, (k_K, pairs.other.num, tl.program_id(0)))
        weight_OK += more_OK
    pointers_OK = out.weight_OK + o_O.to(tl.int64)[:, None] * pairs.other.num + k_K[None, :]
    is_inside_OK = (o_O < pairs.owner.num)[:, None] & (k_K < pairs.other.num)[None, :]
    tl.store(pointers_OK, weight_OK.to(out.weight_OK.dtype.element_ty), mask=is_inside_OK)


@jit
def store_sum(out_TC, weight_OK, axis: tl.constexpr, place):
    """Sum of a tile's weights along an axis, if it is asked for; ``place`` is indices, their bound, and the row."""
    if out_TC is not None:
        index_C, count, row = place
        tl.store(out_TC + row.to(tl.int64) * count + index_C, tl.sum(weight_OK, axis), mask=index_C < count)
