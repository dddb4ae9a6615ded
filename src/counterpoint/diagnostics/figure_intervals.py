"""How well figures of a place are known: 95 % intervals of those that findings are drawn from."""

# N samples, D features, G groups

import math
from collections.abc import Callable

import torch
from torch import Tensor

from counterpoint.core.jackknife import jackknife_half_width
from counterpoint.core.numerics import unit_rows
from counterpoint.core.paired_shares import Z_95
from counterpoint.core.thread_parts import side_by_side
from counterpoint.diagnostics.spectra import effective_rank
from counterpoint.diagnostics.vanished import vanished_directions

GROUPS = 10
MOST_DIMS = 1024  # beyond, ten spectra would take longer than all else

Intervals = dict[str, tuple[float, float]]


def figure_intervals(unit_ND: Tensor, views: tuple[Tensor, Tensor] | None) -> Intervals:
    """Intervals of spread, effective rank and vanished directions, and of the cosine of views.

    Args:
        unit_ND: unit-length features, float64.
        views: features of two views of some samples.
    """
    found = spectral_intervals(unit_ND) if unit_ND.shape[1] <= MOST_DIMS and len(unit_ND) >= 2 * GROUPS else {}
    if views is not None and len(views[0]) > 1:
        cosines_N = (unit_rows(views[0].double()) * unit_rows(views[1].double())).sum(dim=1)
        mean, error = float(cosines_N.mean()), float(cosines_N.std()) / math.sqrt(len(cosines_N))
        found["positive_cosine"] = (max(mean - Z_95 * error, -1.0), min(mean + Z_95 * error, 1.0))
    return found


def spectral_intervals(unit_ND: Tensor) -> Intervals:
    """Intervals by leaving out each of ten interleaved groups of samples (see ``core.jackknife``)."""
    groups = [unit_ND[first::GROUPS] for first in range(GROUPS)]
    sums = side_by_side(lambda rows: (len(rows), rows.sum(dim=0), rows.T @ rows), groups)
    count, total_D, gram_DD = len(unit_ND), sum(s for _, s, _ in sums), sum(g for _, _, g in sums)
    left = [(count, total_D, gram_DD), *((count - n, total_D - s, gram_DD - g) for n, s, g in sums)]
    spectra = side_by_side(lambda part: (part[0], _spectrum(*part)), left)
    measures: dict[str, Callable[[int, Tensor], float]] = {
        "spread": lambda num, lambda_D: math.sqrt(float(lambda_D.sum()) * (num - 1) / num),
        "effective_rank": lambda _, lambda_D: effective_rank(lambda_D),
        "vanished": lambda num, lambda_D: float(vanished_directions(lambda_D, num).count),
    }
    found: Intervals = {}
    for name, measure in measures.items():
        whole, *parts = (measure(num, lambda_D) for num, lambda_D in spectra)
        half = jackknife_half_width(parts)
        found[name] = (max(whole - half, 0.0), whole + half)
    return found


def _spectrum(count: int, total_D: Tensor, gram_DD: Tensor) -> Tensor:
    """Eigenvalues of a covariance from sums, descending, without those at the level of rounding."""
    mean_D = total_D / count
    lambda_D = torch.linalg.eigvalsh((gram_DD - count * torch.outer(mean_D, mean_D)) / (count - 1)).flip(0)
    noise = len(lambda_D) * torch.finfo(torch.float64).eps * max(float(gram_DD.trace()) / count, 0.0)
    return torch.where(lambda_D > noise, lambda_D, 0.0)
