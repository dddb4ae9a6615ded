"""Geometry of classes: their means and scatter, the distance of cosines from an optimum, rare classes that coincide.

All of it is about means of classes of unit-length features, and each class counts alike, however many samples it has.
Theory states an optimum as cosines of class means of unit length. Here are the same cosines of features, the distance
between both, and intervals over samples; the caller passes the optimum itself.
"""

# N labelled samples, D features, C classes

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import rowwise, unit_doubles, unit_rows
from counterpoint.core.paired_shares import Z_95
from counterpoint.diagnostics.evidence import Interval


@dataclass(frozen=True)
class ClassGeometry:
    """Labelled samples and class means, as seen from the mean of the class means.

    Attributes:
        rows_ND: unit-length features less the centre, float64.
        place_N: row of ``means_CD`` that holds the mean of each sample's class.
        means_CD: class means less the centre.
        centre_D: mean of the class means.
        counts_C: number of samples of each class, >= 1.
        labels_C: the classes' numbers, ascending.
        noise: length below which a difference of means is rounding.
    """

    rows_ND: Tensor
    place_N: Tensor
    means_CD: Tensor
    centre_D: Tensor
    counts_C: Tensor
    labels_C: Tensor
    noise: float


def class_geometry(z_ND: Tensor, labels_N: Tensor) -> ClassGeometry:
    r"""Class means of the unit-length features, and samples around them.

    .. math:: \mu_c = \frac{1}{n_c} \sum_{i : y_i = c} \hat z_i, \qquad \mu = \frac1C \sum_c \mu_c

    Differs from papyan2020, whose centre is the mean of all samples: the same where classes are balanced, while a
    centre among the frequent classes would hide a simplex of classes that are not.

    Args:
        z_ND: features, n >= 1.
        labels_N: class numbers; samples with a negative one are left out.

    Raises:
        ValueError: features that are not finite, or labels that do not fit.

    >>> class_geometry(torch.eye(3), torch.tensor([0, 4, -1])).means_CD.tolist()
    [[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0]]
    """
    check_features(z_ND, "z", min_rows=1)
    check_labels(labels_N, len(z_ND))
    is_known_N = labels_N >= 0
    rows_ND = unit_doubles(z_ND[is_known_N])
    labels_C, place_N, counts_C = labels_N[is_known_N].long().unique(return_inverse=True, return_counts=True)
    # Taken away first, so that sums over a class round at the size of what samples differ by.
    common_D = rows_ND.sum(dim=0) / max(len(rows_ND), 1)
    rows_ND -= common_D
    sums_CD = rows_ND.new_zeros(len(counts_C), rows_ND.shape[1]).index_add_(0, place_N, rows_ND)
    means_CD = sums_CD / counts_C[:, None]
    shift_D = means_CD.sum(dim=0) / max(len(counts_C), 1)
    noise = max(rows_ND.shape) * torch.finfo(torch.float64).eps
    rows_ND -= shift_D
    return ClassGeometry(rows_ND, place_N, means_CD - shift_D, common_D + shift_D, counts_C, labels_C, noise)


def class_cosines(classes: ClassGeometry) -> Tensor:
    r"""Cosines between the class means of unit-length features, not centred; float64 (C, C), 1 on the diagonal.

    .. math:: A_{cd} = \frac{\mu_c \cdot \mu_d}{|\mu_c| |\mu_d|}

    Source: imbalanced2026, section 4: the Gram matrix of class means on the sphere, here of classes that have not
    collapsed, whose means are inside it and are scaled to unit length. A mean of 0 has cosine 0 with all others.

    >>> z = torch.tensor([[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> class_cosines(class_geometry(z, torch.tensor([0, 0, 1])))
    tensor([[1.0000, 1.0000],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    return _cosines(_means(classes)).fill_diagonal_(1.0)


def gram_distance(classes: ClassGeometry, optimum_CC: Tensor) -> Interval:
    r"""Root mean square distance, in [0, 2], between the cosines of class means and an optimum.

    .. math:: \Big( \frac{1}{C(C-1)} \sum_{c \ne d} (A_{cd} - A^*_{cd})^2 \Big)^{1/2}

    The interval is over samples, classes held fixed (``mean_interval``). Means of few samples scatter, which adds to
    the distance and is not taken off.

    Args:
        classes: result of ``class_geometry`` for two or more classes.
        optimum_CC: cosines at the optimum, float64 (C, C), rows in the order of ``labels_C``.

    Raises:
        ValueError: one class only, or another number of classes.

    >>> opposite = class_geometry(torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]))
    >>> gram_distance(opposite, torch.eye(2, dtype=torch.float64)).value
    1.0
    """
    num_classes = len(classes.counts_C)
    if num_classes < 2 or optimum_CC.shape != (num_classes, num_classes):
        raise ValueError(
            f"optimum must have a row for each of at least 2 classes, got {tuple(optimum_CC.shape)} for {num_classes}"
        )
    is_pair_CC = ~torch.eye(num_classes, dtype=torch.bool)
    interval = mean_interval(
        classes, lambda means_CD: (_cosines(means_CD) - optimum_CC)[is_pair_CC].square().mean().sqrt()
    )
    if interval.low is None or interval.high is None:
        return interval
    return Interval(interval.value, max(interval.low, 0.0), min(interval.high, 2.0))


def mean_interval(classes: ClassGeometry, statistic: Callable[[Tensor], Tensor]) -> Interval:
    r"""A function of the class means with a 95 % interval over the samples, by the infinitesimal jackknife.

    .. math:: \hat\sigma^2 = \sum_c \frac{1}{n_c (n_c - 1)} \sum_{i : y_i = c}
        \Big( \frac{\partial f}{\partial \mu_c} \cdot (\hat z_i - \mu_c) \Big)^2

    Source: efron1993, section 21.3, stratified by class. Differs from it in n_c - 1, where it has n_c. A class of one
    sample adds nothing, as nothing is known of its scatter.

    Args:
        classes: result of ``class_geometry``.
        statistic: f, a differentiable function of the class means (C, D), not centred, that gives one number.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> figure = mean_interval(class_geometry(z, torch.tensor([0, 0, 1])), lambda means_CD: means_CD[0, 0])
    >>> figure.value, round(figure.high - figure.value, 4)  # the standard error of a mean of 1 and 0 is 1/2
    (0.5, 0.98)
    """
    with torch.inference_mode(mode=False), torch.enable_grad():
        means_CD = _means(classes).requires_grad_()
        figure = statistic(means_CD)
        (slope_CD,) = torch.autograd.grad(figure, means_CD)
    value = float(figure.detach())
    if not bool((classes.counts_C > 1).any()) or not bool(torch.isfinite(slope_CD).all()):
        return Interval(value, None, None)
    moves_N = rowwise(
        lambda rows_ND, place_N: ((rows_ND - classes.means_CD[place_N]) * slope_CD[place_N]).sum(dim=1),
        classes.rows_ND,
        classes.place_N,
    )
    counts_C = classes.counts_C.double()
    weight_C = 1 / (counts_C * (counts_C - 1).clamp_min(1))
    error = Z_95 * math.sqrt(float(weight_C[classes.place_N] @ moves_N.square()))
    return Interval(value, value - error, value + error)


def within_share(classes: ClassGeometry) -> float:
    r"""Share of the variance that lies within classes; 0 where each class is one point.

    .. math:: \frac{\operatorname{tr} \Sigma_W}{\operatorname{tr} \Sigma_W + \operatorname{tr} \Sigma_B}, \qquad
        \Sigma_W = \frac1C \sum_c \frac{1}{n_c} \sum_{i : y_i = c} (\hat z_i - \mu_c)(\hat z_i - \mu_c)^\top, \quad
        \Sigma_B = \frac1C \sum_c (\mu_c - \mu)(\mu_c - \mu)^\top

    Source: papyan2020 (the scatters); the ratio of traces: tirer2023. Differs from papyan2020 where classes are not
    balanced: there samples would count alike in Sigma_W, here classes do, as in Sigma_B.

    Returns:
        A number in [0, 1]; NaN with fewer than two classes, no class of two samples, or constant features.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 1.0]])
    >>> round(within_share(class_geometry(z, torch.tensor([0, 0, 1, 1]))), 6)
    0.666667
    """
    num_classes = len(classes.counts_C)
    if not 2 <= num_classes < len(classes.place_N):  # else there is no scatter of both kinds
        return math.nan
    weight_N = 1 / (num_classes * classes.counts_C[classes.place_N].double())
    total = float(weight_N @ _squared_distances(classes))
    s_R = torch.linalg.svdvals(classes.means_CD / math.sqrt(num_classes))
    if not bool((s_R > classes.noise).any()):
        return 1.0 if total > classes.noise**2 else math.nan
    ratio = total / float(s_R.square().sum())
    return ratio / (1 + ratio)


def class_spreads(classes: ClassGeometry) -> Tensor:
    """Mean squared distance of each class's samples from their mean, float64 (C,): 0 collapsed, at most 1.

    >>> class_spreads(class_geometry(torch.eye(3), torch.tensor([0, 0, 1]))).tolist()
    [0.5, 0.0]
    """
    square_N = _squared_distances(classes)
    sums_C = square_N.new_zeros(len(classes.counts_C)).index_add_(0, classes.place_N, square_N)
    return sums_C / classes.counts_C


def _squared_distances(classes: ClassGeometry) -> Tensor:
    """Squared distance of each sample from the mean of its class, a few rows at a time: no copy of all rows."""
    return rowwise(
        lambda rows_ND, place_N: (rows_ND - classes.means_CD[place_N]).square().sum(dim=1),
        classes.rows_ND,
        classes.place_N,
    )


def rare_classes(counts_C: Tensor) -> Tensor | None:
    """Mark the rare classes, bool (C,); None for balanced classes, and for fewer than three.

    Classes are parted where their counts differ, as near to the middle as can be, with at least two rare ones and one
    frequent one; of two cuts that are equally near, the one with fewer rare classes.

    >>> rare_classes(torch.tensor([90, 5, 5])), rare_classes(torch.tensor([5, 5, 5]))
    (tensor([False,  True,  True]), None)
    """
    counts = counts_C.sort().values.tolist()
    cuts = [cut for cut in range(2, len(counts)) if counts[cut - 1] < counts[cut]]
    if not cuts:
        return None
    return counts_C < counts[min(cuts, key=lambda cut: (abs(2 * cut - len(counts)), cut))]


def mean_cosine(means_CD: Tensor, is_one_C: Tensor, *, noise: float = 0.0) -> Tensor:
    r"""Mean cosine between the centred means of some classes.

    .. math:: \operatorname{mean}_{c \ne d} \cos(\mu_c - \mu, \mu_d - \mu), \qquad \mu = \frac1C \sum_c \mu_c

    Unchanged by an offset that all classes share and by rotations; of a simplex of C classes -1 / (C - 1), of classes
    with one mean 1.

    Args:
        means_CD: means of all classes, of features or of an optimum.
        is_one_C: bool (C,), true for the classes to compare; the result is NaN for fewer than two with a direction.
        noise: length of a centred mean up to which it counts as zero.

    >>> round(float(mean_cosine(torch.eye(3, dtype=torch.float64), torch.tensor([True, True, False]))), 6)
    -0.5
    """
    centred_CD = (means_CD - means_CD.mean(dim=0))[is_one_C]
    unit_CD = unit_rows(centred_CD[torch.linalg.vector_norm(centred_CD.detach(), dim=1) > noise])
    num = len(unit_CD)
    # |sum|^2 - C is the sum over all ordered pairs, without forming any of them.
    total = unit_CD.sum(dim=0).square().sum() - num
    return total / (num * (num - 1)) if num > 1 else total * math.nan


def rare_cosine(classes: ClassGeometry) -> Interval:
    """Mean cosine between the centred means of rare classes; towards 1 they have fallen together: minority collapse.

    With its interval over samples; ``rare_classes`` says which are rare. Others enter the centre only.

    Source: fang2021, whose figures show it of a classifier's weights; here class means.

    Returns:
        The cosine, in [-1, 1], with its interval; NaN if there are no rare classes.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(rare_cosine(class_geometry(z, torch.tensor([0, 0, 1, 2]))).value, 6)
    1.0
    """
    is_rare_C = rare_classes(classes.counts_C)
    if is_rare_C is None:
        return Interval(math.nan, None, None)
    return mean_interval(classes, lambda means_CD: mean_cosine(means_CD, is_rare_C, noise=classes.noise))


def frequent_cosine(classes: ClassGeometry) -> float:
    """Mean cosine between the centred means of the classes that are not rare; NaN of fewer than two.

    >>> frequent_cosine(class_geometry(torch.eye(3), torch.arange(3)))
    nan
    """
    is_rare_C = rare_classes(classes.counts_C)
    if is_rare_C is None:
        return math.nan
    return float(mean_cosine(classes.means_CD, ~is_rare_C, noise=classes.noise))


def _means(classes: ClassGeometry) -> Tensor:
    """Class means of the unit-length features, (C, D), as a copy."""
    return classes.means_CD + classes.centre_D


def _cosines(means_CD: Tensor) -> Tensor:
    unit_CD = unit_rows(means_CD)
    return unit_CD @ unit_CD.T


METRICS = (
    unshown_metric(name="within_share", of=within_share, at="classes", source="tirer2023", unit="share"),
    unshown_metric(name="rare_cosine", of=rare_cosine, at="classes", source="fang2021", unit="cosine"),
)
