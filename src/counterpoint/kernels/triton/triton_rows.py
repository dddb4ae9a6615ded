"""Device code of two views before and after their pairs: rows to unit length with the positives' cosines, and back."""

# pyright: reportInvalidTypeForm=false

# R rows of a block, D features

from counterpoint.kernels.triton.triton_language import jit, tl


@jit
def unit_pairs(views, out, num_pairs, shortest, longest, tiling: tl.constexpr):
    """Rows at unit length, and the cosine of each pair: NaN where a length is not an ordinary one."""
    i_R, place_RD, is_inside_RD = places(num_pairs, tiling)
    first_RD, first_R = loaded(views.first_ND, place_RD, is_inside_RD)
    second_RD, second_R = loaded(views.second_ND, place_RD, is_inside_RD)
    first_RD /= first_R[:, None]
    second_RD /= second_R[:, None]
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
    i_R, place_RD, is_inside_RD = places(num_pairs, tiling)
    below_RD = place_RD + num_pairs.to(tl.int64) * tiling.num_features
    first_RD, first_R = loaded(views.first_ND, place_RD, is_inside_RD)
    second_RD, second_R = loaded(views.second_ND, place_RD, is_inside_RD)
    first_RD /= first_R[:, None]
    second_RD /= second_R[:, None]
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
def places(num_pairs, tiling: tl.constexpr):
    """Pairs of a block, and where their rows are."""
    i_R = tl.program_id(0) * tiling.block_rows + tl.arange(0, tiling.block_rows)
    d_D = tl.arange(0, tiling.all_features)
    place_RD = i_R.to(tl.int64)[:, None] * tiling.num_features + d_D[None, :]
    return i_R, place_RD, (i_R < num_pairs)[:, None] & (d_D < tiling.num_features)[None, :]


@jit
def loaded(rows_ND, place_RD, is_inside_RD):
    """Rows in float32 and their lengths."""
    row_RD = tl.load(rows_ND + place_RD, mask=is_inside_RD, other=0.0).to(tl.float32)
    return row_RD, tl.sqrt(tl.sum(row_RD * row_RD, 1))


@jit
def pulled(out_ND, gradient_RD, unit_RD, factor_R, place_RD, is_inside_RD):
    """Write a unit row's gradient as that of the row itself: without its radial part, over the length."""
    gradient_RD -= tl.sum(gradient_RD * unit_RD, 1)[:, None] * unit_RD
    tl.store(out_ND + place_RD, (gradient_RD * factor_R[:, None]).to(out_ND.dtype.element_ty), mask=is_inside_RD)
