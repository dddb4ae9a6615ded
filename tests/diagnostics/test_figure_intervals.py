"""Intervals of figures: by leaving rows out for real, and how often they hold the truth."""

import math

import pytest
import torch
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.core.paired_shares import jackknife_half_width
from counterpoint.diagnostics.crowding import spread
from counterpoint.diagnostics.measure import GROUPS, MOST_DIMS, figure_intervals
from counterpoint.diagnostics.spectra import covariance_spectrum, effective_rank, vanished_directions


def features(n: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return unit_rows(
        torch.randn(n, width, generator=generator, dtype=torch.float64) * torch.linspace(1, 3, width) + 0.3
    )


def test_sums_of_groups_give_what_leaving_rows_out_gives() -> None:
    z = features(97, 12)
    left = [torch.cat([z[part::GROUPS] for part in range(GROUPS) if part != out]) for out in range(GROUPS)]
    found = figure_intervals(z, None)
    measures = {
        "spread": lambda rows: spread(covariance_spectrum(rows), len(rows)),
        "effective_rank": lambda rows: effective_rank(covariance_spectrum(rows)),
        "vanished": lambda rows: float(vanished_directions(covariance_spectrum(rows), len(rows)).count),
    }
    for name, measure in measures.items():
        half, whole = jackknife_half_width([measure(rows) for rows in left]), measure(z)
        assert found[name] == pytest.approx((max(whole - half, 0.0), whole + half), rel=1e-8)


def test_intervals_of_draws_hold_the_truth_nearly_always() -> None:
    """The spread of a population that is drawn from; 95 % of 100, with three standard errors to spare."""
    truth = spread(covariance_spectrum(features(200_000, 8, seed=7)), 200_000)
    held = 0
    for seed in range(100):
        low, high = figure_intervals(features(300, 8, seed=100 + seed), None)["spread"]
        held += low <= truth <= high
    assert held >= 88


def test_the_cosine_of_views_has_the_interval_of_a_mean() -> None:
    z = features(400, 8)
    other = unit_rows(z + 0.3 * features(400, 8, seed=1))
    cosines = (z * other).sum(dim=1)
    half = 1.959964 * float(cosines.std()) / math.sqrt(400)
    low, high = figure_intervals(z, (z, other))["positive_cosine"]
    assert (low, high) == pytest.approx((float(cosines.mean()) - half, float(cosines.mean()) + half), abs=1e-6)


def test_very_wide_features_and_few_samples_have_none() -> None:
    assert figure_intervals(features(2 * GROUPS - 1, 4), None) == {}
    assert figure_intervals(features(50, MOST_DIMS + 1), None) == {}
