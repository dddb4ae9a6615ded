"""The definition: plain loops in float64. Slow on purpose; every other kernel is tested against it."""

import math

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairScores, PairSums


@torch.no_grad()
def row_logsumexp(scores: PairScores) -> Tensor:
    """See ``contract.PairKernel.row_logsumexp``; returns float64."""
    rows = []
    for i in range(len(scores.anchors_ND)):
        row = [_score(scores, i, j) for j in _keys_of(scores, i)]
        top = max(row)
        rows.append(top + math.log(math.fsum(math.exp(u - top) for u in row)))
    return torch.tensor(rows, dtype=torch.float64)


@torch.no_grad()  # its loops leave autograd, so a second derivative must raise rather than hold the weights fixed
def pair_sums(scores: PairScores, row_weight_N: Tensor, shift_N: Tensor) -> PairSums:
    """See ``contract.PairKernel.pair_sums``; returns float64."""
    anchors_ND, keys_MD = scores.anchors_ND.double(), scores.keys_MD.double()
    weight_NM = torch.zeros(len(anchors_ND), len(keys_MD), dtype=torch.float64)
    for i in range(len(anchors_ND)):
        for j in _keys_of(scores, i):
            weight_NM[i, j] = float(row_weight_N[i]) * math.exp(_score(scores, i, j) - float(shift_N[i]))
    return PairSums(weight_NM.sum(1), weight_NM.sum(0), weight_NM @ keys_MD, weight_NM.T @ anchors_ND)


def _keys_of(scores: PairScores, i: int) -> list[int]:
    """Keys that enter the row of anchor i."""
    excluded = set(scores.excluded_NE[i].tolist())
    return [j for j in range(len(scores.keys_MD)) if j not in excluded]


def _score(scores: PairScores, i: int, j: int) -> float:
    """One u_ij."""
    product = torch.dot(scores.anchors_ND[i].double(), scores.keys_MD[j].double())
    return scores.scale * float(product) + float(scores.anchor_bias_N[i]) + float(scores.key_bias_M[j])
