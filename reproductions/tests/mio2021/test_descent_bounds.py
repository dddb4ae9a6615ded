"""Sums over cosine schedules and what they leave of the convergence that mio2021 claims."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproductions.mio2021.descent_bounds import (
    constant_step_bound,
    cosine_gradient_bound,
    cosine_step_sums,
    noise_floor,
)

NOISE = {"smoothness": 2.0, "noise_variance": 3.0}


def cosine_steps(largest: float, num_steps: int) -> list[float]:
    """The paper's schedule with eta_min = 0."""
    return [0.5 * largest * (1 + math.cos(math.pi * t / num_steps)) for t in range(1, num_steps + 1)]


@given(st.floats(1e-3, 10.0), st.integers(2, 500))
def test_sums_are_exact(largest: float, num_steps: int) -> None:
    steps, sums = cosine_steps(largest, num_steps), cosine_step_sums(largest, num_steps)
    assert math.isclose(math.fsum(steps), sums.total, rel_tol=1e-12)
    assert math.isclose(math.fsum(step**2 for step in steps), sums.squares, rel_tol=1e-12)


def test_the_sum_of_squares_diverges_with_the_sum_of_steps() -> None:
    """Eq. 26 and 51 have it finite: it is 3/8 of the horizon, and three quarters of the sum of steps for ever."""
    horizons = [10**3, 10**4, 10**5]
    squares = [cosine_step_sums(1.0, horizon).squares / horizon for horizon in horizons]
    assert all(abs(share - 3 / 8) < 1 / horizon for share, horizon in zip(squares, horizons, strict=True))
    last = cosine_step_sums(1.0, horizons[-1])
    assert abs(last.squares / last.total - 3 / 4) < 1e-4


def test_the_bound_ends_at_a_floor_unless_gradients_are_exact_or_steps_shrink() -> None:
    floor = noise_floor(0.5, **NOISE)
    bounds = [cosine_gradient_bound(0.5, horizon, excess=1.0, **NOISE) for horizon in (10**3, 10**5, 10**7)]
    assert bounds == sorted(bounds, reverse=True)
    assert floor < bounds[-1] < floor * (1 + 1e-5)
    exact = cosine_gradient_bound(0.5, 10**7, excess=1.0, smoothness=2.0, noise_variance=0.0)
    assert exact < 1e-6
    shrinking = [cosine_gradient_bound(0.5 / math.sqrt(t), t, excess=1.0, **NOISE) for t in (10**4, 10**6, 10**8)]
    assert all(after < before / 9 for before, after in pairwise(shrinking))


def quadratic_gradients(steps: list[float], start: float, smoothness: float, noise_variance: float) -> list[float]:
    """E |gradient|^2 before each step on L w^2 / 2 with additive noise: the second moment of w, exactly."""
    moment, found = start**2, []
    for step in steps:
        found.append(smoothness**2 * moment)
        moment = (1 - step * smoothness) ** 2 * moment + step**2 * noise_variance
    return found


def test_a_quadratic_stays_at_the_floor_of_constant_steps() -> None:
    """Eq. 46: with steps 1 / L the mean squared gradient is sigma^2 for ever, not O(1 / T)."""
    horizon, smoothness, variance = 1000, 2.0, 3.0
    found = quadratic_gradients([1 / smoothness] * horizon, 1.0, smoothness, variance)
    assert all(abs(value - variance) < 1e-9 for value in found[1:])
    excess = smoothness * 1.0**2 / 2
    assert sum(found) / horizon <= constant_step_bound(horizon, excess=excess, **NOISE)
    without = quadratic_gradients([1 / smoothness] * horizon, 1.0, smoothness, 0.0)
    assert sum(without) / horizon <= constant_step_bound(horizon, excess=excess, smoothness=2.0, noise_variance=0.0)


@pytest.mark.parametrize("horizon", [10, 100, 1000])
def test_a_quadratic_obeys_the_bound_and_its_last_steps_do_better(horizon: int) -> None:
    found = quadratic_gradients(cosine_steps(0.5, horizon), 1.0, 2.0, 3.0)
    assert min(found) <= cosine_gradient_bound(0.5, horizon, excess=1.0, **NOISE)
    if horizon == 1000:
        assert found[-1] < noise_floor(0.5, **NOISE) / 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cosine_step_sums(0.1, 1), "num_steps must be >= 2, got 1"),
        (lambda: noise_floor(1.0, smoothness=2.0, noise_variance=1.0), "largest must be < 2 / smoothness = 1, got 1.0"),
        (lambda: cosine_gradient_bound(0.1, 10, excess=-1.0, **NOISE), "excess must be >= 0"),
    ],
)
def test_values_out_of_range(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
