"""What section 2.5 of mio2021 and its supplement print of convergence, beside sums and moments that are exact."""

import math


def test_the_sum_of_squares_diverges_with_the_sum_of_steps() -> None:
    """Eq. 26 and 51 have it finite: of a cosine schedule it is (3 T / 8 - 1 / 2) eta^2, and grows with the horizon."""
    for horizon in (10, 10**3, 10**5):
        steps = [0.5 * (1 + math.cos(math.pi * t / horizon)) for t in range(1, horizon + 1)]
        assert math.isclose(math.fsum(steps), (horizon - 1) / 2, rel_tol=1e-12)
        assert math.isclose(math.fsum(step**2 for step in steps), 3 / 8 * horizon - 1 / 2, rel_tol=1e-12)


def test_a_quadratic_stays_at_the_floor_of_constant_steps() -> None:
    """Eq. 46: with steps 1 / L on L w^2 / 2 the mean squared gradient is sigma^2 for ever, not O(1 / T)."""
    smoothness, variance, moment = 2.0, 3.0, 1.0
    step, found = 1 / smoothness, []
    for _ in range(1000):
        found.append(smoothness**2 * moment)
        # The second moment of w after a step with additive noise, exactly.
        moment = (1 - step * smoothness) ** 2 * moment + step**2 * variance
    assert all(abs(value - variance) < 1e-9 for value in found[1:])
