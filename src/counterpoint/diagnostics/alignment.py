"""Measures of views that lie together and samples that lie apart, and of colours that alone would show that."""

# N samples or pictures, C channels, H, W pixels, D features, K = 2 C statistics

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import Metric, unshown_metric
from counterpoint.core.numerics import evenly_spaced, rowwise, unit_doubles, unit_rows
from counterpoint.core.stored_rows import row_slices
from counterpoint.diagnostics.evidence import ColourShortcut

MAX_PAIR_SAMPLES = 2048  # pairs are counted among this many samples, at most
NUM_BINS = 80
ROWS = 4096  # at once
SAME = 0.9999  # cosine of two views that hardly differ
CLOSE = 0.05  # of the samples, by their colours
IDENTITY_RIDGE = 0.01  # chosen on digits, textures and drawn patterns; 0.1 ordered the encoders of textures worse


def alignment(z0_ND: Tensor, z1_ND: Tensor) -> float:
    r"""Mean squared distance between unit-length views of one sample; 0 is best, 2 means no relation.

    .. math:: \frac1N \sum_i \big| \hat z_i - \hat z_i' \big|^2

    Source: wang2020, section 4.1 (alpha = 2).

    >>> alignment(torch.eye(3), torch.eye(3))
    0.0
    """
    _check_views(z0_ND, z1_ND, min_rows=1)
    # wang2020, section 4.1, with alpha = 2.
    return float(rowwise(lambda a, b: (unit_doubles(a) - unit_doubles(b)).square().sum(dim=1), z0_ND, z1_ND).mean())


def uniformity(z_ND: Tensor) -> float:
    r"""Log of the mean Gaussian potential between different unit-length samples; lower is more spread out.

    .. math:: \log \frac{2}{N(N-1)} \sum_{i<j} e^{-2 |\hat z_i - \hat z_j|^2}

    Source: wang2020, section 4.1 (t = 2). 0 if all samples coincide; about -4 + 8/d for directions spread evenly in d
        dimensions.

    At most ``MAX_PAIR_SAMPLES`` samples, evenly spaced, are compared.

    >>> round(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])), 6)
    -8.0
    """
    check_features(z_ND, "z")
    squared_distances = torch.pdist(unit_subset(z_ND)).square()  # right for silent samples too, which have no cosine
    return float(torch.logsumexp(-2.0 * squared_distances, dim=0)) - math.log(len(squared_distances))


def mean_cosine(z_ND: Tensor) -> float:
    r"""Mean cosine between different samples; 1 if all point the same way.

    .. math:: \frac{|\sum_i \hat z_i|^2 - \sum_i |\hat z_i|^2}{N(N-1)}

    >>> mean_cosine(torch.eye(3))
    0.0
    """
    check_features(z_ND, "z")
    sum_D, squares = torch.zeros(z_ND.shape[1], dtype=torch.float64), 0.0
    for part in row_slices(len(z_ND), ROWS):
        unit_ND = unit_doubles(z_ND[part])
        sum_D += unit_ND.sum(dim=0)
        squares += float(unit_ND.square().sum())
    # |sum|^2 - sum|.|^2 is the sum over all ordered pairs, without forming any of them.
    return (float(sum_D.square().sum()) - squares) / (len(z_ND) * (len(z_ND) - 1))


@dataclass(frozen=True)
class CosineHistogram:
    """Cosines between two views of one sample, and between different samples.

    Attributes:
        edges: bin edges from -1 to 1.
        positive: number of cosines in each bin, for two views of one sample.
        negative: number of cosines in each bin, for different samples.
        positive_mean: mean cosine between two views of one sample.
    """

    edges: Tensor
    positive: Tensor
    negative: Tensor
    positive_mean: float


def cosine_histogram(z0_ND: Tensor, z1_ND: Tensor) -> CosineHistogram:
    """Count both kinds of cosine in equal bins."""
    _check_views(z0_ND, z1_ND)
    # Clamped: rounding carries a cosine beyond 1, and ``histogram`` drops what lies outside its edges.
    positive = view_cosines(z0_ND, z1_ND).clamp(-1.0, 1.0)
    negative = _pair_cosines(z0_ND).clamp(-1.0, 1.0)
    edges = torch.linspace(-1.0, 1.0, NUM_BINS + 1, dtype=torch.float64)
    counts = [torch.histogram(values, edges).hist.long() for values in (positive, negative)]
    return CosineHistogram(edges, counts[0], counts[1], float(positive.mean()))


def overlap(z0_ND: Tensor, z1_ND: Tensor) -> float:
    r"""Share of cases in which two views of one sample have a larger cosine than two different samples.

    The area under the curve of the two kinds of cosine: 1 where they are apart, 0.5 where views are unrelated.

    Source: hanley1982. Of pairs among at most ``MAX_PAIR_SAMPLES`` samples.

    >>> overlap(torch.eye(3), torch.eye(3))
    1.0
    """
    _check_views(z0_ND, z1_ND)
    positive = view_cosines(z0_ND, z1_ND)
    negative = _pair_cosines(z0_ND).sort().values
    # Equal cosines count one half.
    below = torch.searchsorted(negative, positive, right=False) + torch.searchsorted(negative, positive, right=True)
    return float(below.double().mean()) / (2 * len(negative))


def identified(z_ND: Tensor, z0_ND: Tensor, z1_ND: Tensor) -> float:
    r"""Share of views that a linear classifier gives to their own sample, one class per sample, learned without views.

    .. math:: \frac{1}{2N} \sum_{v, i} \big[ i = \arg\max_j \hat z_{vi}^\top W_j \big], \qquad
        W = (Z^\top Z / D + \lambda I)^{-1} Z^\top

    of centred features at a mean square of 1, with lambda = ``IDENTITY_RIDGE``. 1 where every sample has a direction of
    its own that the views leave alone, 1 / N where they tell nothing.

    Source: wu2018 has samples as classes; here ridge regression, by which frozen features are judged.

    >>> identified(torch.eye(3), torch.eye(3), torch.eye(3)[[1, 2, 0]])
    0.5
    """
    _check_views(z_ND, z0_ND)
    _check_views(z0_ND, z1_ND)
    # Differs from wu2018: nothing is trained, and the classifier never sees a view.
    mean_D = z_ND.double().mean(dim=0)
    own_ND, width = z_ND.double() - mean_D, z_ND.shape[1]
    power = own_ND.square().mean()
    if not power > 0:
        return 1 / len(z_ND)
    penalty_DD = IDENTITY_RIDGE * power * torch.eye(width, dtype=torch.float64, device=own_ND.device)
    weight_DN = torch.linalg.solve(own_ND.T @ own_ND / width + penalty_DD, own_ND.T)
    places_N = torch.arange(len(z_ND), device=own_ND.device)
    hits = [((view_ND.double() - mean_D) @ weight_DN).argmax(dim=1) == places_N for view_ND in (z0_ND, z1_ND)]
    return float(torch.stack(hits).double().mean())


def moved_views(z0_ND: Tensor, z1_ND: Tensor) -> float:
    """Share of samples whose closest second view is in another row, closer than any other sample's first view.

    Near 1 where the rows of the two views are in different orders; of unrelated views about one half. Of at most
    ``MAX_PAIR_SAMPLES`` samples.

    >>> moved_views(torch.eye(3), torch.eye(3)[[1, 2, 0]])
    1.0
    """
    _check_views(z0_ND, z1_ND)
    first_ND, second_ND = unit_subset(z0_ND), unit_subset(z1_ND)
    across_NN, within_NN = first_ND @ second_ND.T, (first_ND @ first_ND.T).fill_diagonal_(-math.inf)
    closest_N, place_N = across_NN.max(dim=1)
    is_elsewhere_N = place_N != torch.arange(len(place_N))
    return float((is_elsewhere_N & (closest_N > within_NN.amax(dim=1))).double().mean())


def same_views(z0_ND: Tensor, z1_ND: Tensor) -> float:
    """Share of samples whose two views have a cosine above 0.9999.

    >>> same_views(torch.eye(3), torch.eye(3))
    1.0
    """
    _check_views(z0_ND, z1_ND)
    return float((view_cosines(z0_ND, z1_ND) > SAME).double().mean())


def stray_views(z0_ND: Tensor, z1_ND: Tensor) -> float:
    """Share of samples whose own view ranks as one of another sample, where ranks have two modes; else 0.

    The rank of the own view among all second views is near 0 where it belongs to the sample, and anything alike where
    it does not: twice the share in the farther half. Weak views alone have ranks that thin out, and no second mode.

    >>> z = torch.randn(200, 8, generator=torch.manual_seed(0))
    >>> moved = torch.arange(200).roll(1).where(torch.arange(200) < 80, torch.arange(200))
    >>> 0.3 < stray_views(z, z[moved]) < 0.5, stray_views(z, z)
    (True, 0.0)
    """
    _check_views(z0_ND, z1_ND)
    across_NN = unit_subset(z0_ND) @ unit_subset(z1_ND).T
    rank_N = (across_NN > across_NN.diagonal()[:, None]).double().mean(dim=1)
    stray = 2 * float((rank_N > 0.5).double().mean())
    between = float(((rank_N > 0.1) & (rank_N <= 0.5)).double().mean())
    return min(stray, 1.0) if between <= 0.6 * stray else 0.0  # evenly spread ranks would have 0.4 of it


def view_cosines(z0_ND: Tensor, z1_ND: Tensor) -> Tensor:
    """Cosine of the two views of each sample, float64 (N,)."""
    return rowwise(lambda a, b: (unit_doubles(a) * unit_doubles(b)).sum(dim=1), z0_ND, z1_ND)


def _pair_cosines(z_ND: Tensor) -> Tensor:
    unit = unit_subset(z_ND)
    # Each pair once, none with itself.
    first, second = torch.triu_indices(len(unit), len(unit), offset=1)
    return (unit @ unit.T)[first, second]


def compared(z_ND: Tensor) -> Tensor:
    """Positions of the samples of which all pairs are looked at, evenly spaced."""
    # The first ones of a folder are often all of one class.
    return evenly_spaced(torch.arange(len(z_ND)), MAX_PAIR_SAMPLES)


def unit_subset(z_ND: Tensor) -> Tensor:
    """Unit-length features, float64, of the samples of which all pairs are looked at."""
    return unit_rows(z_ND[compared(z_ND)].double())


def _check_views(z0_ND: Tensor, z1_ND: Tensor, min_rows: int = 2) -> None:
    check_features(z0_ND, "z0", min_rows=min_rows)
    check_features(z1_ND, "z1", min_rows=min_rows)
    if z0_ND.shape != z1_ND.shape:
        raise ValueError(f"z0 and z1 must have the same shape, got {tuple(z0_ND.shape)} and {tuple(z1_ND.shape)}")


def colour_statistics(pictures_NCHW: Tensor) -> Tensor:
    """Mean and standard deviation of each channel, (n, 2 c), float64.

    >>> colour_statistics(torch.tensor([[[[0.0, 2.0]]]])).tolist()
    [[1.0, 1.0]]
    """
    values_NCP = pictures_NCHW.double().flatten(2)
    return torch.cat([values_NCP.mean(dim=2), values_NCP.std(dim=2, correction=0)], dim=1)


def shortcut(statistics: tuple[Tensor, Tensor], z_ND: Tensor) -> ColourShortcut:
    """Judge whether simple statistics of two views solve the task that the loss sets, and whether they did.

    Statistics are centred and scaled to unit deviation over both views before views are compared by cosine.

    Args:
        statistics: statistics of both views, (n, k) each, row i of both for one sample, n >= 20.
        z_ND: embeddings of the first view.

    >>> k = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> result = shortcut((k, k), k)
    >>> result.overlap, result.followed > 0.5
    (1.0, True)
    """
    check_features(z_ND, "z")
    stacked = torch.cat(statistics).double()
    scaled = (stacked - stacked.mean(dim=0)) / stacked.std(dim=0).clamp(min=1e-12)
    first_NK, second_NK = scaled.chunk(2)
    return ColourShortcut(
        overlap=overlap(first_NK, second_NK), followed=followed(first_NK, z_ND), num_samples=len(z_ND)
    )


def followed(x_NK: Tensor, z_ND: Tensor) -> float:
    """Share of samples whose closest other sample by z is among the closest 5 % by x; 0.05 where they are unrelated.

    By cosine of z, and Euclidean distance of x. Of at most ``MAX_PAIR_SAMPLES`` samples, the first ones.

    >>> x = torch.arange(100.0)[:, None]
    >>> followed(x, torch.cat([x.cos(), x.sin()], dim=1)) < 0.2
    True
    """
    x_NK, unit_ND = x_NK[:MAX_PAIR_SAMPLES].double(), unit_rows(z_ND[:MAX_PAIR_SAMPLES].double())
    closest_N = (unit_ND @ unit_ND.T).fill_diagonal_(-math.inf).argmax(dim=1)
    distances_NN = torch.cdist(x_NK, x_NK).fill_diagonal_(math.inf)
    num_close = max(round(CLOSE * (len(x_NK) - 1)), 1)
    limits_N = distances_NN.kthvalue(num_close, dim=1).values
    return float((distances_NN.gather(1, closest_N[:, None])[:, 0] <= limits_N).double().mean())


METRICS = (
    Metric(
        name="uniformity",
        title="Uniformity",
        short="uniformity",
        definition="Logarithm of the mean Gaussian potential between samples on the unit sphere. Lower means more "
        "evenly spread.",
        chance="0 where all samples are one point; -4 where they are spread evenly over many dimensions",
        source="wang2020",
        measure=lambda subject: uniformity(subject.z_ND),
        low=-8.0,
        high=0.0,
        is_higher_better=False,
        leads="is spread most evenly",
    ),
    Metric(
        name="alignment",
        title="Alignment",
        short="alignment",
        definition="Mean squared distance between two views of one sample, on the unit sphere. 0 is best.",
        chance="2 for views in unrelated directions, and 0 where all samples are one point",
        source="wang2020",
        measure=lambda subject: alignment(*subject.views) if subject.views else math.nan,
        low=0.0,
        high=4.0,
        is_higher_better=False,
        leads="keeps views closest",
    ),
    unshown_metric(
        name="positive_cosine", of=CosineHistogram, at="cosines.positive_mean", source="wang2020", unit="cosine"
    ),
    unshown_metric(name="overlap", of=overlap, at="views", source="hanley1982", unit="share"),
    unshown_metric(name="moved_views", of=moved_views, at="views", source="wang2020", unit="share"),
    unshown_metric(name="same_views", of=same_views, at="views", source="wang2020", unit="share"),
    unshown_metric(name="stray_views", of=stray_views, at="views", source="wang2020", unit="share"),
    unshown_metric(name="negative_cosine", of=mean_cosine, at="z_ND", source="wang2020", unit="cosine"),
)
