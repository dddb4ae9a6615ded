"""SEPIN: the information about the sample that a dimension of a code adds to all other dimensions; no labels."""

# N samples, M negatives, D dimensions

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.counter_random import PURPOSE_NEGATIVES
from counterpoint.core.numerics import unit_rows
from counterpoint.core.thread_parts import side_by_side
from counterpoint.data.order import random_order

MOST_PAIRS = 1 << 17  # of a block, which one thread takes: 1 MiB


@dataclass(frozen=True)
class Separability:
    """SEPIN of each dimension, in nats.

    Attributes:
        information_D: an estimate of I(x; z_i | z without i), the mean over the samples, float64.
    """

    information_D: Tensor

    def at(self, k: int) -> float:
        """SEPIN@k: mean of the k largest.

        Differs from do2020, who order dimensions by I(x; z_i): ncl2024 (appendix G.3) orders them by SEPIN itself.

        Raises:
            ValueError: k out of range.
        """
        if not 1 <= k <= len(self.information_D):
            raise ValueError(f"k must be between 1 and the number of dimensions, {len(self.information_D)}, got {k}")
        return float(self.information_D.topk(k).values.mean())


def contrastive_sepin(
    z0_ND: Tensor,
    z1_ND: Tensor,
    *,
    temperature: float = 1.0,
    num_negatives: int | None = None,
    seed: int = 0,
) -> Separability:
    r"""Estimate SEPIN from two views: what a dimension adds to InfoNCE's estimate of the sample's information.

    .. math:: \mathrm{SEPIN}_i = I(f) - I(f_{\ne i}), \qquad
        I(f) = E \log \frac{e^{f(x)^\top f(x^+) / \tau}}
        {e^{f(x)^\top f(x^+) / \tau} + \frac1M \sum_j e^{f(x)^\top f(x_j^-) / \tau}}

    for rows of unit length. An estimate up to a constant, which the difference does not have; no bound.

    Differs from ncl2024, Eq. 16 and 17, whose minus sign would make informative dimensions negative. What the paper
    leaves open is an argument; negatives are second views of other samples.

    Source: ncl2024, appendix G.3.

    Args:
        z0_ND: features of the first views.
        z1_ND: of the second views, row by row of the same samples.
        temperature: tau > 0; the paper's formula has no temperature.
        num_negatives: M samples drawn once, of which each anchor leaves itself out; None for all. The time is
            N x M x D.
        seed: of the negatives.

    Raises:
        ValueError: shapes that differ, or an argument out of range.

    >>> z = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])  # the last dimension is the same for all
    >>> contrastive_sepin(z, z).information_D
    tensor([0.0475, 0.0475, 0.0000], dtype=torch.float64)
    """
    check_features(z0_ND, "z0")
    check_features(z1_ND, "z1")
    check_positive(temperature, "temperature", hint="1 is the paper's")
    if z0_ND.shape != z1_ND.shape:
        raise ValueError(f"z0 and z1 must have the same shape, got {tuple(z0_ND.shape)} and {tuple(z1_ND.shape)}")
    num_samples = len(z0_ND)
    num_negatives = num_samples if num_negatives is None else num_negatives
    if not 2 <= num_negatives <= num_samples:
        raise ValueError(f"num_negatives must be between 2 and the samples, {num_samples}, got {num_negatives}")
    all_ND, positives_ND = unit_rows(z0_ND.double()), unit_rows(z1_ND.double())
    drawn_M = random_order(seed, 0, num_samples, purpose=PURPOSE_NEGATIVES)[:num_negatives]
    negatives_MD = positives_ND[drawn_M]

    def block(rows: slice) -> Tensor:
        a_ND, p_ND, is_own_NM = all_ND[rows], positives_ND[rows], torch.arange(num_samples)[rows, None] == drawn_M
        log_num_N = (num_negatives - is_own_NM.sum(dim=1)).double().log()

        def information(positive_N1: Tensor, negative_NM: Tensor) -> Tensor:
            gap_NM = ((negative_NM - positive_N1) / temperature).masked_fill_(is_own_NM, -torch.inf)
            mean_N = gap_NM.logsumexp(dim=1) - log_num_N
            return -torch.logaddexp(mean_N, torch.zeros_like(mean_N))  # softplus would round it where it is large

        positive_N1, negative_NM = (a_ND * p_ND).sum(dim=1, keepdim=True), a_ND @ negatives_MD.T
        full_N, sepin_DN = information(positive_N1, negative_NM), []
        for a_N, p_N, b_M in zip(a_ND.T, p_ND.T, negatives_MD.T, strict=True):
            rest = positive_N1 - (a_N * p_N)[:, None], negative_NM - a_N[:, None] * b_M
            sepin_DN.append(full_N - information(*rest))
        return torch.stack(sepin_DN, dim=1)

    size = max(1, MOST_PAIRS // num_negatives)
    blocks = [slice(start, min(start + size, num_samples)) for start in range(0, num_samples, size)]
    return Separability(torch.cat(side_by_side(block, blocks)).mean(dim=0))
