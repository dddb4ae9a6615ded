"""The whole score matrix at once, in differentiable torch operations: any derivative in any mode, memory n x m.

Only ``reduce`` is written down; gradient and tangents are what autograd makes of it.
"""

# N anchors, M keys, D features

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairMask, PairScores, PerAnchor


def reduce(scores: PairScores, psi: PairFunction) -> PerAnchor:
    """See ``contract.PairReduction.reduce``; differentiable."""
    terms = scores.terms
    # The scale multiplies n x d numbers here; on the products it would take another pass over n x m.
    product_NM = (terms.scale * terms.anchors_ND) @ scores.keys_MD.mT
    rows_N = _reading(_with_bias(product_NM, terms.row_own_N, terms.row_other_M), scores.mask, psi, dim=1)
    if not scores.is_two_way:
        return PerAnchor(rows_N)
    columns_NM = _with_bias(product_NM, terms.column_other_N, terms.column_own_M)
    return PerAnchor(rows_N, _reading(columns_NM, scores.mask, psi, dim=0))


def row_scores(scores: PairScores) -> Tensor:
    """All u_ij as read along the rows, shape (n, m), with minus infinity at the pairs that are left out."""
    terms = scores.terms
    product_NM = (terms.scale * terms.anchors_ND) @ scores.keys_MD.mT
    return without(scores.mask, _with_bias(product_NM, terms.row_own_N, terms.row_other_M), float("-inf"))


def without(mask: PairMask, values_NM: Tensor, value: float) -> Tensor:
    """The values with another one at the pairs that do not count; differentiable, not in place."""
    # The usual case (own vector, own positive): without -1 among them, indices need no boolean matrix.
    if mask.excluded_NE is not None and mask.anchor_labels_N is None and not mask.is_ragged:
        return values_NM.scatter(1, mask.excluded_NE, value)
    if mask.excluded_NE is not None:
        num_keys = values_NM.shape[1]
        is_out_NM = torch.zeros(len(values_NM), num_keys + 1, dtype=torch.bool, device=values_NM.device)
        column_NE = torch.where(mask.excluded_NE < 0, num_keys, mask.excluded_NE)  # "none" goes to a spare column
        values_NM = values_NM.masked_fill(is_out_NM.scatter(1, column_NE, True)[:, :num_keys], value)
    if mask.anchor_labels_N is not None and mask.key_labels_M is not None:
        is_same_NM = mask.anchor_labels_N[:, None] == mask.key_labels_M[None, :]
        is_out_NM = is_same_NM.logical_not() if mask.keeps_same_label else is_same_NM
        values_NM = values_NM.masked_fill(is_out_NM, value)
    return values_NM


def _reading(u_NM: Tensor, mask: PairMask, psi: PairFunction, *, dim: int) -> Tensor:
    """Statistic along the rows (1) or the columns (0)."""
    if psi.in_log_domain:
        return torch.logsumexp(without(mask, u_NM, float("-inf")), dim=dim)
    # A pair that does not count must not reach psi at all: 0 times an infinite slope is NaN.
    # The second filling is for psi with psi(0) other than 0, such as softplus, log 2.
    return without(mask, psi.value(without(mask, u_NM, 0.0)), 0.0).sum(dim)


def _with_bias(product_NM: Tensor, for_rows_N: Tensor | None, for_columns_M: Tensor | None) -> Tensor:
    if for_rows_N is not None:
        product_NM = product_NM + for_rows_N[:, None]
    return product_NM if for_columns_M is None else product_NM + for_columns_M[None, :]
