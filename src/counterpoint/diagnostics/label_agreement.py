"""Agreement of labels with features: wrong labels, labels that share a cluster, labels of several far clusters.

A sample's label is compared with what the others say of it, by the votes of its nearest and by a ridge regression that
leaves it out. Where features and labels both are right, those two disagree with a label near borders between classes,
and less the surer they are. Wrong labels disagree everywhere alike, also where both are as sure as they ever are.
"""

# N compared samples with a label, D features, C of their classes

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import evenly_spaced, unit_rows
from counterpoint.core.paired_shares import Z_95
from counterpoint.diagnostics.evidence import Interval

MOST_COMPARED = 2048  # labelled samples, evenly spaced
NEAREST = 20  # voters, and at least 5: half of a class, so that small classes are not outvoted
FEWEST, FEWEST_OF_CLASS = 50, 5  # labelled samples, in all and in the mean over classes
RIDGE = 0.3  # of the mean variance of a direction
SURE = 0.5  # of the samples, those that votes are surest about, where disagreement is counted
RISE = 0.2  # of the share that disagrees, from the surest to the third quarter: clean sets with borders have 0.24 to 1
ABOVE_CHANCE = 0.15  # of the votes that agree with a label, more than labels would at random
# Chosen on 28 kinds of clean sets and 16 of them with 10, 25 and 40 % of the labels drawn again or moved to one class.
SHARED = 0.6  # of two labels of one cluster are guessed right, at most; 0.5 where nothing tells them apart
OWN = 0.7  # of the share of votes that samples of a class usually have, goes to either of the two
LEAST_OWN, BEYOND = 0.5, 0.2  # of all votes, and beyond those that both have by chance
FAR = 5.0  # distance of two halves of a class over their deviation along it; of one bell 2.7, of a line 3.5
AS_CLASSES = 0.8  # of the median distance of two classes, that the halves are apart
HALF = 0.15  # of the class, that either half has at least
FEWEST_OF_HALVES = 20


@dataclass(frozen=True)
class LabelAgreement:
    """Agreement of labels with features.

    Attributes:
        noise: share of wrong labels, a lower bound: where the votes are surest, with its interval; NaN where there are
            too few samples, or where disagreement grows towards borders as that of right labels does.
        suspects: positions of samples whose label both the votes and the regression contradict, the clearest first.
        shared: pairs of labels that lie in one cluster, by class number.
        parted: labels that lie in two far clusters, by class number.
        accuracy: share of the samples whose label the votes name.
        chance: share that random labels would have.
    """

    noise: Interval
    suspects: Tensor
    shared: tuple[tuple[int, int], ...]
    parted: tuple[int, ...]
    accuracy: float
    chance: float


def label_agreement(z_ND: Tensor, labels_N: Tensor) -> LabelAgreement:
    """Compare each label with what the other samples say of it; at most ``MOST_COMPARED`` samples, evenly spaced.

    Source: northcutt2021 (confident disagreement, out of sample). Differs from it in the measure of confidence: ranks
    of the votes, as votes of few neighbours are not probabilities.

    Args:
        z_ND: features.
        labels_N: class numbers; samples with a negative one are left out.

    >>> z = torch.eye(2).repeat_interleave(100, dim=0) + 0.1 * torch.randn(200, 2, generator=torch.manual_seed(0))
    >>> y = torch.arange(200) // 100
    >>> y[::10] = 1 - y[::10]
    >>> agreement = label_agreement(z, y)
    >>> round(agreement.noise.value, 2), agreement.suspects.sort().values.tolist() == list(range(0, 200, 10))
    (0.09, True)
    """
    check_features(z_ND, "z")
    check_labels(labels_N, len(z_ND))
    places = labelled_places(labels_N)
    numbers_C, label_N, count_C = labels_N[places].unique(return_inverse=True, return_counts=True)
    num, num_classes = len(places), len(numbers_C)
    chance = float((count_C / max(num, 1)).square().sum())
    # All vectors of unit length are 1 or -1 in one dimension.
    if num < max(FEWEST, FEWEST_OF_CLASS * num_classes) or num_classes < 2 or z_ND.shape[1] < 2:
        return LabelAgreement(Interval(math.nan), places[:0], (), (), math.nan, chance)
    labelled_ND = z_ND[places].double()
    votes_NC = nearest_votes(unit_rows(labelled_ND), label_N, num_classes)
    fitted_NC = left_out_fit(labelled_ND, torch.nn.functional.one_hot(label_N, num_classes).double())
    is_right_N = votes_NC.argmax(dim=1) == label_N
    accuracy = float(is_right_N.double().mean())
    shared = _shared_labels(votes_NC, label_N, count_C)
    noise, suspects = _wrong_labels(votes_NC, fitted_NC, label_N, {label for pair in shared for label in pair}, chance)
    parted: list[int] = []
    if accuracy - chance >= ABOVE_CHANCE:
        # A wrong label lies in another cluster, which is not a cluster of its class.
        parted = _parted_labels(unit_rows(labelled_ND[is_right_N]), label_N[is_right_N])
    return LabelAgreement(
        noise,
        places[suspects],
        tuple((int(numbers_C[a]), int(numbers_C[b])) for a, b in shared),
        tuple(int(numbers_C[label]) for label in parted),
        accuracy,
        chance,
    )


def labelled_places(labels_N: Tensor) -> Tensor:
    """Positions of at most ``MOST_COMPARED`` samples with a label, evenly spaced."""
    places = (labels_N >= 0).nonzero()[:, 0]
    return evenly_spaced(places, MOST_COMPARED)


def nearest_votes(unit_ND: Tensor, label_N: Tensor, num_classes: int) -> Tensor:
    """Share of each class among the nearest other samples, by cosine, (N, C).

    >>> nearest_votes(torch.eye(2).repeat(3, 1), torch.tensor([0, 1, 0, 1, 0, 1]), 2)[0]
    tensor([0.4000, 0.6000], dtype=torch.float64)
    """
    num = len(unit_ND)
    k = min(NEAREST, num - 1, max(FEWEST_OF_CLASS, num // (2 * num_classes)))
    near_NK = (unit_ND @ unit_ND.T).fill_diagonal_(-math.inf).topk(k, dim=1).indices
    vote_NK = torch.full(near_NK.shape, 1 / k, dtype=torch.float64)
    return torch.zeros(num, num_classes, dtype=torch.float64).scatter_add_(1, label_N[near_NK], vote_NK)


def left_out_fit(x_ND: Tensor, y_NC: Tensor) -> Tensor:
    r"""Predictions for each sample by a ridge regression on all other samples, (N, C).

    .. math:: \frac{\hat y_i - h_i y_i}{1 - h_i}, \qquad H = X (X^\top X + \lambda I)^{-1} X^\top

    >>> x = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]], dtype=torch.float64)
    >>> left_out_fit(x, x).sign().tolist()
    [[-1.0], [1.0], [-1.0], [1.0]]
    """
    x_ND, y_NC = x_ND - x_ND.mean(dim=0), y_NC - (mean_C := y_NC.mean(dim=0))
    num, width = x_ND.shape
    penalty = RIDGE * float(x_ND.square().sum()) / min(num, width) or 1.0
    if width <= num:
        weight_DN = torch.linalg.solve(x_ND.T @ x_ND + penalty * torch.eye(width, dtype=x_ND.dtype), x_ND.T)
        leverage_N, fit_NC = (x_ND * weight_DN.T).sum(dim=1), x_ND @ (weight_DN @ y_NC)
    else:  # the same by the smaller matrix
        gram_NN = x_ND @ x_ND.T
        hat_NN = torch.linalg.solve(gram_NN + penalty * torch.eye(num, dtype=x_ND.dtype), gram_NN)
        leverage_N, fit_NC = hat_NN.diagonal(), hat_NN @ y_NC
    leverage_N1 = (leverage_N + 1 / num)[:, None].clamp(max=1 - 1e-9)  # the mean is fitted, too
    return (fit_NC - leverage_N1 * y_NC) / (1 - leverage_N1) + mean_C


def left_out_places(z_ND: Tensor, label_N: Tensor) -> Tensor:
    """Number of classes that a ridge regression on all other samples puts before a sample's own, (N,); 0 if right.

    Of standardised features; less noisy than accuracy where few samples have labels.

    Args:
        z_ND: features.
        label_N: class numbers, all known.

    >>> left_out_places(torch.tensor([[-1.0], [1.0], [-1.1], [1.1]]), torch.tensor([0, 1, 0, 1])).tolist()
    [0, 0, 0, 0]
    """
    x_ND = z_ND.double() - z_ND.double().mean(dim=0)
    own_N1 = label_N.unique(return_inverse=True)[1][:, None]
    fit_NC = left_out_fit(x_ND / x_ND.std(dim=0).clamp(min=1e-9), torch.nn.functional.one_hot(own_N1[:, 0]).double())
    return (fit_NC > fit_NC.gather(1, own_N1)).sum(dim=1)


def _wrong_labels(
    votes_NC: Tensor, fitted_NC: Tensor, label_N: Tensor, excluded: set[int], chance: float
) -> tuple[Interval, Tensor]:
    """Return the share of wrong labels with its interval, and the samples that have them; NaN if it is unknown."""
    num_classes = votes_NC.shape[1]
    sure_N, voted_N = votes_NC.max(dim=1)
    margin_N, guessed_N = fitted_NC.max(dim=1)
    # A class whose samples are mostly taken for another has no place of its own: its labels are not wrong, but not told
    # apart by these features.
    voted_CC = torch.bincount(num_classes * label_N + voted_N, minlength=num_classes**2).view(num_classes, num_classes)
    has_place_C = voted_CC.argmax(dim=1) == torch.arange(num_classes)
    has_place_C[list(excluded)] = False
    judged = has_place_C[label_N].nonzero()[:, 0]
    unknown = Interval(math.nan), judged[:0]
    if len(judged) < FEWEST:
        return unknown
    is_odd_N = (voted_N != label_N).double()
    # Equal votes in the order of the regression.
    orders = [(sure_N + 1e-3 * margin_N)[judged].argsort(descending=True), margin_N[judged].argsort(descending=True)]
    rises = [
        _rise(is_odd_N[judged][orders[0]]),
        _rise((guessed_N != label_N).double()[judged][orders[1]]),
    ]
    surest = judged[orders[0]][: max(round(SURE * len(judged)), 1)]
    share = float(is_odd_N[surest].mean())
    error = Z_95 * math.sqrt((share * (1 - share) + 1 / len(surest)) / len(surest))
    if 1 - share - chance < ABOVE_CHANCE or any(rise + error_of / 2 > RISE for rise, error_of in rises):
        return unknown
    odd = judged[(voted_N != label_N)[judged] & (guessed_N == voted_N)[judged]]
    lead_N = votes_NC.gather(1, voted_N[:, None])[:, 0] - votes_NC.gather(1, label_N[:, None])[:, 0]
    odd = odd[(lead_N + 1e-3 * margin_N)[odd].argsort(descending=True)]
    return Interval(share, max(share - error, 0.0), min(share + error, 1.0)), odd


def _rise(is_odd_M: Tensor) -> tuple[float, float]:
    """Return how much odder the end of the surest three quarters is than their begin, and the error of that."""
    surest_M = is_odd_M[: max(3 * len(is_odd_M) // 4, 2)]
    place_M = torch.linspace(-0.5, 0.5, len(surest_M), dtype=torch.float64)
    scale = float(place_M.square().sum())
    return float(place_M @ surest_M) / scale, math.sqrt(float(surest_M.var(correction=0)) / scale)


def _shared_labels(votes_NC: Tensor, label_N: Tensor, count_C: Tensor) -> list[tuple[int, int]]:
    """Return pairs of labels whose samples vote for both alike, and for no other."""
    num_classes = len(count_C)
    if num_classes < 3:  # of two labels, features that tell nothing look alike
        return []
    mean_CC = torch.zeros(num_classes, num_classes, dtype=torch.float64).index_add_(0, label_N, votes_NC)
    mean_CC /= count_C[:, None]
    other_C = (mean_CC - 2 * torch.diag(mean_CC.diagonal())).argmax(dim=1)
    usual = float(mean_CC.diagonal().median())
    pairs = []
    for a, b in ((a, int(other_C[a])) for a in range(num_classes)):
        if int(other_C[b]) != a or a > b or min(count_C[a], count_C[b]) < 2 * FEWEST_OF_CLASS:
            continue
        rows = ((label_N == a) | (label_N == b)).nonzero()[:, 0]
        share = len(rows) / len(label_N)
        own_share = float(votes_NC[rows][:, [a, b]].sum(dim=1).mean())
        # Each label counts alike, however many samples it has.
        ratio = votes_NC[:, a] / count_C[a] - votes_NC[:, b] / count_C[b]
        right = [float(((1, -1)[side] * ratio[label_N == label]).sign().mean()) for side, label in enumerate((a, b))]
        if own_share >= max(OWN * usual, LEAST_OWN) and own_share - share >= BEYOND and (2 + sum(right)) / 4 <= SHARED:
            pairs.append((a, b))
    return pairs


def _parted_labels(unit_ND: Tensor, label_N: Tensor) -> list[int]:
    """Return labels with two clusters of samples, as far apart as classes, and another label nearer to one of them."""
    present_C, place_N, count_C = label_N.unique(return_inverse=True, return_counts=True)
    if len(present_C) < 2:
        return []
    sums_CD = unit_ND.new_zeros(len(present_C), unit_ND.shape[1]).index_add_(0, place_N, unit_ND)
    means_CD = sums_CD / count_C[:, None]
    usual = float(torch.nn.functional.pdist(means_CD).median())
    labels = []
    for place, label in enumerate(present_C.tolist()):
        own_MD = unit_ND[place_N == place]
        others_CD = means_CD[torch.arange(len(means_CD)) != place]
        # Few samples in many dimensions can always be parted: what every other one says is asked of those between.
        for first in (0, 1) if len(own_MD) >= FEWEST_OF_HALVES else ():
            _, halves_2D = two_halves(own_MD[first::2])
            direction_D = torch.nn.functional.normalize(halves_2D[0] - halves_2D[1], dim=0)
            along_M = (own_MD[1 - first :: 2] - halves_2D.mean(dim=0)) @ direction_D
            parts = (along_M[along_M > 0], along_M[along_M <= 0])
            if not HALF <= len(parts[0]) / len(along_M) <= 1 - HALF:
                continue
            gap = float(parts[0].mean() - parts[1].mean())
            deviation = math.sqrt(sum(float(part.var(correction=0)) for part in parts) / 2)
            nearest = float(torch.cdist(halves_2D, others_CD).min())
            if gap > max(FAR * deviation, AS_CLASSES * usual, nearest):
                labels.append(label)
                break
    return labels


def two_halves(x_MD: Tensor) -> tuple[Tensor, Tensor]:
    """Part samples in two by their nearest of two means, from the first principal direction; mark those of the first.

    >>> two_halves(torch.tensor([[0.0], [0.1], [1.0]]))[0].tolist() in ([True, True, False], [False, False, True])
    True
    """
    centred_MD = x_MD - x_MD.mean(dim=0)
    direction_D = torch.ones(x_MD.shape[1], dtype=x_MD.dtype)
    for _ in range(10):  # power iterations; any direction along which halves differ will do
        direction_D = torch.nn.functional.normalize(centred_MD.T @ (centred_MD @ direction_D), dim=0)
    is_first_M = centred_MD @ direction_D > 0
    means_2D = x_MD[:2]
    for _ in range(10):
        if is_first_M.all() or not is_first_M.any():
            break
        means_2D = torch.stack([x_MD[is_first_M].mean(dim=0), x_MD[~is_first_M].mean(dim=0)])
        distance_M2 = torch.cdist(x_MD, means_2D)
        is_first_M = distance_M2[:, 0] < distance_M2[:, 1]
    return is_first_M, means_2D


METRICS = (
    unshown_metric(name="label_noise", of=LabelAgreement, at="agreement.noise", source="northcutt2021", unit="share"),
)
