"""Faults of features within classes: two distant modes, as of two sources, and coordinates that give the label away."""

# N compared samples with a label, D features, R directions, C classes

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.label_agreement import FAR, HALF, labelled_places, left_out_fit, nearest_votes, two_halves

FEWEST = 50  # samples with a label
MOST_COMPONENTS = 3  # along which two modes are looked for
BOTH = 0.8  # of the classes with enough samples have samples in both modes
FEWEST_OF_CLASS = 10
WRITTEN = 0.9999  # of a coordinate's variance that lies between classes: constant within each, as a written label is
TOLD = 0.97  # of it, where nothing was written to the last bit
OTHERS = 0.8  # of the variance of the other coordinates, in the median: a collapsed network has as much in all
USUAL = 4.0  # times the median variance of coordinates: more has a principal component, which may tell classes well
GAP = 3.0  # deviations within classes, between two classes that lie side by side along a coordinate
ALONE = 0.9  # of the labels that the other coordinates tell, at most


def hidden_modes(z_ND: Tensor, labels_N: Tensor) -> float:
    """Share of the samples in the smaller of two modes that most classes have; 0 where there are none.

    Looked for along the first three principal directions of what is left once the mean of each class was taken away:
    two modes are further apart than five times their deviation, and most classes have samples in both.

    >>> z, y = torch.randn(400, 8, generator=torch.manual_seed(0)), torch.arange(400) % 4
    >>> hidden_modes(z, y)
    0.0
    >>> z[::3] += 6
    >>> round(hidden_modes(z, y), 2)
    0.33
    """
    check_features(z_ND, "z")
    places = labelled_places(labels_N)
    if len(places) < FEWEST:
        return 0.0
    label_N = labels_N[places].unique(return_inverse=True)[1]
    count_C = torch.bincount(label_N)
    _, residual_ND = _residuals(z_ND[places], label_N)
    large = (count_C >= FEWEST_OF_CLASS).nonzero()[:, 0]
    if len(large) < 2 or not bool(residual_ND.any()):
        return 0.0
    directions_DR = torch.svd_lowrank(residual_ND, min(2 * MOST_COMPONENTS, *residual_ND.shape), niter=4)[2]
    for direction_D in directions_DR.T[:MOST_COMPONENTS]:
        along_N1 = (residual_ND @ direction_D)[:, None]
        is_first_N, means_21 = two_halves(along_N1)
        share = float(is_first_N.double().mean())
        if not HALF <= share <= 1 - HALF:
            continue
        parts = (along_N1[is_first_N], along_N1[~is_first_N])
        deviation = math.sqrt(sum(float(part.var(correction=0)) for part in parts) / 2)
        share_C = torch.zeros(len(count_C)).index_add_(0, label_N, is_first_N.float()) / count_C
        is_both_C = (share_C[large] > HALF / 2) & (share_C[large] < 1 - HALF / 2)
        if float((means_21[0] - means_21[1]).abs()) > FAR * deviation and float(is_both_C.float().mean()) >= BOTH:
            return min(share, 1 - share)
    return 0.0


def leaked_dims(z_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Coordinates in which the label was written, as one-hot or as a number, ascending.

    A coordinate counts where it is constant within classes; where nearly all of its variance lies between classes; or
    where thresholds along it part all classes by wide gaps, and the other coordinates do not separate them. None counts
    where the other coordinates are alike, as those of a network that has collapsed to its classes are, nor do the
    strong coordinates of a rotation to principal components.

    Args:
        z_ND: features; at most 2,048 samples with a label, evenly spaced.
        labels_N: class numbers; samples with a negative one are left out.

    >>> z, y = torch.randn(200, 6, generator=torch.manual_seed(0)), torch.arange(200) % 4
    >>> z[:, 2] = y.float()
    >>> leaked_dims(z, y).tolist()
    [2]
    """
    check_features(z_ND, "z")
    check_labels(labels_N, len(z_ND))
    places = labelled_places(labels_N)
    label_N = labels_N[places].unique(return_inverse=True)[1]
    num, num_classes = len(places), int(label_N.max()) + 1 if len(places) else 0
    no_dims = places[:0]
    if num < max(FEWEST, 2 * num_classes) or num_classes < 2 or z_ND.shape[1] < 2:
        return no_dims
    x_ND, residual_ND = _residuals(z_ND[places], label_N)
    # Both without bias, so that many small classes explain nothing by chance.
    within_D = residual_ND.square().sum(dim=0) / (num - num_classes)
    total_D = x_ND.square().sum(dim=0) / (num - 1)
    is_alive_D = total_D > 1e-20 * float(total_D.max())
    explained_D = torch.where(is_alive_D, 1 - within_D / total_D, 0.0).clamp(min=0.0)
    if not is_alive_D.any() or float(explained_D[is_alive_D].median()) >= OTHERS:
        return no_dims
    usual = USUAL * float(total_D[is_alive_D].median())
    is_leak_D = (explained_D > WRITTEN) | ((explained_D > TOLD) & (total_D <= usual))
    parting = _parting_dims(x_ND, label_N, within_D, is_alive_D & ~is_leak_D & (total_D <= usual), num_classes)
    if len(parting) and _accuracy_without(x_ND, label_N, parting, num_classes) < ALONE:
        is_leak_D[parting] = True
    return is_leak_D.nonzero()[:, 0]


def _parting_dims(x_ND: Tensor, label_N: Tensor, within_D: Tensor, is_candidate_D: Tensor, num_classes: int) -> Tensor:
    """Return coordinates along which each class has a stretch of its own, with wide gaps between."""
    candidates = is_candidate_D.nonzero()[:, 0]
    sorted_ND, order_ND = x_ND[:, candidates].sort(dim=0)
    along_ND = label_N[order_ND]
    is_change_MD = along_ND[1:] != along_ND[:-1]
    gap_MD = torch.where(is_change_MD, sorted_ND[1:] - sorted_ND[:-1], math.inf)
    is_wide_D = gap_MD.amin(dim=0) > GAP * within_D[candidates].sqrt()
    return candidates[(is_change_MD.sum(dim=0) == num_classes - 1) & is_wide_D]


def _accuracy_without(x_ND: Tensor, label_N: Tensor, leaks: Tensor, num_classes: int) -> float:
    """Share of labels that the other coordinates predict, by votes or by a regression that leaves each sample out."""
    is_other_D = torch.ones(x_ND.shape[1], dtype=torch.bool)
    is_other_D[leaks] = False
    if not is_other_D.any():
        return 1.0
    other_NE = x_ND[:, is_other_D]
    fit_NC = left_out_fit(other_NE, torch.nn.functional.one_hot(label_N, num_classes).double())
    predictions = (fit_NC, nearest_votes(unit_rows(other_NE), label_N, num_classes))
    return max(float((score_NC.argmax(dim=1) == label_N).double().mean()) for score_NC in predictions)


def _residuals(z_ND: Tensor, label_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples less their mean, and less the mean of their class, float64."""
    x_ND = z_ND.double()
    x_ND = x_ND - x_ND.mean(dim=0)
    count_C = torch.bincount(label_N)
    means_CD = x_ND.new_zeros(len(count_C), x_ND.shape[1]).index_add_(0, label_N, x_ND) / count_C[:, None]
    return x_ND, x_ND - means_CD[label_N]


METRICS = (
    unshown_metric(name="hidden_modes", of=hidden_modes, at="z_ND labels_N", source="ashman1994", unit="share"),
    unshown_metric(name="leaked_dims", of=leaked_dims, at="z_ND labels_N", source="kaufman2012"),
)
