"""Which dimensions repeat another one, and which stand for several classes."""

# N samples, D features, C classes, L live dimensions

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD, chance_of_at_least, expected_activation, is_active

REPEATED = 0.99  # correlation from which on two dimensions say the same
FEWEST_ACTIVE = 10  # samples on which a dimension must differ from its commonest value
MOST_SAMPLES = 4096  # evenly spaced, from which correlations are computed
ROWS_AT_ONCE = 1024  # of the correlation matrix
CLASS_LEVEL = 0.05  # chance that any dimension of a code that knows no class stands for one
MOST_DRAWN = 128  # dimensions of a matrix that is kept


@dataclass(frozen=True)
class DrawnCorrelation:
    """Correlations between some dimensions.

    Attributes:
        dims: their numbers, ascending.
        matrix_LL: correlations, float64.
    """

    dims: tuple[int, ...]
    matrix_LL: Tensor


def duplicate_dims(z_ND: Tensor) -> int:
    r"""Number of dimensions that repeat an earlier one: their correlation with it is above 0.99 by size.

    .. math:: \Big|\Big\{b : \max_{a < b} |r_{ab}| > 0.99 \Big\}\Big|, \qquad
        r_{ab} = \frac{\sum_i (z_{ia} - \bar z_a)(z_{ib} - \bar z_b)}{n\, s_a s_b}

    r is Pearson's correlation of two columns over the samples, as they are: unit length would couple the columns.
    Leaving these dimensions out loses next to nothing. Constant dimensions repeat nothing, nor do those that differ
    from their commonest value on fewer than 10 samples, since few points correlate by chance. Of at most 4,096
    samples, evenly spaced.

    Source: zbontar2021 calls this redundancy, and its loss is made against it; the limit is ours.

    Invariant to a scale, a sign and an offset of each dimension, and to the order of samples.

    >>> z = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> duplicate_dims(z), duplicate_dims(torch.cat([z, -2 * z + 1], dim=1))
    (0, 3)
    """
    check_features(z_ND, "z")
    chosen_N = torch.linspace(0, len(z_ND) - 1, min(len(z_ND), MOST_SAMPLES), dtype=torch.float64).long()
    columns_DN = _standard_columns(z_ND[chosen_N])
    place_D = torch.arange(len(columns_DN))
    count = 0
    for part_R in place_D.split(ROWS_AT_ONCE):
        is_like_RD = (columns_DN[part_R] @ columns_DN.T).abs() > REPEATED
        count += int((is_like_RD & (place_D < part_R[:, None])).any(dim=1).sum())
    return count


def polysemantic_dims(z_ND: Tensor, labels_N: Tensor, *, threshold: float = SPARSITY_THRESHOLD) -> int:
    r"""Number of dimensions that are active on the samples of two or more classes beyond chance.

    Of N labelled samples, n_c of class c, a dimension is active on a, x_c of these of class c. The class counts where

    .. math:: L\,C \cdot P(X \ge x_c) < 0.05, \qquad X \sim \mathrm{Binomial}(a, n_c / N)

    with L live dimensions and C classes (Bonferroni: in a code that knows no class, any dimension stands for a class
    with at most this chance). A dimension that is active on every sample stands for no class, so that a dense code has
    none; classes in unequal numbers make no difference.

    Source: elhage2022 for the term; activity as in ncl2024, section 3.1; the test is that of ``class_purity``
    (clopper1934), for every class. Differs from drawing without replacement, whose tails are shorter.

    Args:
        z_ND: features.
        labels_N: class numbers; samples with a negative one are left out.
        threshold: above which a feature of a unit-length vector is active.

    >>> z, labels = torch.eye(6).repeat_interleave(20, dim=0), torch.arange(6).repeat_interleave(20)
    >>> merged = torch.cat([z[:, :1] + z[:, 1:2], z[:, 2:]], dim=1)  # one dimension for two classes
    >>> polysemantic_dims(z, labels), polysemantic_dims(merged, labels)
    (0, 1)
    """
    return int((classes_per_dim(z_ND, labels_N, threshold=threshold) >= 2).sum())


def classes_per_dim(z_ND: Tensor, labels_N: Tensor, *, threshold: float = SPARSITY_THRESHOLD) -> Tensor:
    """Number of classes that each dimension is active on beyond chance, int64 (D,); see ``polysemantic_dims``.

    >>> classes_per_dim(torch.eye(2).repeat_interleave(20, dim=0), torch.arange(2).repeat_interleave(20)).tolist()
    [1, 1]
    """
    check_labels(labels_N, len(z_ND))
    is_known_N = labels_N >= 0
    active_MD, (_, place_M) = is_active(z_ND, threshold)[is_known_N], labels_N[is_known_N].unique(return_inverse=True)
    if len(place_M) == 0:
        return torch.zeros(z_ND.shape[1], dtype=torch.int64)
    one_hot_MC = torch.nn.functional.one_hot(place_M).double()
    counts_DC = active_MD.double().T @ one_hot_MC
    total_D1, size_C = counts_DC.sum(dim=1, keepdim=True), one_hot_MC.sum(dim=0)
    rate_DC = (size_C / len(place_M)).expand_as(counts_DC)
    chance_DC = chance_of_at_least(counts_DC, total_D1, rate_DC)
    num_live = max(int((total_D1 > 0).sum()), 1)
    return (chance_DC * num_live * len(size_C) < CLASS_LEVEL).sum(dim=1)


def drawn_correlation(z_ND: Tensor) -> DrawnCorrelation:
    """Correlations between the dimensions of the largest expected activation, at most 128, in the order of dimensions.

    Constant dimensions correlate with nothing, also not with themselves.

    >>> drawn_correlation(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, -1.0]])).dims
    (0, 1)
    """
    order = expected_activation(z_ND).argsort(descending=True, stable=True)[:MOST_DRAWN]
    dims = order.sort().values
    columns_LN = _standard_columns(z_ND[:, dims].double(), fewest=1)
    return DrawnCorrelation(tuple(dims.tolist()), (columns_LN @ columns_LN.T).clamp(-1, 1))


def _standard_columns(z_ND: Tensor, *, fewest: int = FEWEST_ACTIVE) -> Tensor:
    """Centred columns of unit length as rows (D, N); 0 where fewer samples differ from the commonest value."""
    commonest_D = z_ND.mode(dim=0).values
    is_varied_D = (z_ND != commonest_D).sum(dim=0) >= min(fewest, max(len(z_ND) - 1, 1))
    centred_ND = z_ND - z_ND.mean(dim=0)
    return unit_rows(centred_ND.T) * is_varied_D[:, None]


METRICS = (
    Metric(
        name="duplicate_dims",
        title="Repeated dimensions",
        short="repeated dimensions",
        definition="Dimensions whose correlation with an earlier one is above 0.99 by size. They can be left out with "
        "hardly a change of what the features say.",
        source="zbontar2021",
        measure=lambda subject: duplicate_dims(subject.z_ND),
        low=0.0,
        wording="dimensions",
        is_shown=False,
    ),
    Metric(
        name="polysemantic_dims",
        title="Dimensions of several classes",
        short="dimensions of several classes",
        definition="Dimensions that are active on the samples of two or more classes more often than chance allows "
        "(binomial, at 5 % for all dimensions and classes together). One that is active on every sample stands "
        "for no class.",
        source="elhage2022",
        measure=lambda subject: (
            math.nan
            if subject.labels_N is None
            else polysemantic_dims(subject.z_ND, subject.labels_N, threshold=subject.threshold)
        ),
        low=0.0,
        wording="dimensions",
        is_shown=False,
    ),
)
