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
    rows = terms.anchors_ND, terms.row_own_N, terms.row_other_M
    rows_N = _row_sums(rows, keys_MD, terms.scale, excluded_NE)
    if not scores.is_two_way:
        return PerAnchor(rows_N)
    columns = keys_MD, terms.column_own_M, terms.column_other_N
    return PerAnchor(rows_N, _row_sums(columns, terms.anchors_ND, terms.scale, _transposed(excluded_NE, len(keys_MD))))


def _row_sums(
    side: tuple[Tensor, Tensor | None, Tensor | None], keys_MD: Tensor, scale: Tensor, excluded_NE: Tensor | None
) -> Tensor:
    """Sum of u_ij over the keys that count, for the anchors of one reading and what is added to their scores."""
    anchors_ND, own_N, other_M = side
    other_M = keys_MD.new_zeros(len(keys_MD)) if other_M is None else other_M
    # Columns: the key, what it adds to a score, and 1 to count it.
    augmented_MF = torch.cat([keys_MD, other_M[:, None], torch.ones_like(other_M)[:, None]], dim=1)
    sums_NF = augmented_MF.sum(0, keepdim=True)
    if excluded_NE is not None:
        # -1 reads key 0, which is then multiplied by zero.
        excluded_NEF = augmented_MF[excluded_NE.clamp(min=0)] * (excluded_NE >= 0)[..., None]
        sums_NF = sums_NF - excluded_NEF.sum(1)
    # Equation above; the last column of the sums is m_i.
    result_N = scale * (anchors_ND * sums_NF[:, :-2]).sum(1) + sums_NF[:, -2]
    return result_N if own_N is None else result_N + own_N * sums_NF[:, -1]


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
