"""MIG: a measure of how far single dimensions of a code encode single factors that generated the data."""

# N samples, D dimensions of the code, F factors, B bins, V values of a factor

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.checks import check_dense, check_features
from counterpoint.core.thread_parts import side_by_side

BINS = 20


@dataclass(frozen=True)
class FactorInformation:
    """Mutual information of each dimension of a code with each factor.

    Attributes:
        information_DF: mutual information of dimension and factor in nats, float64 (d, f).
        entropy_F: of each factor in nats, the most that a dimension can tell about it.
    """

    information_DF: Tensor
    entropy_F: Tensor

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
    >>> information = factor_information(factors.double(), factors)
    >>> round(information.gap, 12)
    1.0
    """
    _check_codes(codes_ND, factors_NF)
    if num_bins < 2:
        raise ValueError(f"num_bins must be >= 2, got {num_bins}; 20 is usual")
    factors = [_number_values(factor_N) for factor_N in factors_NF.T]

    def row(dim: int) -> Tensor:
        code_N = codes_ND[:, dim].double().contiguous()
        edges = np.linspace(float(code_N.min()), float(code_N.max()), num_bins + 1)
        # Without the last edge, so that the largest value falls into the last bin. A constant falls into one bin.
        inner = torch.from_numpy(edges[1:-1].copy())
        bin_N = torch.bucketize(code_N, inner, out_int32=True, right=True)
        return torch.stack([_mutual_information(bin_N, num_bins, *factor) for factor in factors])

    information_DF = torch.stack(side_by_side(row, range(codes_ND.shape[1])))
    return FactorInformation(information_DF, torch.stack([_mutual_information(*factor, *factor) for factor in factors]))


def _check_codes(codes_ND: Tensor, factors_NF: Tensor) -> None:
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


def _number_values(factor_N: Tensor) -> tuple[Tensor, int]:
    """Number the values of a factor from 0, as int32, and count them."""
    values, number_N = factor_N.unique(return_inverse=True)
    return number_N.int(), len(values)


def _mutual_information(left_N: Tensor, num_left: int, right_N: Tensor, num_right: int) -> Tensor:
    """Mutual information of two numbered variables in nats."""
    # int32 halves the time that int64 takes, as does one histogram of pairs instead of one of each.
    joint = torch.bincount(left_N * num_right + right_N, minlength=num_left * num_right)
    count_BV, total = joint.view(num_left, num_right).double(), len(left_N)
    # Products of counts are whole numbers, exact below 2^53, so that independence gives exactly log 1 = 0.
    ratio_BV = total * count_BV / (count_BV.sum(1, keepdim=True) * count_BV.sum(0, keepdim=True))
    return torch.where(count_BV > 0, count_BV * ratio_BV.log(), 0.0).sum() / total
