r"""The two streaming operations behind every pairwise loss, and the record they work on.

All pairwise losses of the project are functions of one score

.. math:: u_{ij} = s \langle a_i, k_j \rangle + c_i + b_j

over anchors a_i and keys k_j, where some pairs (self, own positive) are excluded. In the gap form
:math:`d_i^2 - d_{ij}^2` of alphacl2022 the term :math:`|a_i|^2` cancels, which leaves
:math:`c_i = |p_i|^2/2 - \langle a_i, p_i\rangle` (p_i is the anchor's positive) and :math:`b_j = -|k_j|^2/2`; no two
distances
are ever subtracted.

A kernel implements ``PairKernel``; it knows no loss by name.
"""

# N anchors, M keys, D features, E excluded keys per anchor

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class PairScores:
    """The scores u_ij of one block of anchors against one block of keys.

    Attributes:
        anchors_ND: floating tensor (n, d).
        keys_MD: floating tensor (m, d).
        scale: s, usually 1 / temperature.
        anchor_bias_N: c, shape (n,).
        key_bias_M: b, shape (m,).
        excluded_NE: int64 (n, e): keys that do not enter the row of each anchor; at least one key must remain.
    """

    anchors_ND: Tensor
    keys_MD: Tensor
    scale: float
    anchor_bias_N: Tensor
    key_bias_M: Tensor
    excluded_NE: Tensor


@dataclass(frozen=True)
class PairSums:
    """Sums of pair weights w_ij, the only way in which a gradient sees the pairs."""

    row_sums_N: Tensor  # w · 1
    column_sums_M: Tensor  # wᵀ · 1
    weighted_keys_ND: Tensor  # w · K
    weighted_anchors_MD: Tensor  # wᵀ · A


class PairKernel(Protocol):
    """One implementation of the two operations."""

    def row_logsumexp(self, scores: PairScores) -> Tensor:
        """Log of the sum over the keys of exp(u_ij), per anchor; shape (n,)."""
        ...

    def pair_sums(self, scores: PairScores, row_weight_N: Tensor, shift_N: Tensor) -> PairSums:
        """Sums of w_ij = row_weight_i * exp(u_ij - shift_i); excluded pairs weigh nothing."""
        ...
