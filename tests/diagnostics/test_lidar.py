"""LiDAR: the paper's sums, known answers for views that differ along axes, and what it discounts."""

# N samples, D features, Q views

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.measure import measure_place
from counterpoint.diagnostics.rank_measures import lidar, rankme
from oracles import rank_oracle as oracle
from oracles.number_checks import assert_numbers

NO_EPS = 1e-30  # so small that known answers are exact


def draw(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def along_axes(apart_D: Tensor) -> tuple[Tensor, Tensor]:
    """Samples +e_k and -e_k, whose two views lie apart along their own axis by twice what is given."""
    corners_DD = torch.eye(len(apart_D), dtype=torch.float64)
    samples, shifts = torch.cat([corners_DD, -corners_DD]), torch.diag(apart_D).repeat(2, 1)
    return samples + shifts, samples - shifts


@pytest.mark.parametrize("normalize", [False, True])
@given(
    shape=st.tuples(st.integers(2, 8), st.integers(1, 6)),
    num_views=st.integers(2, 4),
    seed=st.integers(0, 99),
    apart=st.sampled_from([0.0, 0.1, 2.0]),
    delta=st.sampled_from([1e-4, 0.1]),
)
@settings(max_examples=40)
def test_it_is_the_papers(
    normalize: bool, shape: tuple[int, int], num_views: int, seed: int, apart: float, delta: float
) -> None:
    n, d = shape[0], shape[1] + normalize  # unit rows of one dimension may all have the same mean
    samples = draw(n, d, seed) + 2.0
    views = [samples + apart * draw(n, d, seed + 100 * (1 + number)) for number in range(num_views)]
    scaled = [unit_rows(view).numpy() if normalize else view.numpy() for view in views]
    assert_numbers(lidar(*views, normalize=normalize, delta=delta), oracle.lidar(scaled, delta, 1e-8))


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_equal_views_leave_the_rank_of_the_samples(rank: int) -> None:
    z = draw(40, rank, 3)
    z = torch.linalg.qr(z - z.mean(dim=0)).Q  # white
    features = z @ torch.linalg.qr(draw(8, 8, 9)).Q[:rank]
    assert_numbers(lidar(features, features, eps=NO_EPS), float(rank))
    doubled = torch.cat([features, features])
    assert_numbers(lidar(doubled, doubled, eps=NO_EPS), float(rank))


def test_a_simplex_has_one_direction_less_than_corners() -> None:
    corners = torch.eye(6)
    assert_numbers(lidar(corners, corners, corners, eps=NO_EPS), 5.0)


@pytest.mark.parametrize("value", [0.0, 0.7, 1e6])
def test_constant_features_have_rank_zero(value: float) -> None:
    z = torch.full((9, 5), value)
    assert lidar(z, z) == lidar(z, 3 * z, normalize=True) == 0.0


def test_each_direction_counts_by_its_variance_over_that_of_views() -> None:
    apart = torch.tensor([0.5, 0.5, 0.1, 0.0], dtype=torch.float64)
    # Of 8 samples two lie on each axis: variance 2 / 7 of the means, and 2 * 2 apart^2 / 8 within a sample.
    expected = [(2 / 7) / (float(a) ** 2 / 2 + 0.01) for a in apart]
    assert_numbers(lidar(*along_axes(apart), delta=0.01, eps=NO_EPS), oracle.smoothed_entropy_rank(expected, NO_EPS))


def test_directions_in_which_views_differ_are_discounted_where_the_rank_counts_them() -> None:
    first, second = along_axes(torch.tensor([0.0, 0.0, 0.0, 30.0], dtype=torch.float64))
    assert lidar(first, second) == pytest.approx(3.0, abs=1e-3)
    assert rankme(along_axes(torch.zeros(4, dtype=torch.float64))[0]) == pytest.approx(4.0, abs=1e-3)


def test_rotation_and_a_shift_do_not_matter() -> None:
    first = draw(20, 5)
    second = first + 0.3 * draw(20, 5, 1)
    turned = torch.linalg.qr(draw(5, 5, 9)).Q
    assert_numbers(lidar(first @ turned + 1, second @ turned + 1), lidar(first, second))
    assert_numbers(lidar(second, first), lidar(first, second))


def test_the_metric_needs_views_and_takes_directions_only() -> None:
    first = draw(12, 5)
    second = first + 0.3 * draw(12, 5, 1)
    assert measure_place(first).figures.lidar is None
    expected = oracle.lidar([unit_rows(first).numpy(), unit_rows(second).numpy()], 1e-4, 1e-8)
    for views in ((first, second), (5 * first, torch.arange(1, 13)[:, None] * second)):
        assert_numbers(measure_place(first, views=views).figures.lidar, expected)


def test_what_cannot_be_measured_is_named() -> None:
    z = draw(5, 3)
    with pytest.raises(ValueError, match="LiDAR needs at least 2 views of each sample, got 1"):
        lidar(z)
    with pytest.raises(ValueError, match=r"views must have the same shape, got \(5, 3\) and \(4, 3\)"):
        lidar(z, z[:4])
    with pytest.raises(ValueError, match="view 1 must be finite, but row 0"):
        lidar(z, z / 0)
    with pytest.raises(ValueError, match=r"delta must be > .* for views this far apart, got 0.0001; use normalize"):
        lidar(1e9 * z, -2e9 * z)
    with pytest.raises(ValueError, match="delta must be > 0, got 0"):
        lidar(z, z, delta=0)
