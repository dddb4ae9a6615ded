"""Bounds contain the truth for every spectrum and threshold; intervals have their level; the trace its error."""

import itertools

import numpy as np
import pytest
import torch
from known_spectra import SPECTRA, gaussian, known_spectrum

from counterpoint.diagnostics.curvature.operator_spectrum import (
    Bracket,
    Tridiagonal,
    count_interval,
    lanczos,
    mass_up_to,
    masses,
    trace_estimate,
)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_brackets_contain_the_truth_on_all_spectra(dtype: torch.dtype, rng: np.random.Generator) -> None:
    tried, width = 0, 0.0
    for _ in range(SPECTRA):
        known = known_spectrum(rng)
        dims = len(known.values_P)
        start_P = gaussian(rng, dims)
        matrix_PP = known.matrix_PP.to(dtype)
        tridiagonal = lanczos(matrix_PP.__matmul__, start_P.to(dtype), steps=int(rng.integers(1, dims + 1)))
        reach = float(known.values_P.abs().max())
        drawn = [*(reach * rng.normal(size=12)).tolist(), 0.0, 1e-4 * reach]
        on_values = known.values_P[torch.from_numpy(rng.integers(0, dims, 6))].tolist()
        slack = 1e-9 if dtype == torch.float64 else 1e-4
        for threshold in drawn + on_values:
            bracket = mass_up_to(tridiagonal, threshold, noise=tridiagonal.noise)
            # Rounding moves an eigenvalue by no more than the noise: either side of it may be counted.
            lower, upper = (known.share_up_to(start_P, threshold + s * tridiagonal.noise) for s in (-1, 1))
            assert bracket.low <= upper + slack
            assert bracket.high >= lower - slack
            assert 0 <= bracket.low <= bracket.high <= 1
            tried, width = tried + 1, width + bracket.high - bracket.low
    assert tried == SPECTRA * 20
    assert width / tried < 0.5  # they say something


def test_more_steps_never_widen_a_bracket(rng: np.random.Generator) -> None:
    known = known_spectrum(rng)
    dims = len(known.values_P)
    start_P = gaussian(rng, dims)
    threshold = float(known.values_P.median()) + 1e-3 * float(known.values_P.std())
    widths = []
    for steps in range(1, dims):
        found = lanczos(known.matrix_PP.__matmul__, start_P, steps=steps)
        bracket = mass_up_to(found, threshold, noise=found.noise)
        widths.append(bracket.high - bracket.low)
    assert all(later <= earlier + 1e-8 for earlier, later in itertools.pairwise(widths))
    assert widths[-1] < 1e-6


def test_counts_of_eigenvalues_are_inside_their_intervals(rng: np.random.Generator) -> None:
    inside, tried = 0, 0
    for _ in range(SPECTRA):
        known = known_spectrum(rng)
        dims = len(known.values_P)
        num_probes = int(rng.integers(1, 4))
        found = [
            lanczos(known.matrix_PP.__matmul__, gaussian(rng, dims), steps=dims // 2 + 1) for _ in range(num_probes)
        ]
        tau = 0.05 * float(known.values_P.abs().max())
        counts = masses(found, tau, noise=max(each.noise for each in found))
        for part, truth in (
            (counts.below, int((known.values_P < -tau).sum())),
            (counts.above, int((known.values_P > tau).sum())),
            (counts.within, int((known.values_P.abs() <= tau).sum())),
        ):
            inside += part.count[0] <= truth <= part.count[1]
            tried += 1
            assert part.at_least <= truth
    assert inside / tried >= 0.95


def test_the_interval_of_a_share_seen_exactly_has_its_level(rng: np.random.Generator) -> None:
    dims, count, inside = 400, 60, 0
    for _ in range(1000):
        probe = rng.normal(size=dims) ** 2
        share = float(probe[:count].sum() / probe.sum())
        low, high = count_interval(Bracket(share, share), dims, 1)
        inside += low <= count <= high
    assert abs(inside / 1000 - 0.95) < 5 * (0.95 * 0.05 / 1000) ** 0.5 + 0.01  # whole numbers: a little more


def test_ends_of_the_interval() -> None:
    assert count_interval(Bracket(0.0, 0.0), 50, 1)[0] == 0
    assert count_interval(Bracket(1.0, 1.0), 50, 1)[1] == 50
    assert count_interval(Bracket(0.0, 1.0), 50, 2) == (0, 50)


def test_the_three_ranges_hold_everything(rng: np.random.Generator) -> None:
    known = known_spectrum(rng)
    found = lanczos(known.matrix_PP.__matmul__, gaussian(rng, len(known.values_P)), steps=6)
    counts = masses([found], 0.1 * float(known.values_P.abs().max()), noise=found.noise)
    parts = (counts.below.share, counts.within.share, counts.above.share)
    assert sum(part.low for part in parts) <= 1 + 1e-12
    assert sum(part.high for part in parts) >= 1 - 1e-12


@pytest.mark.thorough
def test_the_trace_is_within_five_standard_errors(rng: np.random.Generator) -> None:
    for _ in range(SPECTRA):
        known = known_spectrum(rng, has_repeats=False)
        dims = len(known.values_P)
        steps = min(dims, 40)
        found = [lanczos(known.matrix_PP.__matmul__, gaussian(rng, dims), steps=steps) for _ in range(2)]
        estimate = trace_estimate(found)
        slack = 1e-8 * float(known.values_P.abs().sum()) + 1e-300
        assert abs(estimate.value - float(known.values_P.sum())) <= 5 * estimate.error + slack


def test_outliers_are_counted_apart_from_the_trace_of_the_bulk(rng: np.random.Generator) -> None:
    dims = 500
    values = np.concatenate([1e-3 * rng.random(480), np.linspace(5, 60, 20)])
    vectors, _ = np.linalg.qr(rng.normal(size=(dims, dims)))
    matrix = torch.from_numpy(vectors * values @ vectors.T)
    symmetric = (matrix + matrix.T) / 2
    estimate = trace_estimate([lanczos(symmetric.__matmul__, gaussian(rng, dims), steps=80)])
    plain_error = (2 * (values**2).sum()) ** 0.5  # Hutchinson's
    assert estimate.error < 1e-3 * plain_error
    assert abs(estimate.value - values.sum()) <= 5 * estimate.error


def test_one_step_of_a_symmetric_pair() -> None:
    one_step = Tridiagonal(torch.zeros(1).double(), torch.ones(1).double(), 9, False, 0.0, 0.0)
    assert mass_up_to(one_step, -2.0, noise=0.0).high == pytest.approx(
        1 / 5
    )  # Chebyshev's one-sided inequality: 1 / (1 + t^2)
    assert mass_up_to(one_step, 2.0, noise=0.0).low == pytest.approx(4 / 5)
