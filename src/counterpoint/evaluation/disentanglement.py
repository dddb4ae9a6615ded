"""Whether single dimensions of a code encode single factors that generated the data: MIG."""

# N samples, D dimensions of the code, F factors, B bins, V values of a factor, G groups of samples, R tables of counts

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.checks import check_dense, check_features
from counterpoint.core.metric import Metric
from counterpoint.core.thread_parts import side_by_side
from counterpoint.data.order import random_order
from counterpoint.evaluation.metric_types import Labelled, Score, jackknife

BINS = 20
GROUPS, FEWEST_IN_GROUPS = 10, 200  # of samples, for intervals


@dataclass(frozen=True)
class FactorInformation:
    """What each dimension of a code tells about each factor.

    Attributes:
        information_DF: mutual information of dimension and factor in nats, float64 (d, f).
        entropy_F: of each factor in nats, the most that a dimension can tell about it.
        left_out: the same without each of ten groups of samples, for intervals; empty of few samples.
    """

    information_DF: Tensor
    entropy_F: Tensor
    left_out: Sequence["FactorInformation"] = ()

    @property
    def gap(self) -> float:
        r"""MIG, the mutual information gap, in [0, 1].

        .. math:: \frac{1}{F} \sum_f \frac{I(z_{1(f)}; v_f) - I(z_{2(f)}; v_f)}{H(v_f)}

        with the two dimensions that tell most about each factor. 1: each factor is in one dimension only, which tells
        all of it; 0: in none, or in two alike.

        Source: chen2018, Eq. 6.
        """
        best_2F = self.information_DF.topk(2, dim=0).values
        return float(((best_2F[0] - best_2F[1]) / self.entropy_F).mean())


def factor_information(codes_ND: Tensor, factors_NF: Tensor, *, num_bins: int = BINS) -> FactorInformation:
    r"""Mutual information of every dimension with every factor, from all samples.

    .. math:: I(z_d; v_f) = \sum_{b, v} \frac{n_{bv}}{N} \log \frac{N n_{bv}}{n_b n_v}

    Each dimension is cut into bins of equal width between its least and its largest value (float64), as in the code of
    locatello2019, which takes 10,000 samples; here it is all that are given. A factor of more than ``num_bins`` values
    cannot be told completely by one dimension: over the grid of dSprites (3, 6, 40, 32 and 32 values) the factors
    themselves have a gap of 0.90 with 20 bins, and of 1 with 40.

    Source: chen2018; bins as in locatello2019.

    Args:
        codes_ND: features.
        factors_NF: the value of each factor by its number, whole numbers (n, f).
        num_bins: of each dimension, >= 2.

    Raises:
        ValueError: shapes that do not fit, fewer than 2 dimensions or factors, or a factor of one value.

    >>> factors = torch.cartesian_prod(torch.arange(3), torch.arange(4))
    >>> found = factor_information(factors.double(), factors)
    >>> round(found.gap, 12)
    1.0
    """
    _check(codes_ND, factors_NF)
    if num_bins < 2:
        raise ValueError(f"num_bins must be >= 2, got {num_bins}; 20 is usual")
    factors = [_numbered(factor_N) for factor_N in factors_NF.T]
    num_groups = GROUPS if len(codes_ND) >= FEWEST_IN_GROUPS else 1
    group_N = (random_order(0, 0, len(codes_ND)) % num_groups).int()

    def row(dim: int) -> Tensor:
        code_N = codes_ND[:, dim].double().contiguous()
        edges = np.linspace(float(code_N.min()), float(code_N.max()), num_bins + 1)
        # Without the last edge, so that the largest value falls into the last bin. A constant falls into one bin.
        inner = torch.from_numpy(edges[1:-1].copy())
        bin_N = group_N * num_bins + torch.bucketize(code_N, inner, out_int32=True, right=True)
        return torch.stack([_information(bin_N, num_bins, num_groups, *factor) for factor in factors], dim=1)

    information_RDF = torch.stack(side_by_side(row, range(codes_ND.shape[1])), dim=1)
    entropies = [_information(group_N * num + value_N, num, num_groups, value_N, num) for value_N, num in factors]
    entropy_RF = torch.stack(entropies, dim=1)
    whole, *left_out = map(FactorInformation, information_RDF, entropy_RF)
    return replace(whole, left_out=tuple(left_out))


def _check(codes_ND: Tensor, factors_NF: Tensor) -> None:
    """Require codes and whole-numbered factors of the same samples."""
    check_features(codes_ND, "codes")
    check_dense(factors_NF, "factors")
    if factors_NF.ndim != 2 or len(factors_NF) != len(codes_ND) or factors_NF.is_floating_point():
        raise ValueError(
            f"factors must be whole numbers of shape ({len(codes_ND)}, factors), got {factors_NF.dtype} of shape "
            f"{tuple(factors_NF.shape)}"
        )
    if codes_ND.shape[1] < 2 or factors_NF.shape[1] < 2:
        raise ValueError(
            f"at least 2 dimensions and 2 factors are compared, got {codes_ND.shape[1]} and {factors_NF.shape[1]}"
        )
    for place, factor_N in enumerate(factors_NF.T):
        if (factor_N == factor_N[0]).all():
            raise ValueError(f"factor {place} has one value only, {int(factor_N[0])}; leave its column out")


def _numbered(factor_N: Tensor) -> tuple[Tensor, int]:
    """The values of a factor as numbers from 0, int32, and how many there are."""
    values, number_N = factor_N.unique(return_inverse=True)
    return number_N.int(), len(values)


def _information(left_N: Tensor, num_left: int, num_groups: int, right_N: Tensor, num_right: int) -> Tensor:
    """Mutual information of two numbered variables in nats: of all samples, then without each group of several.

    Numbers of the left one in a group follow those of the previous group.
    """
    # int32 halves the time that int64 takes, as does one histogram of pairs instead of one of each.
    joint = torch.bincount(left_N * num_right + right_N, minlength=num_groups * num_left * num_right)
    count_GBV = joint.view(num_groups, num_left, num_right)
    count_BV = count_GBV.sum(dim=0)
    count_RBV = torch.cat([count_BV[None], count_BV - count_GBV]).double() if num_groups > 1 else count_GBV.double()
    total_R = count_RBV.sum(dim=(1, 2))
    count_RB1, count_R1V = count_RBV.sum(2, keepdim=True), count_RBV.sum(1, keepdim=True)
    # Products of counts are whole numbers, exact below 2^53, so that independence gives exactly log 1 = 0.
    ratio_RBV = total_R[:, None, None] * count_RBV / (count_RB1 * count_R1V)
    return torch.where(count_RBV > 0, count_RBV * ratio_RBV.log(), 0.0).sum(dim=(1, 2)) / total_R


def mig_score(known: Labelled) -> Score:
    """The gap over all samples, bank and queries."""
    assert known.factors_MF is not None
    codes_ND = torch.cat([known.bank_ND, known.queries_QD])
    found = factor_information(codes_ND, known.factors_MF)
    settings = {"bins": BINS, "samples": len(codes_ND), "factors": known.factors_MF.shape[1]}
    return Score(jackknife(found.gap, [each.gap for each in found.left_out]), settings)


METRICS = (
    Metric(
        name="mig",
        title="Mutual information gap",
        short="MIG",
        definition="Mean over the factors that generated the data of the information that the best dimension has "
        "about the factor beyond the second best one, as a share of the factor's entropy.",
        chance="near 0",
        source="chen2018",
        measure=mig_score,
        low=0.0,
        high=1.0,
        is_higher_better=True,
        wording="mean over[ {factors}] factors, dimensions in[ {bins}] bins of equal width",
        interval="95 % interval of the jackknife over ten groups of samples",
        on_request=True,
        needs="factors",
    ),
)
