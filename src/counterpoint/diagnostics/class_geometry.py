"""Neural collapse without a classifier: how classes lie, and whether rare ones fall together.

All of it is about means of classes, of unit-length features, and each class counts alike, however many samples it has.
NC3, that a classifier's weights line up with the class means, needs a classifier, which contrastive encoders do not
have. Class means take its place here; the nearest class mean is then the classifier, and NC3 holds by definition.
"""

# N labelled samples, D features, C classes, R directions in which class means differ

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice, check_features, check_labels
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows

Collapse = Literal["pseudo-inverse", "trace ratio"]
MOST_CLASSES = 2048  # of which all pairs are looked at
MOST_DISTANCES = 1 << 26  # from samples to class means, unless N x D is more
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class ClassGeometry:
    """Labelled samples and class means, as seen from the mean of the class means.

    Attributes:
        rows_ND: unit-length features less the centre, float64.
        place_N: of each sample's class, a row of the means.
        means_CD: class means less the centre.
        centre_D: mean of the class means.
        counts_C: samples of each class, >= 1.
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

    @property
    def is_scattered(self) -> bool:
        """Whether there are two classes, and one with two samples, so that both scatters can be estimated."""
        return 2 <= len(self.counts_C) < len(self.place_N)


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
    unit_ND = unit_rows(z_ND[is_known_N].double())
    labels_C, place_N, counts_C = labels_N[is_known_N].long().unique(return_inverse=True, return_counts=True)
    # Taken away first, so that sums over a class round at the size of what samples differ by.
    common_D = unit_ND.sum(dim=0) / max(len(unit_ND), 1)
    rows_ND = unit_ND - common_D
    sums_CD = rows_ND.new_zeros(len(counts_C), rows_ND.shape[1]).index_add_(0, place_N, rows_ND)
    means_CD = sums_CD / counts_C[:, None]
    shift_D = means_CD.sum(dim=0) / max(len(counts_C), 1)
    noise = max(rows_ND.shape) * torch.finfo(torch.float64).eps
    return ClassGeometry(rows_ND - shift_D, place_N, means_CD - shift_D, common_D + shift_D, counts_C, labels_C, noise)


def nc1(classes: ClassGeometry, *, definition: Collapse = "pseudo-inverse") -> float:
    r"""Scatter within classes over the scatter of class means; 0 where each class is one point.

    .. math:: \frac1C \operatorname{tr}(\Sigma_W \Sigma_B^+), \qquad
        \Sigma_W = \frac1C \sum_c \frac{1}{n_c} \sum_{i : y_i = c} (\hat z_i - \mu_c)(\hat z_i - \mu_c)^\top, \quad
        \Sigma_B = \frac1C \sum_c (\mu_c - \mu)(\mu_c - \mu)^\top

    or, as "trace ratio", tr(Sigma_W) / tr(Sigma_B), which also sees scatter where no class means differ.

    Source: papyan2020, Fig. 6; the ratio: tirer2023. Differs from papyan2020 where classes are not balanced: there
    samples would count alike in Sigma_W, here classes do, as in Sigma_B.

    Args:
        classes: from ``class_geometry``.
        definition: "pseudo-inverse" or "trace ratio".

    Returns:
        A number >= 0; infinite where class means coincide but samples do not; NaN with fewer than two classes, no
        class of two samples, or constant features. Unchanged by rotating features and renaming classes.

    Raises:
        ValueError: another definition.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 1.0]])
    >>> classes = class_geometry(z, torch.tensor([0, 0, 1, 1]))
    >>> round(nc1(classes), 6), round(nc1(classes, definition="trace ratio"), 6)
    (0.5, 2.0)
    """
    check_choice(definition, "definition", get_args(Collapse))
    if not classes.is_scattered:
        return math.nan
    num_classes = len(classes.counts_C)
    within_ND = classes.rows_ND - classes.means_CD[classes.place_N]
    weight_N = 1 / (num_classes * classes.counts_C[classes.place_N].double())
    # Singular values s of the means over sqrt(C): eigenvalues of Sigma_B are s^2, without squaring what rounds.
    _, s_R, axes_RD = torch.linalg.svd(classes.means_CD / math.sqrt(num_classes), full_matrices=False)
    is_real_R = s_R > classes.noise
    total = float(weight_N @ within_ND.square().sum(dim=1))
    if not bool(is_real_R.any()):
        return math.inf if total > classes.noise**2 else math.nan
    if definition == "trace ratio":
        return total / float(s_R.square().sum())
    along_NR = within_ND @ axes_RD[is_real_R].T
    return float((weight_N @ along_NR.square() / s_R[is_real_R].square()).sum()) / num_classes


def nc2_lengths(classes: ClassGeometry) -> float:
    r"""Coefficient of variation of the lengths of the centred class means; 0 where all are equally long.

    .. math:: \operatorname{std}_c |\mu_c - \mu| \,/\, \operatorname{mean}_c |\mu_c - \mu|

    Source: papyan2020, Fig. 2, with the standard deviation of these classes (divided by C). 0 for any two classes.

    Returns:
        A number in [0, sqrt(C - 1)]; NaN with fewer than two classes, or where class means coincide.

    >>> nc2_lengths(class_geometry(torch.eye(3), torch.arange(3))) < 1e-12
    True
    """
    length_C = _lengths(classes)
    if len(length_C) < 2 or float(length_C.max()) <= classes.noise:
        return math.nan
    return float(length_C.std(correction=0) / length_C.mean())


def nc2_angles(classes: ClassGeometry) -> float:
    r"""Mean distance of the cosines of centred class means from those of a simplex, where all angles are largest.

    .. math:: \frac{1}{C(C-1)} \sum_{c \ne d} \Big| \cos(\mu_c - \mu, \mu_d - \mu) + \frac{1}{C-1} \Big|

    Source: papyan2020, Fig. 4. A class mean at the centre has no direction, and its pairs are left out. Of at most
    ``MOST_CLASSES`` classes, evenly spaced. 0 for any two classes.

    Returns:
        A number in [0, 1.5]; NaN with fewer than two classes that have a direction.

    >>> nc2_angles(class_geometry(torch.eye(3), torch.arange(3))) < 1e-12
    True
    """
    num_classes = len(classes.counts_C)
    unit_CD = unit_rows(classes.means_CD[_lengths(classes) > classes.noise])
    if len(unit_CD) < 2:
        return math.nan
    unit_CD = unit_CD[torch.linspace(0, len(unit_CD) - 1, min(len(unit_CD), MOST_CLASSES)).long()]
    cosine_CC = unit_CD @ unit_CD.T
    first, second = torch.triu_indices(len(unit_CD), len(unit_CD), offset=1)
    return float((cosine_CC[first, second] + 1 / (num_classes - 1)).abs().mean())


def nc4(classes: ClassGeometry) -> float:
    """Share of samples whose nearest class mean is that of their own class; 1 where classes are told apart by it.

    A sample that several means are equally near to, within rounding, counts by its chance. Samples are in the mean of
    their class: of few samples with many features the share is high without any structure.

    Source: papyan2020, Fig. 7, with labels in place of a classifier's answers. Of as many samples, evenly spaced, as
    ``MOST_DISTANCES`` allows.

    Returns:
        A number in [0, 1]; NaN with fewer than two classes or no class of two samples.

    >>> nc4(class_geometry(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), torch.tensor([0, 0, 1])))
    1.0
    """
    if not classes.is_scattered:
        return math.nan
    num_samples, num_classes = len(classes.place_N), len(classes.counts_C)
    most = max(MOST_DISTANCES, classes.rows_ND.numel()) // num_classes
    chosen_N = torch.linspace(0, num_samples - 1, min(num_samples, max(most, 1)), dtype=torch.float64).long()
    square_C = classes.means_CD.square().sum(dim=1)
    # What the squares round by, and what means may be off by.
    tie = classes.noise * float(classes.rows_ND.square().sum(dim=1).max()) + classes.noise**2
    found = 0.0
    for part_N in chosen_N.split(ROWS_AT_ONCE):
        # |z - mu|^2 without |z|^2, which all classes share.
        distance_NC = square_C - 2 * classes.rows_ND[part_N] @ classes.means_CD.T
        is_nearest_NC = distance_NC <= distance_NC.amin(dim=1, keepdim=True) + tie
        is_own_N = is_nearest_NC.gather(1, classes.place_N[part_N, None])[:, 0]
        found += float((is_own_N / is_nearest_NC.sum(dim=1)).sum())
    return found / len(chosen_N)


def minority_cosine(classes: ClassGeometry) -> float:
    r"""How much closer together the means of rare classes lie than those of frequent ones.

    .. math:: \operatorname{mean}_{c \ne d \text{ rare}} \cos(\mu_c - \mu, \mu_d - \mu) -
        \operatorname{mean}_{c \ne d \text{ frequent}} \cos(\mu_c - \mu, \mu_d - \mu)

    Where rare classes fall together (minority collapse) their cosine goes to 1. Classes are parted where their
    counts differ, as near to the middle as can be, with two or more on either side. A class mean at the centre has no
    direction and is left out.

    Source: fang2021, whose figures show the cosine of the classifier's weights of minority classes; here class means.

    Returns:
        A number in [-2, 2], about 0 where frequency does not matter; NaN where no such parting exists: balanced
        classes, or fewer than four.

    >>> z = torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0], [0, 0, 1.0], [0, 0, 1.0]])
    >>> round(minority_cosine(class_geometry(z, torch.tensor([0, 0, 1, 1, 2, 3]))), 6)
    1.142857
    """
    counts = classes.counts_C.sort().values.tolist()
    # Of two cuts that are equally near to the middle the one with fewer rare classes.
    cuts = [cut for cut in range(2, len(counts) - 1) if counts[cut - 1] < counts[cut]]
    if not cuts:
        return math.nan
    fewest = counts[min(cuts, key=lambda cut: (abs(2 * cut - len(counts)), cut))]
    has_direction_C = _lengths(classes) > classes.noise
    rare, frequent = (
        _mean_cosine(classes.means_CD[is_one_C & has_direction_C])
        for is_one_C in (classes.counts_C < fewest, classes.counts_C >= fewest)
    )
    return rare - frequent


def _lengths(classes: ClassGeometry) -> Tensor:
    """Lengths of the centred class means, (C,)."""
    return torch.linalg.vector_norm(classes.means_CD, dim=1)


def _mean_cosine(means_CD: Tensor) -> float:
    """Mean cosine of different rows; NaN of fewer than two."""
    unit_CD, num = unit_rows(means_CD), len(means_CD)
    # |sum|^2 - C is the sum over all ordered pairs, without forming any of them.
    return float(unit_CD.sum(dim=0).square().sum() - num) / (num * (num - 1)) if num > 1 else math.nan


METRICS = (
    Metric(
        name="nc1",
        title="Scatter within classes",
        short="scatter within classes",
        definition="Scatter of samples around their class mean over the scatter of class means, in the directions in "
        "which class means differ (NC1). 0 where each class is one point.",
        source="papyan2020",
        measure=lambda subject: nc1(subject.classes) if subject.classes else math.nan,
        low=0.0,
        is_shown=False,
    ),
    Metric(
        name="nc2_lengths",
        title="Variation of class means' lengths",
        short="variation of class means' lengths",
        definition="Standard deviation over mean of the distances of class means from their centre (NC2). 0 where "
        "all are equally far.",
        source="papyan2020",
        measure=lambda subject: nc2_lengths(subject.classes) if subject.classes else math.nan,
        low=0.0,
        is_shown=False,
    ),
    Metric(
        name="nc2_angles",
        title="Class means' distance from a simplex",
        short="class means' distance from a simplex",
        definition="Mean distance of the cosines between centred class means from -1 / (C - 1), that of a simplex of "
        "C classes (NC2). 0 where all classes are equally far apart.",
        source="papyan2020",
        measure=lambda subject: nc2_angles(subject.classes) if subject.classes else math.nan,
        low=0.0,
        high=1.5,
        is_shown=False,
    ),
    Metric(
        name="nc4",
        title="Samples nearest to their class mean",
        short="samples nearest to their class mean",
        definition="Share of samples whose nearest class mean is that of their own class (NC4 with labels in place "
        "of a classifier's answers). The samples are those that the means were made of.",
        source="papyan2020",
        measure=lambda subject: nc4(subject.classes) if subject.classes else math.nan,
        low=0.0,
        high=1.0,
        unit="share",
        is_higher_better=True,
        is_shown=False,
    ),
    Metric(
        name="minority_cosine",
        title="Rare classes closer together",
        short="rare classes closer together",
        definition="Mean cosine between the centred means of the rarer classes, less that of the more frequent ones. "
        "Far above 0 rare classes fall together: minority collapse. None of balanced classes.",
        source="fang2021",
        measure=lambda subject: minority_cosine(subject.classes) if subject.classes else math.nan,
        low=-2.0,
        high=2.0,
        unit="cosine",
        is_higher_better=False,
        is_shown=False,
    ),
)
