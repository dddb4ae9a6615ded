"""Spectra on a logarithmic axis, down to the floor of the arithmetic, beside the band of isotropic features."""

# D eigenvalues, K of the band

import math
import sys

import numpy as np
from numpy.typing import NDArray

from counterpoint.report.charts.line_chart import Band, Reference
from counterpoint.report.charts.ticks import Axis, evenly_chosen

MAX_POINTS = 160  # of a line
FLOOR_WORDS = "floor: rounding"


def rounding(values_D: NDArray[np.float64]) -> float:
    """The level that a covariance in float64 resolves: D eps of its largest eigenvalue, 12 decades below and more.

    >>> round(math.log10(rounding(np.array([1.0] * 128))), 1)
    -13.5
    """
    return len(values_D) * sys.float_info.epsilon * float(values_D[0]) if values_D.size else 0.0


def log_values(values_D: NDArray[np.float64], floor: float) -> list[float | None]:
    """Logarithms of a descending spectrum, on the floor where they lie below it; None where all are 0."""
    least = max(floor, 0.0)
    if not values_D.size or values_D[0] <= 0 or least <= 0:
        return [math.log10(value) if value > 0 else None for value in values_D]
    return [math.log10(max(float(value), least)) for value in values_D]


def floor_reference(values_D: NDArray[np.float64], floor: float) -> Reference | None:
    """The floor, where a spectrum reaches it; None for one that stays above."""
    is_reached = values_D.size and values_D[0] > floor > 0 and values_D[-1] <= floor
    return Reference(FLOOR_WORDS, math.log10(floor)) if is_reached else None


def spectrum_band(band_2K: NDArray[np.float64], axis: Axis) -> Band:
    """The band of isotropic features at the places of the eigenvalues, from 1, within an axis of logarithms."""
    low, high = ([_log_within(float(value), axis) for value in ends] for ends in band_2K)
    chosen = evenly_chosen(band_2K.shape[1], MAX_POINTS)
    return Band([at + 1.0 for at in chosen], [low[at] for at in chosen], [high[at] for at in chosen])


def _log_within(value: float, axis: Axis) -> float:
    """A logarithm, moved to the end of the axis where it lies beyond."""
    return min(max(math.log10(value), axis.low), axis.high) if value > 0 else axis.low
