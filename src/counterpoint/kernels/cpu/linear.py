r"""Linear psi: sums over keys are inner products with sums of keys, in time linear in the number of vectors.

.. math:: \sum_j u_{ij} = s \langle a_i, \textstyle\sum_j k_j \rangle + m_i c_i + \sum_j b_j

over the m_i keys that count. Differentiable in any mode and to any order, like ``dense``.
"""

# N anchors, M keys, D features, E excluded keys per anchor, C classes

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairMask, PairScores, PerAnchor
from counterpoint.kernels.dense import gradient, gradient_tangent, reduce_tangent

__all__ = ["gradient", "gradient_tangent", "reduce", "reduce_tangent"]


def reduce(scores: PairScores, psi: PairFunction) -> PerAnchor:
    """See ``contract.PairKernel.reduce``; psi is the identity."""
    terms, mask, keys_MD = scores.terms, scores.mask, scores.keys_MD
    rows = _Side(terms.anchors_ND, terms.row_own_N, terms.row_other_M, mask.anchor_labels_N)
    columns = _Side(keys_MD, terms.column_own_M, terms.column_other_N, mask.key_labels_M)
    rows_N = _row_sums(rows, keys_MD, columns.labels_N, terms.scale, mask)
    if not scores.is_two_way:
        return PerAnchor(rows_N)
    # Labels need not be exchanged: they come with the sides.
    flipped = PairMask(_transposed(mask.excluded_NE, len(keys_MD)), keeps_same_label=mask.keeps_same_label)
    return PerAnchor(rows_N, _row_sums(columns, terms.anchors_ND, rows.labels_N, terms.scale, flipped))


@dataclass(frozen=True)
class _Side:
    """The anchors of one reading."""

    anchors_ND: Tensor
    own_N: Tensor | None
    other_M: Tensor | None
    labels_N: Tensor | None


def _row_sums(side: _Side, keys_MD: Tensor, key_labels_M: Tensor | None, scale: Tensor, mask: PairMask) -> Tensor:
    """Sum of u_ij over the keys that count."""
    other_M = keys_MD.new_zeros(len(keys_MD)) if side.other_M is None else side.other_M
    # Columns: the key, what it adds to a score, and 1 to count it.
    augmented_MF = torch.cat([keys_MD, other_M[:, None], torch.ones_like(other_M)[:, None]], dim=1)
    sums_NF = _kept_sums(augmented_MF, side.labels_N, key_labels_M, mask)
    # Equation above; the last column of the sums is m_i.
    result_N = scale * (side.anchors_ND * sums_NF[:, :-2]).sum(1) + sums_NF[:, -2]
    return result_N if side.own_N is None else result_N + side.own_N * sums_NF[:, -1]


def _kept_sums(values_MF: Tensor, labels_N: Tensor | None, key_labels_M: Tensor | None, mask: PairMask) -> Tensor:
    """Sum of the values of the keys that count, per anchor."""
    sums_NF = values_MF.sum(0, keepdim=True)
    if labels_N is not None and key_labels_M is not None:
        # Numbered over both sides together: an anchor's label that no key has belongs to an empty class, of sum 0.
        classes_C, place_M = torch.unique(torch.cat([key_labels_M, labels_N]), return_inverse=True)
        by_class_CF = values_MF.new_zeros(len(classes_C), values_MF.shape[1])
        by_class_CF = by_class_CF.index_add(0, place_M[: len(values_MF)], values_MF)
        own_NF = by_class_CF[place_M[len(values_MF) :]]
        sums_NF = own_NF if mask.keeps_same_label else sums_NF - own_NF
    if mask.excluded_NE is None:
        return sums_NF
    is_kept_NE = _is_otherwise_kept(mask, labels_N, key_labels_M)
    # -1 reads key 0, which is then multiplied by zero.
    excluded_NEF = values_MF[mask.excluded_NE.clamp(min=0)] * is_kept_NE[..., None]
    return sums_NF - excluded_NEF.sum(1)


def _is_otherwise_kept(mask: PairMask, labels_N: Tensor | None, key_labels_M: Tensor | None) -> Tensor:
    """Which exclusions take away a key that labels have not taken away already, (n, e)."""
    assert mask.excluded_NE is not None
    is_kept_NE = mask.excluded_NE >= 0
    if labels_N is None or key_labels_M is None:
        return is_kept_NE
    is_same_NE = key_labels_M[mask.excluded_NE.clamp(min=0)] == labels_N[:, None]
    return is_kept_NE & (is_same_NE if mask.keeps_same_label else ~is_same_NE)


def _transposed(excluded_NE: Tensor | None, num_keys: int) -> Tensor | None:
    """The same pairs, listed by key instead of by anchor; -1 where a key has fewer than the most."""
    if excluded_NE is None:
        return None
    # P pairs that are left out, sorted by key; stable, so that a key's anchors stay in order.
    anchor_P, slot_P = (excluded_NE >= 0).nonzero(as_tuple=True)
    key_P = excluded_NE[anchor_P, slot_P]
    order_P = torch.argsort(key_P, stable=True)
    key_P, anchor_P = key_P[order_P], anchor_P[order_P]
    counts_M = torch.bincount(key_P, minlength=num_keys)
    # Place within a key's list: place among all pairs, less where that list begins.
    place_P = torch.arange(len(key_P), device=key_P.device) - (counts_M.cumsum(0) - counts_M)[key_P]
    listed_ME = excluded_NE.new_full((num_keys, int(counts_M.max()) if len(key_P) else 0), -1)
    listed_ME[key_P, place_P] = anchor_P
    return listed_ME
