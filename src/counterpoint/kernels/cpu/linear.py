r"""Linear psi: sums over keys are inner products with sums of keys, in time linear in the number of vectors.

.. math:: \sum_j u_{ij} = s \langle a_i, \textstyle\sum_j k_j \rangle + m_i c_i + \sum_j b_j

over the m_i keys that count. Differentiable in any mode and to any order, like ``dense``.
"""

# N anchors, M keys, D features, E excluded keys per anchor

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairScores, PerAnchor


def reduce(scores: PairScores, psi: PairFunction) -> PerAnchor:
    """See ``contract.PairReduction.reduce``; psi is the identity, and the mask has no labels."""
    terms, excluded_NE, keys_MD = scores.terms, scores.mask.excluded_NE, scores.keys_MD
    counted_MF = _with_counts(keys_MD, terms.row_other_M)
    sums_NF = counted_MF.sum(0, keepdim=True)
    if excluded_NE is not None:
        # -1 reads key 0, which is then multiplied by zero.
        sums_NF = sums_NF - (counted_MF[excluded_NE.clamp(min=0)] * (excluded_NE >= 0)[..., None]).sum(1)
    rows_N = _scores_of_sums(terms.anchors_ND, sums_NF, terms.scale, terms.row_own_N)
    if not scores.is_two_way:
        return PerAnchor(rows_N)
    counted_NF = _with_counts(terms.anchors_ND, terms.column_other_N)
    sums_MF = counted_NF.sum(0, keepdim=True)
    if excluded_NE is not None:
        # P pairs that are left out.
        anchor_P, slot_P = (excluded_NE >= 0).nonzero(as_tuple=True)
        excluded_MF = counted_NF.new_zeros(len(keys_MD), counted_NF.shape[1])
        sums_MF = sums_MF - excluded_MF.index_add(0, excluded_NE[anchor_P, slot_P], counted_NF[anchor_P])
    return PerAnchor(rows_N, _scores_of_sums(keys_MD, sums_MF, terms.scale, terms.column_own_M))


def _with_counts(keys_MD: Tensor, other_M: Tensor | None) -> Tensor:
    """Return each key with what it adds to a score and a 1 that counts it, (m, d + 2)."""
    other_M = keys_MD.new_zeros(len(keys_MD)) if other_M is None else other_M
    return torch.cat([keys_MD, other_M[:, None], torch.ones_like(other_M)[:, None]], dim=1)


def _scores_of_sums(anchors_ND: Tensor, sums_NF: Tensor, scale: Tensor, own_N: Tensor | None) -> Tensor:
    """Sum of u_ij over the keys that count: the equation above; the last column of the sums is m_i."""
    result_N = scale * (anchors_ND * sums_NF[:, :-2]).sum(1) + sums_NF[:, -2]
    return result_N if own_N is None else result_N + own_N * sums_NF[:, -1]
