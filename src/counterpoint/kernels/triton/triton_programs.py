"""Device code: the statistic of each owner, the gradient of each owner, and the weights of a slab of pairs.

A pair that does not count scores minus infinity, where every psi here and its slope are taken to be 0. Two views are
brought to unit length before their pairs, with the positives' cosines, and the gradient back after them.
"""

# pyright: reportInvalidTypeForm=false

# O owners of a tile, K others of a tile, R rows of a block, D features

from counterpoint.kernels.triton.triton_language import jit, slope, tl, value

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
    total_OK = tl.full((tiling.block_owner, tiling.block_other), 0.0, tiling.accumulator)
    for first_feature in range(0, tiling.num_features, tiling.chunk):
        own_OD = load_vectors(pairs.owner, o_O, first_feature, tiling.chunk, tiling)
        other_KD = load_vectors(pairs.other, k_K, first_feature, tiling.chunk, tiling)
        total_OK = dot(own_OD, tl.trans(other_KD), total_OK, tiling)
    return total_OK


@jit
def products_at_hand(own_OD, other_KD, tiling: tl.constexpr):
    """Inner products of vectors whose features are all loaded."""
    zeros_OK = tl.full((tiling.block_owner, tiling.block_other), 0.0, tiling.accumulator)
    return dot(own_OD, tl.trans(other_KD), zeros_OK, tiling)


@jit
def places(first, size: tl.constexpr):
    """Indices of a tile's owners or others."""
    return first + tl.arange(0, size)


@jit
def counted(product_OK, pairs, place, near, tiling: tl.constexpr):
    """Products times the factor; minus infinity at pairs that do not count. Most tiles skip the test.

    ``place`` is the tile's first owner and first other, ``near`` what ``excluded_range`` says of the owners.
    """
    # The scale joins the sums, not the vectors: their rounding would be multiplied by 1 / temperature.
    u_OK = product_OK * tl.load(pairs.factor)
    if needs_mask(pairs, place, near, tiling):
        u_OK = tl.where(left_out(pairs, place, tiling), float("-inf"), u_OK)
    return u_OK


@jit
def excluded_range(pairs, first_owner, tiling: tl.constexpr):
    """Smallest and largest of the first, second, ... excluded index of a block of owners: an empty range if none."""
    lowest_E = tl.full((tiling.padded_excluded,), 0, tl.int32)
    highest_E = tl.full((tiling.padded_excluded,), -1, tl.int32)
    if tiling.num_excluded > 0 and tiling.is_excluded_by_owner:
        excluded_OE = excluded(pairs, places(first_owner, tiling.block_owner), pairs.owner.num, tiling)
        lowest_E = tl.min(tl.where(excluded_OE < 0, 2147483647, excluded_OE), 0)
        highest_E = tl.max(excluded_OE, 0)
    return lowest_E, highest_E


@jit
def excluded(pairs, index_C, count, tiling: tl.constexpr):
    """Excluded indices of some owners or others; -1 where there is none."""
    e_E = tl.arange(0, tiling.padded_excluded)
    is_given_CE = (index_C < count)[:, None] & (e_E < tiling.num_excluded)[None, :]
    pointers_CE = pairs.excluded_CE + index_C.to(tl.int64)[:, None] * tiling.num_excluded + e_E[None, :]
    return tl.load(pointers_CE, mask=is_given_CE, other=-1)


@jit
def needs_mask(pairs, place, near, tiling: tl.constexpr):
    """Tell whether some pair of the tile may not count."""
    first_owner, first_other = place
    is_on_edge = (first_owner + tiling.block_owner > pairs.owner.num) | (
        first_other + tiling.block_other > pairs.other.num
    )
    if pairs.owner.labels_C is not None:
        is_on_edge = is_on_edge | True  # a pair of labels may be out in any tile
    if tiling.num_excluded > 0:
        if tiling.is_excluded_by_owner:
            lowest_E, highest_E = near
            is_near_E = (lowest_E < first_other + tiling.block_other) & (highest_E >= first_other)
        else:
            excluded_KE = excluded(pairs, places(first_other, tiling.block_other), pairs.other.num, tiling)
            is_near_KE = (excluded_KE >= first_owner) & (excluded_KE < first_owner + tiling.block_owner)
            is_near_E = tl.max(is_near_KE.to(tl.int32), 0) > 0
        is_on_edge = is_on_edge | (tl.max(is_near_E.to(tl.int32), 0) > 0)
    return is_on_edge


@jit
def left_out(pairs, place, tiling: tl.constexpr):
    """Mark the pairs that do not count."""
    o_O, k_K = places(place[0], tiling.block_owner), places(place[1], tiling.block_other)
    is_out_OK = (o_O >= pairs.owner.num)[:, None] | (k_K >= pairs.other.num)[None, :]
    if pairs.owner.labels_C is not None:
        owner_O = tl.load(pairs.owner.labels_C + o_O, mask=o_O < pairs.owner.num, other=0)
        other_K = tl.load(pairs.other.labels_C + k_K, mask=k_K < pairs.other.num, other=0)
        is_same_OK = owner_O[:, None] == other_K[None, :]
        # Equal labels are out, or, where only those are kept, unequal ones.
        is_out_OK = is_out_OK | (is_same_OK != tiling.keeps_same_label)
    num_excluded: tl.constexpr = tiling.num_excluded  # triton 3.6 wants a constant by name
    for e in tl.static_range(num_excluded):
        if tiling.is_excluded_by_owner:
            pointers_O = pairs.excluded_CE + o_O.to(tl.int64) * tiling.num_excluded + e
            is_out_OK |= tl.load(pointers_O, mask=o_O < pairs.owner.num, other=-1)[:, None] == k_K[None, :]
        else:
            pointers_K = pairs.excluded_CE + k_K.to(tl.int64) * tiling.num_excluded + e
            is_out_OK |= tl.load(pointers_K, mask=k_K < pairs.other.num, other=-1)[None, :] == o_O[:, None]
    return is_out_OK


@jit
def read(u_OK, direction, pairs, place, tiling: tl.constexpr):
    """Scores of one direction."""
    o_O, k_K = places(place[0], tiling.block_owner), places(place[1], tiling.block_other)
    if direction.by_owner_O is not None:
        u_OK += tl.load(direction.by_owner_O + o_O, mask=o_O < pairs.owner.num, other=0.0)[:, None]
    if direction.by_other_K is not None:
        u_OK += tl.load(direction.by_other_K + k_K, mask=k_K < pairs.other.num, other=0.0)[None, :]
    return u_OK


@jit
def weights(u_OK, direction, pairs, place, tiling: tl.constexpr):
    """Weight g psi' of each pair in one direction."""
    o_O, k_K = places(place[0], tiling.block_owner), places(place[1], tiling.block_other)
    slope_OK = slope(read(u_OK, direction, pairs, place, tiling), tiling)
    if direction.owner_weight_O is not None:
        return slope_OK * tl.load(direction.owner_weight_O + o_O, mask=o_O < pairs.owner.num, other=0.0)[:, None]
    else:
        return slope_OK * tl.load(direction.other_weight_K + k_K, mask=k_K < pairs.other.num, other=0.0)[None, :]


@jit
def pair_weights(u_OK, pairs, place, bound, tiling: tl.constexpr):
    """Weight of each pair in the first and, if there is one, in the second direction.

    Scores that are known to lie close together, within ``bound``, share one exponential, which numbers per owner and
    per other turn into both weights.
    """
    second_OK = u_OK  # not looked at without a second direction
    if bound is not None:
        exp_OK = tl.exp2(u_OK - bound)  # 2^-inf = 0 leaves pairs out
        first_OK = exp_OK * bounded_factor(pairs.first, pairs, place, bound, tiling)
        if tiling.is_two_way:
            second_OK = exp_OK * bounded_factor(pairs.second, pairs, place, bound, tiling)
    else:
        first_OK = weights(u_OK, pairs.first, pairs, place, tiling)
        if tiling.is_two_way:
            second_OK = weights(u_OK, pairs.second, pairs, place, tiling)
    return first_OK, second_OK


@jit
def bounded_factor(direction, pairs, place, bound, tiling: tl.constexpr):
    """Weight times exp(B - r): what turns an exponential into the pair's weight; as a column, or as a row."""
    if direction.owner_weight_O is not None:
        o_O = places(place[0], tiling.block_owner)
        is_there_O = o_O < pairs.owner.num
        minus_O = tl.load(direction.by_owner_O + o_O, mask=is_there_O, other=0.0)
        return (tl.load(direction.owner_weight_O + o_O, mask=is_there_O, other=0.0) * tl.exp2(bound + minus_O))[:, None]
    else:
        k_K = places(place[1], tiling.block_other)
        is_there_K = k_K < pairs.other.num
        minus_K = tl.load(direction.by_other_K + k_K, mask=is_there_K, other=0.0)
        return (tl.load(direction.other_weight_K + k_K, mask=is_there_K, other=0.0) * tl.exp2(bound + minus_K))[None, :]


LN_2 = tl.constexpr(0.6931471805599453)


@jit
def statistics(pairs, out, tiling: tl.constexpr):
    """Sum of psi, or log-sum-exp, of each owner over a span of others, in the first direction.

    Where all scores are known to lie close together, their bound replaces the largest score.
    """
    if pairs.bound is None:
        top_O, sum_O = summed(pairs, out.span, None, tiling)
    else:
        bound = tl.load(pairs.bound)
        # Two loops: a branch inside one would be taken in each tile.
        if bound < LARGEST_BOUND:
            top_O, sum_O = summed(pairs, out.span, bound, tiling)
        else:
            top_O, sum_O = summed(pairs, out.span, None, tiling)
    o_O = places(tl.program_id(0) * tiling.block_owner, tiling.block_owner)
    # Convert units of ln 2, in which exp2 and log2 work, to natural logarithms.
    result_O = (top_O + tl.log2(sum_O)) * LN_2 if tiling.psi == "exp" else sum_O
    row = tl.program_id(1).to(tl.int64) * pairs.owner.num
    tl.store(out.per_owner_SO + row + o_O, result_O, mask=o_O < pairs.owner.num)


@jit
def summed(pairs, span, bound, tiling: tl.constexpr):
    """Largest score of each owner and its sum relative to that; relative to the bound, if there is one."""
    first_owner = tl.program_id(0) * tiling.block_owner
    o_O = places(first_owner, tiling.block_owner)
    start = tl.program_id(1) * span
    # Loaded once for the whole span, if one chunk holds all features.
    own_OD = load_vectors(pairs.owner, o_O, 0, tiling.chunk, tiling)
    near = excluded_range(pairs, first_owner, tiling)
    top_O = tl.full((tiling.block_owner,), float("-inf"), tiling.accumulator)
    sum_O = tl.full((tiling.block_owner,), 0.0, tiling.accumulator)
    for first in range(start, tl.minimum(start + span, pairs.other.num), tiling.block_other):
        k_K = places(first, tiling.block_other)
        if tiling.num_features <= tiling.chunk:
            product_OK = products_at_hand(own_OD, load_vectors(pairs.other, k_K, 0, tiling.chunk, tiling), tiling)
        else:
            product_OK = products(pairs, o_O, k_K, tiling)
        place = first_owner, first
        u_OK = read(counted(product_OK, pairs, place, near, tiling), pairs.first, pairs, place, tiling)
        if bound is not None:
            sum_O += tl.sum(tl.exp2(u_OK - bound), 1)
        elif tiling.psi == "exp":
            new_O = tl.maximum(top_O, tl.max(u_OK, 1))
            shift_O = tl.where(new_O == float("-inf"), 0.0, new_O)  # an owner without any other so far
            sum_O = sum_O * tl.exp2(top_O - shift_O) + tl.sum(tl.exp2(u_OK - shift_O[:, None]), 1)
            top_O = new_O
        else:
            sum_O += tl.sum(value(u_OK, tiling), 1)
    if bound is not None:
        top_O = tl.full((tiling.block_owner,), 0.0, tiling.accumulator) + bound
    return top_O, sum_O


@jit
def gradients(pairs, out, tiling: tl.constexpr):
    """Weighted sum of others per owner over a span of others, its product with the owner, and the sums of weights."""
    first_owner = tl.program_id(0) * tiling.block_owner
    own_OD = load_vectors(pairs.owner, places(first_owner, tiling.block_owner), 0, tiling.all_features, tiling)
    if pairs.bound is None:
        total_OD, first_O, second_O = weighted(pairs, own_OD, out, None, tiling)
    else:
        bound = tl.load(pairs.bound)
        if bound < LARGEST_BOUND:  # two loops, as in ``statistics``
            total_OD, first_O, second_O = weighted(pairs, own_OD, out, bound, tiling)
        else:
            total_OD, first_O, second_O = weighted(pairs, own_OD, out, None, tiling)
    o_O = places(first_owner, tiling.block_owner)
    is_owner_O = o_O < pairs.owner.num
    # Places from here on are those in arrays that have a row of owners per span.
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
def weighted(pairs, own_OD, out, bound, tiling: tl.constexpr):
    """Weighted sum of others, and sums of weights in both directions, of a block of owners."""
    first_owner = tl.program_id(0) * tiling.block_owner
    start = tl.program_id(1) * out.span
    near = excluded_range(pairs, first_owner, tiling)
    total_OD = tl.full((tiling.block_owner, tiling.all_features), 0.0, tiling.accumulator)
    first_O = tl.full((tiling.block_owner,), 0.0, tiling.accumulator)
    second_O = tl.full((tiling.block_owner,), 0.0, tiling.accumulator)
    for first in range(start, tl.minimum(start + out.span, pairs.other.num), tiling.block_other):
        k_K = places(first, tiling.block_other)
        other_KD = load_vectors(pairs.other, k_K, 0, tiling.all_features, tiling)
        if tiling.num_features <= tiling.chunk:
            product_OK = products_at_hand(own_OD, other_KD, tiling)
        else:
            product_OK = products(pairs, places(first_owner, tiling.block_owner), k_K, tiling)
        place = first_owner, first
        u_OK = counted(product_OK, pairs, place, near, tiling)
        weight_OK, more_OK = pair_weights(u_OK, pairs, place, bound, tiling)
        if out.first_SO is not None:
            first_O += tl.sum(weight_OK, 1)
        if tiling.is_two_way:
            if out.second_SO is not None:
                second_O += tl.sum(more_OK, 1)
            weight_OK += more_OK
        # Matrix units take two factors of one dtype; the total stays in the accumulator's.
        total_OD = dot(weight_OK.to(other_KD.dtype), other_KD, total_OD, tiling)
    return total_OD, first_O, second_O


@jit
def slab_weights(pairs, out, tiling: tl.constexpr):
    """Total weight of each pair of a slab, written out for matrix products, and sums of weights per tile."""
    place = tl.program_id(0) * tiling.block_owner, tl.program_id(1) * tiling.block_other
    o_O, k_K = places(place[0], tiling.block_owner), places(place[1], tiling.block_other)
    near = excluded_range(pairs, place[0], tiling)
    u_OK = counted(products(pairs, o_O, k_K, tiling), pairs, place, near, tiling)
    if pairs.bound is None:
        weight_OK, more_OK = pair_weights(u_OK, pairs, place, None, tiling)
    else:
        bound = tl.load(pairs.bound)
        if bound < LARGEST_BOUND:
            weight_OK, more_OK = pair_weights(u_OK, pairs, place, bound, tiling)
        else:
            weight_OK, more_OK = pair_weights(u_OK, pairs, place, None, tiling)
    store_sum(out.first_TO, weight_OK, 1, (o_O, pairs.owner.num, tl.program_id(1)))
    store_sum(out.first_TK, weight_OK, 0, (k_K, pairs.other.num, tl.program_id(0)))
    if tiling.is_two_way:
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


@jit
def unit_pairs(views, out, num_pairs, shortest, longest, tiling: tl.constexpr):
    """Rows at unit length, and the cosine of each pair: NaN where a length is not an ordinary one."""
    i_R, place_RD, is_inside_RD = row_places(num_pairs, tiling)
    first_RD, first_R = loaded(views.first_ND, place_RD, is_inside_RD)
    second_RD, second_R = loaded(views.second_ND, place_RD, is_inside_RD)
    # NaN fails every comparison.
    is_ordinary_R = (first_R > shortest) & (first_R < longest) & (second_R > shortest) & (second_R < longest)
    cosine_R = tl.where(is_ordinary_R, tl.sum(first_RD * second_RD, 1), float("nan"))
    tl.store(out.cosine_N + i_R, cosine_R, mask=i_R < num_pairs)
    below_RD = place_RD + num_pairs.to(tl.int64) * tiling.num_features
    dtype = out.unit_VD.dtype.element_ty
    tl.store(out.unit_VD + place_RD, first_RD.to(dtype), mask=is_inside_RD)
    tl.store(out.unit_VD + below_RD, second_RD.to(dtype), mask=is_inside_RD)


@jit
def pull_pairs(views, sums, out, num_pairs, factor, tiling: tl.constexpr):
    """Gradient for each row from the weighted sum of its negatives and the slopes of both anchors."""
    i_R, place_RD, is_inside_RD = row_places(num_pairs, tiling)
    below_RD = place_RD + num_pairs.to(tl.int64) * tiling.num_features
    first_RD, first_R = loaded(views.first_ND, place_RD, is_inside_RD)
    second_RD, second_R = loaded(views.second_ND, place_RD, is_inside_RD)
    # The two views of a sample attract each other as much as both anchors ask for.
    slope_R = tl.load(sums.slope_V + i_R, mask=i_R < num_pairs, other=0.0)
    slope_R += tl.load(sums.slope_V + num_pairs + i_R, mask=i_R < num_pairs, other=0.0)
    repelled_RD = tl.load(sums.total_VD + place_RD, mask=is_inside_RD, other=0.0)
    pulled(out.first_ND, repelled_RD - slope_R[:, None] * second_RD, first_RD, factor / first_R, place_RD, is_inside_RD)
    repelled_RD = tl.load(sums.total_VD + below_RD, mask=is_inside_RD, other=0.0)
    pulled(
        out.second_ND, repelled_RD - slope_R[:, None] * first_RD, second_RD, factor / second_R, place_RD, is_inside_RD
    )


@jit
def row_places(num_pairs, tiling: tl.constexpr):
    """Pairs of a block, and where their rows are."""
    i_R = tl.program_id(0) * tiling.block_rows + tl.arange(0, tiling.block_rows)
    d_D = tl.arange(0, tiling.all_features)
    place_RD = i_R.to(tl.int64)[:, None] * tiling.num_features + d_D[None, :]
    return i_R, place_RD, (i_R < num_pairs)[:, None] & (d_D < tiling.num_features)[None, :]


@jit
def loaded(rows_ND, place_RD, is_inside_RD):
    """Rows in float32 at unit length, and their lengths."""
    row_RD = tl.load(rows_ND + place_RD, mask=is_inside_RD, other=0.0).to(tl.float32)
    length_R = tl.sqrt(tl.sum(row_RD * row_RD, 1))
    return row_RD / length_R[:, None], length_R


@jit
def pulled(out_ND, gradient_RD, unit_RD, factor_R, place_RD, is_inside_RD):
    """Write a unit row's gradient as that of the row itself: without its radial part, over the length."""
    gradient_RD -= tl.sum(gradient_RD * unit_RD, 1)[:, None] * unit_RD
    tl.store(out_ND + place_RD, (gradient_RD * factor_R[:, None]).to(out_ND.dtype.element_ty), mask=is_inside_RD)
