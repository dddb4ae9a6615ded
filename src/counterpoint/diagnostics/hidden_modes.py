"""Whether nearly every class falls into two distant modes, as sources or batches of the samples would give."""

# N compared samples, D features, R directions, C classes

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import unshown_metric
from counterpoint.diagnostics.label_agreement import FAR, HALF, MOST_COMPARED, two_halves

MOST_COMPONENTS = 3  # along which two modes are looked for
BOTH = 0.8  # of the classes with enough samples have samples in both modes
FEWEST = 50
FEWEST_OF_CLASS = 10


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
    places = (labels_N >= 0).nonzero()[:, 0]
    places = places[torch.linspace(0, len(places) - 1, min(len(places), MOST_COMPARED)).long()]
    if len(places) < FEWEST:
        return 0.0
    label_N = labels_N[places].unique(return_inverse=True)[1]
    count_C = torch.bincount(label_N)
    x_ND = z_ND[places].double()
    x_ND = x_ND - x_ND.mean(dim=0)
    means_CD = x_ND.new_zeros(len(count_C), x_ND.shape[1]).index_add_(0, label_N, x_ND) / count_C[:, None]
    rest_ND = x_ND - means_CD[label_N]
    asked = (count_C >= FEWEST_OF_CLASS).nonzero()[:, 0]
    if len(asked) < 2 or not bool(rest_ND.any()):
        return 0.0
    directions_DR = torch.svd_lowrank(rest_ND, min(2 * MOST_COMPONENTS, *rest_ND.shape), niter=4)[2]
    for direction_D in directions_DR.T[:MOST_COMPONENTS]:
        along_N1 = (rest_ND @ direction_D)[:, None]
        is_first_N, means_21 = two_halves(along_N1)
        share = float(is_first_N.double().mean())
        if not HALF <= share <= 1 - HALF:
            continue
        parts = (along_N1[is_first_N], along_N1[~is_first_N])
        deviation = math.sqrt(sum(float(part.var(correction=0)) for part in parts) / 2)
        share_C = torch.zeros(len(count_C)).index_add_(0, label_N, is_first_N.float()) / count_C
        is_both_C = (share_C[asked] > HALF / 2) & (share_C[asked] < 1 - HALF / 2)
        if float((means_21[0] - means_21[1]).abs()) > FAR * deviation and float(is_both_C.float().mean()) >= BOTH:
            return min(share, 1 - share)
    return 0.0


METRICS = (unshown_metric(name="hidden_modes", of=hidden_modes, at="z_ND labels_N", source="ashman1994", unit="share"),)
