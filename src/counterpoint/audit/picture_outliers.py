"""Pictures that lie far from all others, by layout and colour."""

# N pictures, D features

import math
from dataclasses import dataclass

import numpy as np
from sklearn.neighbors import NearestNeighbors

from counterpoint.audit.picture_pass import PictureStatistics
from counterpoint.core.thread_parts import one_blas_thread

NEIGHBOUR = 5  # whose distance is the score: a few pictures of one odd kind are odd, too
NUM_DIRECTIONS = 20
BODY, TAIL = 0.80, 0.98  # quantiles between which the tail is fitted; what lies beyond the second has no say in it
FALSE_ALARMS = 0.01  # chance that any picture is named where the tail is as it is fitted
FEWEST = 100
EULER = 0.5772156649


@dataclass(frozen=True)
class Outliers:
    """Pictures that lie far from all others.

    Attributes:
        positions: of those beyond the limit, farthest first.
        largest: distance of the farthest picture.
        expected: of the farthest among this number of pictures.
        low: lower end of the 95 % interval of that.
        high: upper end.
    """

    positions: np.ndarray
    largest: float
    expected: float
    low: float
    high: float


def outliers(looks: PictureStatistics, ids: np.ndarray) -> Outliers | None:
    r"""Pictures whose fifth nearest neighbour is farther than expected for the farthest of all.

    Features are grey levels in 8 x 8 cells and the square roots of a colour histogram, on their first 20 principal
    directions. The logarithm of the distance is taken to have an exponential tail above its 80 % quantile :math:`u`,
    with the scale :math:`s` that its 98 % quantile gives; the largest of n then follows a Gumbel distribution,

    .. math:: P(\max \le x) = \exp(-0.2 n\, e^{-(x - u) / s}).

    Args:
        looks: of all pictures.
        ids: which of them are compared: readable ones, one of each group of copies.

    Returns:
        None for fewer than 100 pictures, or where they are all alike.
    """
    if len(ids) < FEWEST:
        return None
    with one_blas_thread():
        features_ND = _features(looks, ids).astype(np.float64)
        # Each picture is the first of its own neighbours.
        search = NearestNeighbors(n_neighbors=NEIGHBOUR + 1, algorithm="brute").fit(features_ND)
        distance_NK, _ = search.kneighbors(features_ND)
    return _beyond(distance_NK[:, -1], ids)


def _beyond(distance_N: np.ndarray, ids: np.ndarray) -> Outliers | None:
    """Which distances are larger than the largest of all should be."""
    log_N = np.log(np.maximum(distance_N, 1e-6))
    body, tail = np.quantile(log_N, (BODY, TAIL))
    scale = (tail - body) / math.log((1 - BODY) / (1 - TAIL))
    if scale <= 1e-9:
        return None
    number = (1 - BODY) * len(log_N)

    def largest(chance: float) -> float:
        return float(np.exp(body + scale * (math.log(number) - math.log(-math.log(chance)))))

    order = np.argsort(-distance_N, kind="stable")
    return Outliers(
        positions=ids[order[distance_N[order] > largest(1 - FALSE_ALARMS)]],
        largest=float(distance_N.max()),
        expected=float(np.exp(body + scale * (math.log(number) + EULER))),
        low=largest(0.025),
        high=largest(0.975),
    )


def _features(looks: PictureStatistics, ids: np.ndarray) -> np.ndarray:
    """Layout and colours on their principal directions, float32 (n, d)."""
    grey = looks.cells_N883[ids].mean(3).reshape(len(ids), -1) / 255
    # Distances of square roots are those of Hellinger between the histograms; eight per cell weigh as the layout does.
    plain_ND = np.concatenate([grey, 2 * np.sqrt(looks.histogram_NK[ids])], axis=1)
    centred_ND = plain_ND - plain_ND.mean(0)
    _, directions_DD = np.linalg.eigh(centred_ND.T @ centred_ND)
    return np.ascontiguousarray((centred_ND @ directions_DD[:, ::-1][:, :NUM_DIRECTIONS]).astype(np.float32))
