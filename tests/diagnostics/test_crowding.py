"""Spread, copies, clumps and hubs: loops, known answers, and what must not count as a clump."""

# N samples, D features

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.alignment import MAX_PAIR_SAMPLES
from counterpoint.diagnostics.crowding import (
    clump_share,
    distinct_rows,
    duplicate_share,
    largest_hub,
    neighbour_counts,
    spread,
)
from counterpoint.diagnostics.spectra import covariance_spectrum
from draws import draw
from oracles import feature_measures as oracle
from oracles import pair_oracle
from oracles.number_checks import assert_numbers


def duplicates(z: Tensor) -> float:
    return duplicate_share(distinct_rows(z), len(z))


def spread_of(z: Tensor) -> float:
    return spread(covariance_spectrum(z, normalize=True), len(z))


@given(n=st.integers(2, 12), width=st.integers(1, 5), seed=st.integers(0, 99), shift=st.sampled_from([0.0, 1.0, 50.0]))
@settings(max_examples=40)
def test_figures_are_those_of_the_loops(n: int, width: int, seed: int, shift: float) -> None:
    z = (draw(n, width, seed) + shift).round(decimals=1)
    assert_numbers([1.0, spread_of(z)], [1.0, oracle.spread(z.numpy())])
    assert_numbers(duplicates(z), oracle.duplicate_share(z.numpy()))


def test_an_offset_shrinks_the_spread_as_it_should() -> None:
    assert spread_of(torch.ones(9, 4)) == spread_of(torch.zeros(9, 4)) == 0.0
    # The angle to the mean has the tangent 1 / 6.
    assert spread_of(draw(20_000, 64) + 6) == pytest.approx(1 / 37**0.5, rel=0.02)
    assert spread_of(draw(20_000, 64)) == pytest.approx(1.0, abs=1e-3)


def test_copies_are_counted_once_for_each_extra_row() -> None:
    z = draw(100, 8)
    assert duplicates(z) == 0.0
    assert duplicates(torch.cat([z, z])) == 0.5
    assert duplicates(torch.cat([z, z.float().double()])) == 0.0  # other bits
    assert duplicates(torch.tensor([[0.0], [-0.0]])) == 0.5
    assert duplicates(torch.ones(10, 3)) == pytest.approx(0.9)


@pytest.mark.parametrize(("size", "expected"), [(0.01, 1.0), (0.05, 1.0), (0.3, 0.0)])
def test_groups_are_clumps_where_they_are_small(size: float, expected: float) -> None:
    z = draw(10, 64).repeat(100, 1) + size * draw(1000, 64, 1)
    assert clump_share(z) == expected
    assert clump_share(5 * z) == expected


@pytest.mark.parametrize("width", [1, 2, 3, 5, 64])
def test_isotropic_features_have_no_clumps(width: int) -> None:
    assert clump_share(draw(1000, width)) == 0.0


def test_lines_circles_copies_and_single_pairs_are_no_clumps() -> None:
    angle = torch.linspace(0, 6.2, 1000)[:, None]
    assert clump_share(torch.cat([angle.sin(), angle.cos()], dim=1)) == 0.0
    z = draw(300, 64)
    assert clump_share(torch.cat([z, z])) == 0.0
    assert clump_share(torch.cat([z, z + 1e-6])) == 0.0
    assert clump_share(torch.ones(50, 4)) == clump_share(torch.zeros(50, 4)) == 0.0


@given(n=st.integers(2, 14), width=st.integers(1, 4), k=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_counts_are_those_of_the_loops(n: int, width: int, k: int, seed: int) -> None:
    z = draw(n, width, seed).round(decimals=1)  # many ties, and zero rows
    counts = pair_oracle.neighbour_counts(z.tolist(), k)
    found = neighbour_counts(z, k)
    assert_numbers(found, counts)


@pytest.mark.parametrize("num_spokes", [3, 20, 400])
def test_one_hub_is_near_to_all(num_spokes: int) -> None:
    star = torch.cat([torch.ones(1, num_spokes), torch.eye(num_spokes)]).double()  # the first is as close to each
    count = neighbour_counts(star, k=1)
    assert float(count[0]) == num_spokes
    assert largest_hub(count) == 1.0


def test_blocks_and_the_order_of_samples_do_not_matter() -> None:
    z = draw(700, 6)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(3))
    counts = neighbour_counts(z)
    assert_numbers(neighbour_counts(z[order]), counts[order])
    assert float(counts.sum()) == pytest.approx(7000.0)


def test_at_most_so_many_samples_are_compared() -> None:
    assert len(neighbour_counts(draw(3000, 3))) == MAX_PAIR_SAMPLES
    with pytest.raises(ValueError, match="k must be >= 1"):
        neighbour_counts(draw(5, 2), k=0)
