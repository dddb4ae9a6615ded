"""Differences between samples: along the rows, in two parts told apart by a classifier, in altered pictures."""

# N samples or pictures, M samples of both parts, D features, S shuffles, B blocks; C channels, P = 2 C moments

import itertools
import math
from collections.abc import Callable

import torch
from scipy.stats import chi2
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import evenly_spaced, rowwise, unit_rows
from counterpoint.core.stored_rows import row_slices
from counterpoint.diagnostics.evidence import AlteredInput, ToldApart
from counterpoint.diagnostics.label_agreement import left_out_fit

NUM_BLOCKS = 10
FEWEST_SAMPLES = 100
ERRORS = 8.0  # standard errors of rows in random order
MOST_LOOKED_AT = 2048  # samples that measure the scatter of chance
SHUFFLES = 100  # of the parts within classes
FEWEST_OF_PART = 20
MOST_OF_PART = 512
FEWEST_PICTURES = 50  # of fewer the means scatter so far that pictures from elsewhere look like altered ones
# Chosen on CIFAR-10 (parts of it, single classes) against Caltech-101 and drawings.
DIFFERENT = 0.5  # deviations of single pictures from the statistics of training
TIMES = 3.0  # as far as after the change was undone
SLACK = 0.1  # deviations, by which another part of the same data, or its resizing, may differ
SAME_CHANCE = 0.999  # of pictures of the same source to be as near as that
LEAST_CHANGE = 0.25  # of a scale
OTHER_UNITS = 0.1  # factors below are not changes of light: one channel cannot distinguish those from other pictures
CHANNELS = ("red", "green", "blue")


def matched_parts(first_N: Tensor, second_N: Tensor, labels_N: Tensor | None) -> tuple[Tensor, Tensor]:
    """Choose as many samples of both parts, and of each class in both, evenly spaced, at most 512 of a part.

    Args:
        first_N: positions of one part.
        second_N: positions of the other part.
        labels_N: class numbers of all samples; those without one are left out where others have one.

    >>> matched_parts(torch.tensor([0, 1, 2]), torch.tensor([3, 4]), torch.tensor([0, 0, 1, 0, 0]))
    (tensor([0, 1]), tensor([3, 4]))
    """
    if labels_N is None or not bool((labels_N >= 0).any()):
        labels_N = torch.zeros(int(max(first_N.max(), second_N.max())) + 1, dtype=torch.int64)
    chosen: tuple[list[Tensor], list[Tensor]] = ([], [])
    for label in labels_N[labels_N >= 0].unique().tolist():
        of_class = [part_N[labels_N[part_N] == label] for part_N in (first_N, second_N)]
        size = min(map(len, of_class))
        for part, places in zip(chosen, of_class, strict=True):
            part.append(evenly_spaced(places, size))
    first, second = (torch.cat(part) for part in chosen)
    spaced = evenly_spaced(torch.arange(len(first)), MOST_OF_PART)
    return first[spaced], second[spaced]


def told_apart(
    first_ND: Tensor, second_ND: Tensor, labels_N: Tensor | None, *, generator: torch.Generator
) -> ToldApart | None:
    """Tell two parts apart by a ridge regression on standardised features that leaves out each sample in turn.

    Chance is what the same regression finds in parts that were shuffled within classes.

    Source: lopezpaz2017 (a classifier as a two-sample test). Differs from it in the regression, whose answers on
    samples left out are exact, so that small parts are not split; and in the area under the curve for the accuracy.

    Args:
        first_ND: features of one part.
        second_ND: features of the other part, as many and of the same classes; with fewer than 20 the result is None.
        labels_N: class numbers of a part, the same for both; None if there are none.
        generator: source of the random numbers that shuffle.

    >>> z = torch.randn(200, 8, generator=torch.manual_seed(0))
    >>> told_apart(z[:100], z[100:], None, generator=torch.manual_seed(0)).is_apart
    False
    >>> told_apart(z[:100], z[100:] + 1, None, generator=torch.manual_seed(0)).is_apart
    True
    """
    for name, part in (("first", first_ND), ("second", second_ND)):
        check_features(part, name, min_rows=1)
    half = len(first_ND)
    if half < FEWEST_OF_PART:
        return None
    x_MD = torch.cat([first_ND, second_ND]).double()
    x_MD = x_MD - x_MD.mean(dim=0)
    scale_D = x_MD.square().mean(dim=0).sqrt()
    x_MD = torch.where(scale_D > 1e-9 * scale_D.max(), x_MD / scale_D, 0.0)
    is_second_M = (torch.arange(2 * half) >= half).double()
    label_M = torch.zeros(2 * half) if labels_N is None else labels_N.repeat(2).double()
    columns, order_M = [is_second_M], label_M.argsort(stable=True)
    for _ in range(SHUFFLES):
        shuffled_M = torch.empty_like(is_second_M)
        noise_M = torch.rand(2 * half, generator=generator, dtype=torch.float64)
        shuffled_M[order_M] = is_second_M[(label_M + noise_M).argsort()]
        columns.append(shuffled_M)
    y_MS = torch.stack(columns, dim=1)
    rank_MS = left_out_fit(x_MD, y_MS).argsort(dim=0).argsort(dim=0).double()
    auc_S = ((rank_MS * y_MS).sum(dim=0) - half * (half - 1) / 2) / half**2
    return ToldApart(
        auc=float(auc_S[0]), chance=float(auc_S[1:].mean()), error=float(auc_S[1:].std()),
        num_samples=2 * half, has_classes=labels_N is not None,
    )  # fmt: skip


def picture_moments(pictures_NCHW: Tensor) -> Tensor:
    """Mean and mean square of each channel of each picture, (N, 2 C), float64.

    >>> picture_moments(torch.tensor([[[[0.0, 2.0]]]])).tolist()
    [[1.0, 2.0]]
    """
    values_NCQ = pictures_NCHW.double().flatten(2)
    return torch.cat([values_NCQ.mean(dim=2), values_NCQ.square().mean(dim=2)], dim=1)


def altered_input(moments_NP: Tensor, mean_C: Tensor, std_C: Tensor) -> AlteredInput | None:
    """The one change that explains why pictures differ from those of training; None if none does.

    Tried are other orders of the channels, inversion and scales. Undoing it must bring the moments back to where
    other pictures of the same source would be, and a third as far as they were or nearer: pictures from elsewhere,
    which differ in all moments at once, are not taken for altered ones.

    Args:
        moments_NP: moments of the pictures, from ``picture_moments``, of values in [0, 1].
        mean_C: mean of each channel in training.
        std_C: standard deviation of each channel in training; 1 for a constant one.

    >>> x = torch.rand(400, 1, 8, 8, generator=torch.manual_seed(0)) ** 2
    >>> channels = x.double().mean()[None], x.double().std()[None]
    >>> altered_input(picture_moments(x), *channels), altered_input(picture_moments(1 - x), *channels).change
    (None, 'inverted')
    """
    num, num_moments = moments_NP.shape
    target_P = torch.cat([mean_C, std_C.square() + mean_C.square()]).double()
    if num < FEWEST_PICTURES or bool((std_C > 0.5).any()):
        return None

    def distance(undone_NP: Tensor) -> float:
        off_P, scatter_PP = undone_NP.mean(dim=0) - target_P, undone_NP.T.cov().reshape(num_moments, num_moments)
        scatter_PP = scatter_PP + torch.diag(0.01 * scatter_PP.diagonal() + 1e-12)
        return float(off_P @ torch.linalg.solve(scatter_PP, off_P)) ** 0.5

    first_NC, square_NC = moments_NP.chunk(2, dim=1)
    tried = {"inverted": torch.cat([1 - first_NC, 1 - 2 * first_NC + square_NC], dim=1)}
    if (num_channels := len(mean_C)) == len(CHANNELS):
        for order in list(itertools.permutations(range(num_channels)))[1:]:
            names = ", ".join(CHANNELS[order.index(place)] for place in range(num_channels))
            undone_NP = moments_NP[:, [*order, *(num_channels + place for place in order)]]
            tried[f"with channels in another order ({names})"] = undone_NP
    factor = float(first_NC.mean() / mean_C.mean())
    if abs(factor - 1) >= LEAST_CHANGE and factor > 0 and (num_channels > 1 or factor < OTHER_UNITS):
        words = f"{'darker' if factor < 1 else 'lighter'}, scaled by {factor:.2g}"
        tried[words] = torch.cat([first_NC / factor, square_NC / factor**2], dim=1)
    before = distance(moments_NP)
    same_limit = SLACK + (2 * float(chi2.ppf(SAME_CHANCE, num_moments)) / num) ** 0.5
    after = sorted((distance(undone_NP), change) for change, undone_NP in tried.items())
    fits = [(remaining, change) for remaining, change in after if remaining <= min(same_limit, before / TIMES)]
    if before < DIFFERENT or not fits:
        return None
    return AlteredInput(change=", or ".join(change for _, change in fits[:2]), distance=before, undone=fits[0][0])


def order_share(z_ND: Tensor, labels_N: Tensor | None = None) -> float:
    r"""Share of the variance that tells ten blocks of consecutive rows apart, beyond chance; 0 within chance.

    .. math:: \frac{\sum_b n_b |m_b - m|^2 - (B - 1) \mathrm{tr}\,S}{(N - 1)\, \mathrm{tr}\,S}

    In random order the first sum is :math:`(B - 1) \mathrm{tr}\,S` with variance :math:`2 (B - 1) \mathrm{tr}\,S^2`;
    up to eight standard errors count as chance. The larger of two shares: of the features at unit length, and of the
    logarithms of their lengths.

    Args:
        z_ND: features in their order; with fewer than 100 rows the result is NaN.
        labels_N: class numbers, whose means are taken away first, so that rows in the order of their classes show none.

    >>> z = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
    >>> order_share(z), order_share(z + torch.linspace(-1, 1, 1000)[:, None]) > 0.1
    (0.0, True)
    """
    if len(z_ND) < FEWEST_SAMPLES:
        return math.nan
    length_N1 = rowwise(lambda rows: torch.linalg.vector_norm(rows.double(), dim=1, keepdim=True), z_ND)
    log_N1 = length_N1.clamp(min=1e-12 * float(length_N1.max()) + 1e-300).log()
    return max(_block_share(log_N1, labels_N), _block_share(z_ND, labels_N, unit_rows))


def _block_share(z_ND: Tensor, labels_N: Tensor | None, scaled: Callable[[Tensor], Tensor] = torch.clone) -> float:
    """Share of the scatter of scaled rows that lies between blocks; rows are taken in parts, as all may be large."""
    class_N = torch.zeros(len(z_ND), dtype=torch.int64) if labels_N is None else labels_N.unique(return_inverse=True)[1]
    sums = torch.zeros(int(class_N.max()) + 1, z_ND.shape[1], dtype=torch.float64)
    for part in row_slices(len(z_ND), MOST_LOOKED_AT):
        sums.index_add_(0, class_N[part], scaled(z_ND[part].double()))
    means = sums / torch.bincount(class_N)[:, None]

    def centred(rows: Tensor) -> Tensor:
        return scaled(z_ND[rows].double()) - means[class_N[rows]]

    total = between = 0.0
    for rows in torch.arange(len(z_ND)).tensor_split(NUM_BLOCKS):
        block = centred(rows)
        total += float(block.square().sum())
        between += len(block) * float(block.mean(dim=0).square().sum())
    free = len(z_ND) - 1
    trace = total / free
    # The scatter of chance from some of the rows, which is all that it needs.
    sample_ND = centred(evenly_spaced(torch.arange(len(z_ND)), MOST_LOOKED_AT)).float()
    gram = sample_ND.T @ sample_ND if sample_ND.shape[1] < len(sample_ND) else sample_ND @ sample_ND.T
    square_trace = float(gram.square().sum()) / len(sample_ND) ** 2
    excess = between - (NUM_BLOCKS - 1) * trace
    is_chance = excess <= ERRORS * math.sqrt(2 * (NUM_BLOCKS - 1) * square_trace)
    # Lengths that differ by rounding alone are in no order.
    return 0.0 if is_chance or trace < 1e-12 else excess / total


METRICS = (
    unshown_metric(name="row_order", of=order_share, at="z_ND", source="welch1947", unit="share"),
    unshown_metric(name="row_order_within", of=order_share, at="z_ND labels_N", source="welch1947", unit="share"),
)
