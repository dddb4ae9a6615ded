"""Alignment, uniformity, cosines and colours of views: by loops, and what a shortcut looks like."""

# N samples, D features

import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics import alignment as module
from counterpoint.diagnostics.alignment import (
    CLOSE,
    NUM_BINS,
    alignment,
    colour_statistics,
    cosine_histogram,
    followed,
    identified,
    mean_cosine,
    shortcut,
    uniformity,
)
from draws import draw
from oracles import feature_measures as oracle
from oracles.number_checks import assert_numbers

shapes = given(n=st.integers(2, 7), d=st.integers(1, 5), seed=st.integers(0, 99))


@shapes
@settings(max_examples=30)
def test_alignment_is_the_mean_squared_distance(n: int, d: int, seed: int) -> None:
    z0, z1 = draw(n, d, seed), draw(n, d, seed + 1)
    assert_numbers(alignment(z0, z1), oracle.alignment(z0.numpy(), z1.numpy()))
    assert_numbers([1.0, alignment(z0, 5.0 * z0)], [1.0, 0.0])  # directions only


@shapes
@settings(max_examples=30)
def test_uniformity_is_the_log_of_the_mean_potential(n: int, d: int, seed: int) -> None:
    z = draw(n, d, seed)
    assert_numbers([1.0, uniformity(z)], [1.0, oracle.uniformity(z.numpy())])


def test_samples_without_a_direction_coincide() -> None:
    """A dead embedding must not look spread out: all samples are the zero vector."""
    assert_numbers(alignment(torch.ones(1, 3), torch.zeros(1, 3)), 1.0)
    assert_numbers([1.0, uniformity(torch.zeros(4, 3))], [1.0, 0.0])
    half_silent = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])  # squared distances 1, 1 and 0
    assert_numbers(uniformity(half_silent), math.log((2 * math.exp(-2) + 1) / 3))


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
    with pytest.raises(ValueError, match=r"z0 and z1 .*\(3, 2\) and \(2, 2\)"):
        measure(torch.ones(3, 2), torch.ones(2, 2))


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


# --- colours of views


def test_statistics_are_mean_and_deviation_of_each_channel() -> None:
    pictures = draw(5, 3 * 4 * 6).reshape(5, 3, 4, 6)
    found = colour_statistics(pictures).numpy()
    for place, picture in enumerate(pictures.numpy()):
        expected = [*(channel.mean() for channel in picture), *(channel.std() for channel in picture)]
        assert found[place] == pytest.approx(expected)


def test_the_share_that_follows_is_that_of_the_loops() -> None:
    x, z = draw(60, 3), draw(60, 8, seed=1)
    unit = z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True)
    hits = 0
    for i in range(60):
        others = [j for j in range(60) if j != i]
        closest = max(others, key=lambda j: unit[i] @ unit[j])
        by_colour = sorted(others, key=lambda j: float(np.linalg.norm(x[i].numpy() - x[j].numpy())))
        hits += closest in by_colour[: round(CLOSE * 59)]
    assert followed(x, z) == hits / 60


def test_an_embedding_of_colours_follows_them_and_any_other_does_not() -> None:
    colours = draw(1000, 6)
    same = shortcut((colours, colours + 0.01 * draw(1000, 6, seed=1)), torch.tanh(colours @ draw(6, 32, seed=2)))
    assert same.overlap == pytest.approx(1.0, abs=1e-3)
    assert same.followed is not None
    assert same.followed > 0.8
    other = shortcut((colours, draw(1000, 6, seed=3)), draw(1000, 32, seed=4))
    assert other.overlap == pytest.approx(0.5, abs=0.05)
    assert other.followed == pytest.approx(CLOSE, abs=0.03)


def test_pictures_without_colours_tell_nothing() -> None:
    grey = colour_statistics(torch.full((50, 3, 4, 4), 0.5))
    assert shortcut((grey, grey), draw(50, 8)).overlap == 0.5
