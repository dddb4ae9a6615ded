"""The whole score matrix at once, in differentiable torch operations: fastest for small batches, memory n x m."""

# N anchors, M keys, D features

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairScores, PairSums


def row_logsumexp(scores: PairScores) -> Tensor:
    """See ``contract.PairKernel.row_logsumexp``."""
    return torch.logsumexp(score_matrix(scores), dim=1)


def pair_sums(scores: PairScores, row_weight_N: Tensor, shift_N: Tensor) -> PairSums:
    """See ``contract.PairKernel.pair_sums``."""
    weight_NM = row_weight_N[:, None] * torch.exp(score_matrix(scores) - shift_N[:, None])
    return PairSums(
        row_sums_N=weight_NM.sum(1),
        column_sums_M=weight_NM.sum(0),
        weighted_keys_ND=weight_NM @ scores.keys_MD,
        weighted_anchors_MD=weight_NM.T @ scores.anchors_ND,
    )


def score_matrix(scores: PairScores) -> Tensor:
    """All u_ij, shape (n, m), with minus infinity at the excluded pairs."""
    bias_NM = scores.anchor_bias_N[:, None] + scores.key_bias_M[None, :]
    u_NM = torch.addmm(bias_NM, scores.anchors_ND, scores.keys_MD.T, alpha=scores.scale)
    return u_NM.scatter(1, scores.excluded_NE, float("-inf"))
