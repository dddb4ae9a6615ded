"""How many directions of features have vanished, against what isotropic features of the same shape would show."""

# N samples, D features, K = min(N - 1, D) directions that N samples can show, R of them resolved

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from counterpoint.core.metric import Metric, unshown_metric

NUM_ANGLES = 4096  # at which the null's distribution is integrated
LEAST_NULL = 0.01  # of the null's mean: below, single eigenvalues of isotropic features scatter by decades
STEP, SLOPE = 1.0, 2.0  # decades: from one direction to the next, and within a 32nd of all
SMALL = 1e-2  # of the mean variance: what lies below a step is no more
NOTHING = 1e-6  # of the mean variance: vanished without any step
BAND, EDGE = 2.0, 1.5  # places, and widths of the edge, by which eigenvalues of isotropic features scatter
FLOOR = 1e-16  # of the largest variance, for logarithms of what rounding has left


@dataclass(frozen=True)
class Vanished:
    """Directions that carry nothing.

    Attributes:
        count: of the resolved ones, how many have vanished.
        resolved: how many directions N samples tell anything about.
        step: decades of variance between the last direction that is alive and the first that has vanished; 0 where
            none has.
    """

    count: int
    resolved: int
    step: float


def vanished_directions(spectrum_D: Tensor, num_samples: int) -> Vanished:
    """Count the directions whose variance falls away from the others.

    Each singular value of the covariance is divided by the one that isotropic features of the same shape have at its
    place (``isotropic_spectrum``). Counting from the largest, the first direction has vanished that lies a decade
    below the one before it, or two decades below the one a 32nd of all directions before, and has at most a hundredth
    of the mean variance; or that has at most a millionth of it. All behind it have vanished, too. A smooth fall, as of
    a power law, is not collapse, however long it is.

    Source: directclr2022, section 3, whose figures show such steps; the limits are ours (docs/diagnosis-reference.md).

    Args:
        spectrum_D: from ``spectra.covariance_spectrum``, descending.
        num_samples: that it was estimated from.

    Returns:
        Counts; all directions of constant features have vanished.

    >>> found = vanished_directions(torch.tensor([1.0] * 40 + [1e-8] * 88), 5000)
    >>> found.count, found.resolved, round(found.step)
    (88, 128, 8)
    """
    null_K = isotropic_spectrum(num_samples, len(spectrum_D))
    num_resolved = int((null_K >= LEAST_NULL * null_K.mean()).sum())
    lambda_R = spectrum_D[:num_resolved].double()
    if num_resolved == 0 or float(lambda_R[0]) == 0:
        return Vanished(num_resolved, num_resolved, 0.0)
    decades_R = (lambda_R / null_K[:num_resolved]).clamp(min=FLOOR * float(lambda_R[0])).log10()
    mean = float(lambda_R.mean())
    alive = int((lambda_R > NOTHING * mean).sum())  # or those before the first step
    for reach, limit in ((1, STEP), (max(2, num_resolved // 32), SLOPE)):
        fall = decades_R[:-reach] - decades_R[reach:]
        places = ((fall >= limit) & (lambda_R[reach:] <= SMALL * mean)).nonzero()[:, 0]
        if len(places):
            first = int(places[0])
            within = decades_R[first : first + reach] - decades_R[first + 1 : first + reach + 1]
            alive = min(alive, first + int(within.argmax()) + 1)
    step = float(decades_R[alive - 1] - decades_R[alive]) if alive < num_resolved else 0.0
    return Vanished(num_resolved - alive, num_resolved, step)


@lru_cache(maxsize=64)
def isotropic_spectrum(num_samples: int, num_dims: int) -> Tensor:
    r"""Eigenvalues that the covariance of isotropic features of variance 1 has, descending: Marchenko and Pastur's law.

    .. math:: f(x) = \frac{\sqrt{(b - x)(x - a)}}{2 \pi \gamma x}, \qquad a, b = (1 \mp \sqrt\gamma)^2, \quad
        \gamma = D / (N - 1)

    at the quantiles (k - 1/2) / K. With fewer samples than dimensions those of the N - 1 values that are not zero.

    Source: marchenko1967.

    >>> [round(value, 2) for value in isotropic_spectrum(10**8, 3).tolist()]
    [1.0, 1.0, 1.0]
    """
    count = min(max(num_samples - 1, 1), num_dims)
    return _quantiles(num_samples, num_dims, (torch.arange(count, dtype=torch.float64) + 0.5) / count).flip(0)


def isotropic_band(num_samples: int, num_dims: int) -> tuple[Tensor, Tensor]:
    """Range (k,), (k,) in which single eigenvalues of isotropic features lie, around ``isotropic_spectrum``.

    Eigenvalues repel each other, so the k-th lies within ``BAND`` places of its own; at both ends it may pass the edge
    of the law by the width of Tracy and Widom's. In draws of 20 to 2,000 samples in 2 to 300 dimensions 99 % of the
    values lie inside (the tests ask for 95 %).

    Source: marchenko1967; johnstone2001, whose scale of the largest value is used for both ends.

    >>> low, high = isotropic_band(1000, 1)
    >>> bool(low[0] < 1 < high[0])
    True
    """
    free = max(num_samples - 1, 1)
    count = min(free, num_dims)
    place_K = torch.arange(count, dtype=torch.float64) + 0.5
    ends = [((place_K + shift) / count).clamp(0, 1) for shift in (-BAND, BAND)]
    low_K, high_K = (_quantiles(num_samples, num_dims, wanted_K).flip(0) for wanted_K in ends)
    # Johnstone's scale, over the edge that it belongs to; a single direction has a variance of chi squared.
    root, other = free**0.5, num_dims**0.5
    widths = [abs(root + sign * other) * abs(1 / root + sign / other) ** (1 / 3) / free for sign in (1, -1)]
    return (low_K - EDGE * widths[1]).clamp(min=0), high_K + EDGE * widths[0]


def _quantiles(num_samples: int, num_dims: int, wanted_K: Tensor) -> Tensor:
    """Quantiles of Marchenko and Pastur's law, of the values that are not zero."""
    ratio = num_dims / max(num_samples - 1, 1)
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    # x = middle - half cos(angle): the density is then smooth at both ends.
    angle_A = torch.linspace(0, torch.pi, NUM_ANGLES + 1, dtype=torch.float64)
    x_A = (low + high) / 2 - (high - low) / 2 * angle_A.cos()
    density_A = angle_A.sin().square() / x_A.clamp(min=1e-300)
    mass_A = torch.cumulative_trapezoid(density_A, angle_A)
    share_A = torch.cat([torch.zeros(1, dtype=torch.float64), mass_A / mass_A[-1]])
    place_K = torch.searchsorted(share_A, wanted_K).clamp(1, NUM_ANGLES)
    before_K, after_K = share_A[place_K - 1], share_A[place_K]
    part_K = (wanted_K - before_K) / (after_K - before_K)
    return x_A[place_K - 1] + part_K * (x_A[place_K] - x_A[place_K - 1])


METRICS = (
    Metric(
        name="vanished",
        title="Vanished directions",
        short="vanished directions",
        definition="How many of the directions that the samples resolve carry nothing: their variance lies a "
        "decade or more below the direction before, against isotropic features of the same shape, and below a "
        "hundredth of the mean. Any such direction is dimensional collapse.",
        source="directclr2022",
        measure=lambda subject: subject.vanished.count,
        low=0.0,
        is_higher_better=False,
        reference="resolved",
        wording="directions",
        leads="has the most directions alive",
    ),
    unshown_metric(name="vanished_step", of=Vanished, at="vanished.step", source="directclr2022"),
    unshown_metric(name="resolved", of=Vanished, at="vanished.resolved", source="marchenko1967"),
)
