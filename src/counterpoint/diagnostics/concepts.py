"""Measures of single dimensions: sparsity, class consistency, correlation, expected activation, top samples."""

# N samples, D features, L live dimensions, C classes

import math
from dataclasses import dataclass
from numbers import Real

import torch
from scipy.special import betainc
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels
from counterpoint.core.errors import UsageError
from counterpoint.core.metric import Metric, unshown_metric
from counterpoint.core.numerics import rowwise, unit_doubles, unit_rows
from counterpoint.core.paired_shares import jackknife_half_width
from counterpoint.core.stored_rows import row_slices
from counterpoint.diagnostics.evidence import Concept, Interval
from counterpoint.diagnostics.feature_values import num_uncommon, ordered_values

SPARSITY_THRESHOLD = 1e-5  # ncl2024's, on unit-length embeddings
SUMMED = 4096  # samples at once, whose copies in float64 are few
NAMING_LEVEL = 0.05  # chance that any dimension of a code that knows no class is named
REPEATED = 0.99  # correlation from which on two dimensions say the same
FEWEST_ACTIVE = 10  # samples on which a dimension must differ from its commonest value
STILL_REPEATED = 0.95  # without extremes, of which clean dimensions have few
EXTREME = 0.02  # of the values of a dimension, and at least one, that may not decide a correlation
MOST_SAMPLES = 4096  # evenly spaced, from which correlations are computed
PARTS = 10  # of the samples, each of which is left out once
ROWS_AT_ONCE = 1024  # of the correlation matrix


def sparsity(z_ND: Tensor, *, threshold: float = SPARSITY_THRESHOLD) -> float:
    """Share of entries of the unit-length features that are at most ``threshold`` in absolute value.

    Source: ncl2024, section 3.1.

    >>> sparsity(torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]]))
    0.5
    """
    # ncl2024, Fig. 3b, with its level of 1e-5.
    return 1.0 - int(is_active(z_ND, threshold).sum()) / z_ND.numel()


def check_threshold(threshold: float) -> None:
    """Require a threshold that entries of unit-length features can be above.

    Raises:
        UsageError: no number, below 0, from 1 on, or NaN.
    """
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not 0 <= threshold < 1:
        raise UsageError(f"threshold must be >= 0 and < 1, the length of a vector, got {threshold}; 1e-5 is usual")


def is_active(z_ND: Tensor, threshold: float = SPARSITY_THRESHOLD) -> Tensor:
    """Mark the entries of the unit-length features that exceed ``threshold`` in absolute value; bool (n, d)."""
    check_features(z_ND, "z", min_rows=1)
    check_threshold(threshold)
    return rowwise(lambda rows_ND: unit_rows(rows_ND).abs() > threshold, z_ND)


@dataclass(frozen=True)
class Purity:
    """The commonest class among the samples that activate each dimension.

    Attributes:
        share_D: share of that class among them, (D,); NaN for a dimension that no sample activates.
        class_D: number of that class, (D,); -1 for a dimension that no sample activates.
        is_named_D: whether the dimension can be named after the class, because its share is above the class's share
            of all samples by more than chance: its exact one-sided lower bound (clopper1934) is. The level,
            ``NAMING_LEVEL``, holds for all classes and live dimensions together (Bonferroni).
    """

    share_D: Tensor
    class_D: Tensor
    is_named_D: Tensor

    @property
    def consistency(self) -> float:
        """Mean share over the live dimensions: class consistency. NaN if none is live."""
        return float(self.share_D[~self.share_D.isnan()].mean())


def class_purity(z_ND: Tensor, labels_N: Tensor, *, threshold: float = SPARSITY_THRESHOLD) -> Purity:
    r"""Share of the commonest class among active samples, for each dimension.

    .. math:: \max_c \frac{|\{i : |\hat z_{id}| > t,\, y_i = c\}|}{|\{i : |\hat z_{id}| > t\}|}

    Its mean over live dimensions is ncl2024's class consistency (section 3.1). A dense code scores the share of the
    largest class, and none of its dimensions is named after it.
    Samples with a negative label are left out.

    Args:
        z_ND: features.
        labels_N: class numbers.
        threshold: t, the absolute value above which a feature of a unit-length vector is active.

    >>> z, labels = torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1])
    >>> class_purity(z, labels).consistency
    0.75
    """
    check_labels(labels_N, len(z_ND))
    is_labelled_N = labels_N >= 0
    active_ND, labels_N = is_active(z_ND, threshold)[is_labelled_N], labels_N[is_labelled_N].long()
    num_classes = int(labels_N.max()) + 1 if len(labels_N) else 1  # without labels, one empty class
    one_hot_NC = torch.nn.functional.one_hot(labels_N, num_classes).double()
    # Counts as a product; whole numbers are exact in float64.
    counts_DC = one_hot_NC.new_zeros(z_ND.shape[1], num_classes)
    for part in row_slices(len(active_ND), SUMMED):
        counts_DC += active_ND[part].double().T @ one_hot_NC[part]
    total_D = counts_DC.sum(dim=1)
    # ncl2024, Fig. 3a, per dimension; 0 / 0 = NaN where nothing activates it, which ``is_live`` takes out below.
    share_D, class_D = (counts_DC / total_D[:, None]).max(dim=1)
    is_live = total_D > 0
    base_rate_C = one_hot_NC.sum(dim=0) / max(len(one_hot_NC), 1)
    # Chance of this many samples of the class, or more, among those drawn at its rate in all samples: P(X >= x) of a
    # binomial is the regularised incomplete beta function I_p(x, n - x + 1).
    count_D = counts_DC.gather(1, class_D[:, None])[:, 0]
    beta_D = betainc(count_D.numpy(), (total_D - count_D + 1).numpy(), base_rate_C[class_D].numpy())
    chance_D = torch.where(count_D > 0, torch.from_numpy(beta_D), 1.0)
    # Bonferroni: each of the live dimensions could have been named after each of the classes.
    is_named_D = is_live & (chance_D * max(int(is_live.sum()), 1) * len(base_rate_C) < NAMING_LEVEL)
    return Purity(torch.where(is_live, share_D, float("nan")), torch.where(is_live, class_D, -1), is_named_D)


def consistency_interval(z_ND: Tensor, labels_N: Tensor, *, threshold: float = SPARSITY_THRESHOLD) -> Interval | None:
    """Class consistency with its 95 % interval, by leaving out each of ten interleaved groups of samples.

    A unit that few samples activate is of one class by chance, too, and more samples make it less pure: the interval is
    that of other samples of this number. None if labelled samples activate none.

    Args:
        z_ND: features.
        labels_N: class numbers; samples with a negative one are left out.
        threshold: absolute value above which a feature of a unit-length vector is active.

    >>> z, labels = torch.eye(2).repeat(20, 1), torch.tensor([0, 1]).repeat(20)
    >>> consistency_interval(z, labels)
    Interval(value=1.0, low=1.0, high=1.0)
    """
    value = class_purity(z_ND, labels_N, threshold=threshold).consistency
    if math.isnan(value):
        return None
    group_N = torch.arange(len(z_ND)) % PARTS
    left_out = [
        class_purity(z_ND[group_N != group], labels_N[group_N != group], threshold=threshold).consistency
        for group in range(PARTS)
    ]
    half = jackknife_half_width([consistency for consistency in left_out if not math.isnan(consistency)])
    return Interval(value, max(value - half, 0.0), min(value + half, 1.0))


def feature_correlation(z_ND: Tensor) -> float:
    r"""Mean absolute cosine between different live columns; 0 when features are never active together.

    .. math:: \frac{1}{L(L-1)} \sum_{a \ne b} \big|\hat f_a^\top \hat f_b\big|, \qquad \hat f_a = f_a / |f_a|

    with unit-length columns of the row-normalised features (ncl2024's training log, there ``|F^T F - I|``), which are
    not centred, so that two non-negative ones have 0 where they are never active together. NaN with fewer than two
    live columns.

    >>> feature_correlation(torch.eye(3))
    0.0
    """
    check_features(z_ND, "z")
    # Rows first, as in ncl2024's training log; its Fig. 3c scales columns alone.
    gram_DD = torch.zeros(z_ND.shape[1], z_ND.shape[1], dtype=torch.float64)
    for part in row_slices(len(z_ND), SUMMED):
        unit_ND = unit_doubles(z_ND[part])
        gram_DD += unit_ND.T @ unit_ND
    length_D = gram_DD.diagonal().sqrt()
    cosine_DD = gram_DD / torch.outer(length_D, length_D).clamp(min=torch.finfo(torch.float64).tiny)
    # A silent column has no direction: its cosines of 0 would flatter the mean.
    num_live = int((cosine_DD.diagonal() > 0).sum())
    if num_live < 2:
        return float("nan")
    total = cosine_DD.abs().sum() - cosine_DD.diagonal().sum()
    return float(total / (num_live * (num_live - 1)))


def expected_activation(z_ND: Tensor) -> Tensor:
    """Mean absolute value per dimension of the unit-length features, (d,): ncl2024's ranking (section 5.1)."""
    check_features(z_ND, "z", min_rows=1)
    # EA of ncl2024, section 5.1; absolute values where a code has signs, as in its appendix G.2.
    return unit_rows(z_ND).abs().mean(dim=0)


def top_concepts(
    z_ND: Tensor, *, num_concepts: int = 24, num_samples: int = 12, threshold: float = SPARSITY_THRESHOLD
) -> list[Concept]:
    """The dimensions with the largest expected activation, and for each the samples with the largest values.

    Args:
        z_ND: features; values are those of the unit-length features.
        num_concepts: largest number of dimensions; those that no sample activates are left out.
        num_samples: largest number of samples of each dimension, all of which activate it.
        threshold: absolute value above which a feature of a unit-length vector is active.
    """
    unit_ND, active_ND = unit_rows(z_ND), is_active(z_ND, threshold)
    expected_D, fires_D = expected_activation(z_ND), active_ND.double().mean(dim=0)
    concepts = []
    # Stable sorts: equal dimensions and equal samples come in their own order, on every machine.
    for dim in expected_D.argsort(descending=True, stable=True)[:num_concepts].tolist():
        active = active_ND[:, dim].nonzero()[:, 0]
        if len(active) == 0:
            continue
        values, places = unit_ND[active, dim].sort(descending=True, stable=True)
        top = active[places[:num_samples]]
        concepts.append(
            Concept(
                dim=dim,
                fires=float(fires_D[dim]),
                mean_activation=float(values.mean()),
                expected_activation=float(expected_D[dim]),
                top=tuple(top.tolist()),
                values=tuple(values[:num_samples].tolist()),
            )
        )
    return concepts


def duplicate_dims(z_ND: Tensor) -> int:
    r"""Number of dimensions that repeat an earlier one: their correlation with it is above 0.99 by size.

    .. math:: \Big|\Big\{b : \max_{a < b} |r_{ab}| > 0.99 \Big\}\Big|, \qquad
        r_{ab} = \frac{\sum_i (z_{ia} - \bar z_a)(z_{ib} - \bar z_b)}{n\, s_a s_b}

    r is Pearson's correlation of two columns over the samples, as they are: unit length would couple the columns. It
    must also be above 0.95 where the farthest 2 % of each column's values from its median (at most half of those that
    differ from the commonest) are set to the next smaller deviation: else one sample at a distance repeats dimensions.
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
    chosen_ND = z_ND[chosen_N]
    uncommon_D = num_uncommon(ordered_DN := ordered_values(z_ND, MOST_SAMPLES))
    is_varied_D = uncommon_D >= min(FEWEST_ACTIVE, max(len(chosen_ND) - 1, 1))
    columns_DN, clipped_DN = (
        unit_rows((part_ND - part_ND.mean(dim=0)).T.contiguous()) * is_varied_D[:, None]
        for part_ND in (chosen_ND, _without_extremes(chosen_ND, ordered_DN, uncommon_D))
    )
    place_D = torch.arange(len(columns_DN))
    count = 0
    for part_R in place_D.split(ROWS_AT_ONCE):
        is_like_RD = (columns_DN[part_R] @ columns_DN.T).abs() > REPEATED
        if is_like_RD.sum() > len(part_R):  # more than each with itself
            is_like_RD &= (clipped_DN[part_R] @ clipped_DN.T).abs() > STILL_REPEATED
        count += int((is_like_RD & (place_D < part_R[:, None])).any(dim=1).sum())
    return count


def _without_extremes(z_ND: Tensor, ordered_DN: Tensor, uncommon_D: Tensor) -> Tensor:
    """Columns whose largest deviations from the median are clipped to the largest of the others."""
    median_D = ordered_DN[:, (len(z_ND) - 1) // 2]
    off_ND = z_ND - median_D
    most = max(round(EXTREME * len(z_ND)), 1)
    num_D = torch.minimum(uncommon_D // 2, torch.tensor(most))
    place_N = torch.arange(len(z_ND))
    is_end_N = (place_N <= most) | (place_N >= len(z_ND) - 1 - most)  # where the farthest lie
    far_DK = (ordered_DN[:, is_end_N] - median_D[:, None]).abs().sort(dim=1, descending=True).values
    limit_D = far_DK.gather(1, num_D[:, None].long())[:, 0]
    return median_D + off_ND.clamp(-limit_D, limit_D)


METRICS = (
    Metric(
        name="class_consistency",
        title="Class consistency",
        short="class consistency",
        definition="Mean purity over the active dimensions. Purity is the share of the commonest class among the "
        "samples a dimension is active on; one that is always active has the share of the largest class. A dimension "
        "is named after a class only where the exact one-sided 95 % lower bound of the share, taken for all classes "
        "and dimensions together, is above the class’s share of all samples.",
        chance="the share of the commonest class",
        source="ncl2024",
        measure=lambda subject: (
            math.nan
            if subject.labels_N is None
            else class_purity(subject.z_ND, subject.labels_N, threshold=subject.threshold).consistency
        ),
        low=0.0,
        high=1.0,
        unit="share",
        is_higher_better=True,
        wording="mean purity of the dimensions",
        headline="embedding",
        leads="is the most consistent",
    ),
    Metric(
        name="sparsity",
        title="Sparsity",
        short="zeros",
        definition="Share of entries so small that they count as zero.",
        source="ncl2024",
        measure=lambda subject: sparsity(subject.z_ND, threshold=subject.threshold),
        low=0.0,
        high=1.0,
        unit="share",
        wording="of the entries are zero",
        headline="embedding",
        leads="is the sparsest",
    ),
    Metric(
        name="feature_correlation",
        title="Feature correlation",
        short="feature correlation",
        definition="Mean absolute cosine between different dimensions that are active at all. 0 means that no two are "
        "active together.",
        source="ncl2024",
        measure=lambda subject: feature_correlation(subject.z_ND),
        low=0.0,
        high=1.0,
        unit="cosine",
    ),
    Metric(
        name="dead_dims",
        title="Silent dimensions",
        short="silent dimensions",
        definition="Dimensions that are active on no sample. They can be left out without changing any distance.",
        source="ncl2024",
        measure=lambda subject: int((~is_active(subject.z_ND, subject.threshold).any(dim=0)).sum()),
        low=0.0,
        wording="dimensions",
    ),
    unshown_metric(name="duplicate_dims", of=duplicate_dims, at="z_ND", source="zbontar2021"),
)
