"""Whether sources or batches show in the features beyond what classes explain: a grouping that is given, or blind."""

# N compared samples, D features, G groups, C classes, K neighbours

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.evidence import GroupRecord
from counterpoint.diagnostics.label_agreement import FAR, HALF, MOST_COMPARED, two_halves

NEAREST = 10
SHUFFLES = 100  # of the groups within classes, for the value without an effect
MOST_COMPONENTS = 3  # along which two modes are looked for
BOTH = 0.8  # of the classes with enough samples have samples in both modes
FEWEST = 50
FEWEST_OF_CLASS = 10


def group_effect(z_ND: Tensor, groups_N: Tensor, labels_N: Tensor | None, *, generator: torch.Generator) -> GroupRecord:
    """Compare how often neighbours within a class are of one group with what groups at random would give.

    The features are those less the mean of their class, the neighbours the nearest ten of the class. For the value
    without an effect, groups are shuffled within each class.

    Source: buettner2019 (a test of batches by neighbours). Differs from it in that classes are held fixed.

    Args:
        z_ND: features; at most 2,048 samples with a group, evenly spaced.
        groups_N: group numbers, -1 for a sample without a group.
        labels_N: class numbers, -1 for a sample without a label; None to look at all samples as one class.
        generator: shuffles.

    >>> z = torch.randn(200, 4, generator=torch.manual_seed(0))
    >>> groups = torch.arange(200) % 2
    >>> z[:, 0] += 4 * groups
    >>> found = group_effect(z, groups, None, generator=torch.manual_seed(0))
    >>> found.agreement > 0.9, round(found.chance, 1), found.p < 0.01
    (True, 0.5, True)
    """
    check_features(z_ND, "z")
    check_labels(groups_N, len(z_ND))
    places = ((groups_N >= 0) & (True if labels_N is None else labels_N >= 0)).nonzero()[:, 0]
    places = places[torch.linspace(0, len(places) - 1, min(len(places), MOST_COMPARED)).long()]
    group_N = groups_N[places].unique(return_inverse=True)[1]
    label_N = torch.zeros_like(group_N) if labels_N is None else labels_N[places].unique(return_inverse=True)[1]
    num_groups = int(group_N.max()) + 1 if len(places) else 0
    record = GroupRecord(num_groups=num_groups, num_samples=len(places), has_classes=labels_N is not None)
    if num_groups < 2 or len(places) < FEWEST:
        return record
    # A class of one group allows no comparison.
    first_C = torch.zeros(int(label_N.max()) + 1, dtype=torch.int64).index_copy_(0, label_N, group_N)
    is_mixed_C = torch.zeros(len(first_C)).index_add_(0, label_N, (group_N != first_C[label_N]).float()) > 0
    is_judged_N = is_mixed_C[label_N] & (torch.bincount(label_N)[label_N] > 2)
    if int(is_judged_N.sum()) < FEWEST:
        return record.model_copy(update={"is_the_classes": True})
    unit_ND = unit_rows(z_ND[places][is_judged_N].double())
    group_N, label_N = group_N[is_judged_N], label_N[is_judged_N].unique(return_inverse=True)[1]
    cosine_NN = unit_ND @ unit_ND.T
    cosine_NN[label_N[:, None] != label_N] = -math.inf
    near = cosine_NN.fill_diagonal_(-math.inf).topk(min(NEAREST, len(unit_ND) - 1), dim=1)
    is_own_NK = near.values > -math.inf

    def agreement(group_N: Tensor) -> float:
        return float((group_N[near.indices] == group_N[:, None])[is_own_NK].double().mean())

    order_N = label_N.argsort(stable=True)
    without = []
    for _ in range(SHUFFLES):
        noise_N = torch.rand(len(label_N), generator=generator, dtype=torch.float64)
        shuffled_N = torch.empty_like(group_N)
        shuffled_N[order_N] = group_N[(label_N + noise_N).argsort()]
        without.append(agreement(shuffled_N))
    measured = agreement(group_N)
    return record.model_copy(
        update={
            "agreement": measured,
            "chance": sum(without) / SHUFFLES,
            "p": (1 + sum(each >= measured for each in without)) / (1 + SHUFFLES),
        }
    )


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
