"""Alignment, uniformity and the histogram of cosines: closed forms and brute force."""

# N samples, D features

import math
from bisect import bisect_right
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics import alignment as module
from counterpoint.diagnostics.alignment import (
    NUM_BINS,
    alignment,
    cosine_histogram,
    identified,
    mean_cosine,
    uniformity,
)
from oracles import feature_measures as oracle
from oracles.number_checks import assert_numbers


def draw(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


shapes = given(n=st.integers(2, 7), d=st.integers(1, 5), seed=st.integers(0, 99))


@shapes
@settings(max_examples=30)
def test_alignment_is_the_mean_squared_distance(n: int, d: int, seed: int) -> None:
    z0, z1 = draw(n, d, seed), draw(n, d, seed + 1)
    assert_numbers(alignment(z0, z1), oracle.alignment(z0.numpy(), z1.numpy()))
    assert_numbers([1.0, alignment(z0, 5.0 * z0)], [1.0, 0.0])  # directions only


def test_known_alignments() -> None:
    basis = torch.eye(3)
    assert alignment(basis, basis) == 0.0
    assert_numbers(alignment(basis, -basis), 4.0)
    assert_numbers(alignment(basis, basis.roll(1, 0)), 2.0)
    assert_numbers(alignment(basis[:1], torch.zeros(1, 3)), 1.0)  # a silent view has no direction


@shapes
@settings(max_examples=30)
def test_uniformity_is_the_log_of_the_mean_potential(n: int, d: int, seed: int) -> None:
    z = draw(n, d, seed)
    assert_numbers([1.0, uniformity(z)], [1.0, oracle.uniformity(z.numpy())])


def test_known_uniformities() -> None:
    """Every pair of basis vectors is at squared distance 2, of simplex corners at 2n / (n - 1)."""
    assert_numbers(uniformity(torch.eye(5)), -4.0)
    assert_numbers(uniformity(torch.eye(4) - 0.25), -2 * 8 / 3)
    assert_numbers([1.0, uniformity(torch.ones(4, 3))], [1.0, 0.0])
    assert_numbers(uniformity(torch.tensor([[1.0], [1.0], [-1.0]])), math.log((1 + 2 * math.exp(-8)) / 3))


def test_samples_that_are_all_silent_coincide() -> None:
    """A dead embedding must not look spread out: all samples are the zero vector."""
    assert_numbers([1.0, uniformity(torch.zeros(4, 3))], [1.0, 0.0])
    half_silent = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])  # squared distances 1, 1 and 0
    assert_numbers(uniformity(half_silent), math.log((2 * math.exp(-2) + 1) / 3))


def test_directions_spread_evenly_are_near_the_stated_value() -> None:
    """About -4 + 8 / d for many dimensions."""
    z = draw(300, 40, seed=1)
    assert abs(uniformity(z) - (-4 + 8 / 40)) < 0.02


def test_pairs_are_counted_among_evenly_spaced_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    z = draw(9, 3, seed=4)
    monkeypatch.setattr(module, "MAX_PAIR_SAMPLES", 3)
    assert_numbers(uniformity(z), oracle.uniformity(z[[0, 4, 8]].numpy()))
    assert int(cosine_histogram(z, z).negative.sum()) == 3
    assert int(cosine_histogram(z, z).positive.sum()) == 9


@shapes
@settings(max_examples=30)
def test_the_histogram_counts_every_cosine_once(n: int, d: int, seed: int) -> None:
    z0, z1 = draw(n, d + 1, seed), draw(n, d + 1, seed + 1)
    histogram = cosine_histogram(z0, z1)
    positive = [float(a @ b) for a, b in zip(oracle.unit(z0.numpy()), oracle.unit(z1.numpy()), strict=True)]
    negative = oracle.cosines_of_pairs(z0.numpy())
    edges = [-1 + 2 * k / NUM_BINS for k in range(NUM_BINS + 1)]
    assert_numbers(histogram.edges, edges)
    for counted, cosines in ((histogram.positive, positive), (histogram.negative, negative)):
        bins = [bisect_right(edges, cosine) - 1 for cosine in cosines]
        assert counted.tolist() == [bins.count(k) for k in range(NUM_BINS)]
    assert_numbers([1.0, histogram.positive_mean], [1.0, sum(positive) / n])
    assert_numbers([1.0, mean_cosine(z0)], [1.0, sum(negative) / len(negative)])


def test_cosines_of_plus_and_minus_one_fall_into_the_outer_bins() -> None:
    """Rounding carries cosines of parallel vectors beyond 1; none may be lost."""
    z = draw(1, 5, seed=3) * torch.tensor([[1.0], [0.3], [7.0], [1e-3]], dtype=torch.float64)
    together, apart = cosine_histogram(z, z), cosine_histogram(z, -z)
    assert together.positive[-1] == 4
    assert together.negative[-1] == 6
    assert apart.positive[0] == 4


@pytest.mark.parametrize("measure", [alignment, cosine_histogram])
def test_views_of_other_shapes_are_refused(measure: Callable[[Tensor, Tensor], object]) -> None:
    with pytest.raises(ValueError, match=r"z0 and z1 must have the same shape, got \(3, 2\) and \(2, 2\)"):
        measure(torch.ones(3, 2), torch.ones(2, 2))


@pytest.mark.parametrize("measure", [alignment, cosine_histogram])
def test_views_that_are_not_finite_are_named(measure: Callable[[Tensor, Tensor], object]) -> None:
    bad = torch.tensor([[1.0], [math.nan]])
    with pytest.raises(ValueError, match=r"z1 must be finite, but row 1"):
        measure(torch.ones(2, 1), bad)


def test_uniformity_of_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match=r"z must have at least 2 rows, got 1"):
        uniformity(torch.ones(1, 3))


def test_samples_are_identified_as_far_as_views_leave_directions_alone() -> None:
    """Scale, shift and turn change nothing; noise, few directions and collapse do."""
    z = draw(60, 40, 0)
    noisy = [(z + size * draw(60, 40, 1), z + size * draw(60, 40, 2)) for size in (0.0, 0.3, 10.0)]
    shares = [identified(z, *views) for views in noisy]
    assert shares[0] == 1
    assert shares[0] >= shares[1] > 0.5
    assert shares[2] < 0.2
    turn = torch.linalg.qr(draw(40, 40, 3)).Q
    moved = [(1e-3 * each + 5) @ turn for each in (z, *noisy[1])]
    assert identified(*moved) == shares[1]
    assert identified(z[:, :1], noisy[1][0][:, :1], noisy[1][1][:, :1]) < 0.2
    assert identified(*(torch.ones(60, 40) for _ in range(3))) == 1 / 60
    with pytest.raises(ValueError, match="same shape"):
        identified(z, z[:30], z[:30])
