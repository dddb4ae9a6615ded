"""The Polyak-Lojasiewicz inequality on quadratics with known constants, and words for what a run proves or not."""

import math

import pytest
import torch
from torch import Tensor

from reproductions.mio2021.linear_rate import LinearRate, RateState, linear_rate

CURVATURES_P = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64)


def quadratic(w_P: Tensor, offset: float = 0.0) -> RateState:
    """f = 1/2 sum c w^2 + offset, of which mu is the least and L the largest c."""
    value = float((CURVATURES_P * w_P.square()).sum() / 2) + offset
    return RateState(value, float((CURVATURES_P * w_P).norm()), float(CURVATURES_P.max()))


def descent(num_steps: int, offset: float = 0.0) -> list[RateState]:
    w_P, states = torch.ones(3, dtype=torch.float64), []
    for _ in range(num_steps):
        states.append(quadratic(w_P, offset))
        w_P = w_P - CURVATURES_P * w_P / CURVATURES_P.max()
    return states


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_of_a_quadratic_the_true_mu_lies_between(offset: float) -> None:
    rate = linear_rate(descent(30, offset), floor=offset - 0.5)
    assert rate.seen is not None
    assert rate.refuted is not None
    assert rate.seen < float(CURVATURES_P.min()) < rate.refuted
    assert rate.smoothness == float(CURVATURES_P.max())
    assert rate.best_contraction is not None
    assert rate.best_contraction <= 1 - float(CURVATURES_P.min() / CURVATURES_P.max())


def test_a_saddle_refutes_every_mu() -> None:
    rate = linear_rate([RateState(1.0, 0.0, 2.0), RateState(0.5, 1.0, 2.0)], floor=0.0)
    assert (rate.seen, rate.refuted, rate.best_contraction) == (0.0, 0.0, 1.0)
    assert "inf steps" in " ".join(rate.sentences())


def test_one_state_refutes_nothing_and_says_how_to_see_more() -> None:
    rate = linear_rate([RateState(1.0, 0.5, 2.0)])
    assert (rate.seen, rate.refuted, rate.best_contraction) == (None, None, None)
    assert any("--checkpoint all" in line for line in rate.sentences())


def test_the_words_say_what_is_proven_and_what_not() -> None:
    words = " ".join(linear_rate(descent(5), floor=-1.0, largest_step=0.1).sentences())
    assert "L is at least 5" in words
    assert "proves nothing of other weights" in words
    assert "That the run converges at such a rate is not" in words
    assert "are no bounds" in words
    assert "no less than 0.23 times the variance" in words  # 3 L eta / (8 - 3 L eta)
    assert "Eq. 26 is false" in words


def test_a_learning_rate_beyond_the_bound_is_said() -> None:
    words = " ".join(linear_rate(descent(5), largest_step=0.4).sentences())
    assert "Eq. 25 says nothing of this run: its learning rate of 0.4 times L is 2 or more" in words
    assert "Eq. 25" not in " ".join(LinearRate(1.0, None, None, None).sentences())


# --- what section 2.5 and the supplement print, beside sums and moments that are exact


def test_the_sum_of_squares_diverges_with_the_sum_of_steps() -> None:
    """Eq. 26 and 51 have it finite: of a cosine schedule it is (3 T / 8 - 1 / 2) eta^2, and grows with the horizon."""
    for horizon in (10, 10**3, 10**5):
        steps = [0.5 * (1 + math.cos(math.pi * t / horizon)) for t in range(1, horizon + 1)]
        assert math.isclose(math.fsum(steps), (horizon - 1) / 2, rel_tol=1e-12)
        assert math.isclose(math.fsum(step**2 for step in steps), 3 / 8 * horizon - 1 / 2, rel_tol=1e-12)


def test_a_quadratic_stays_at_the_floor_of_constant_steps() -> None:
    """Eq. 46: with steps 1 / L on L w^2 / 2 the mean squared gradient is sigma^2 for ever, not O(1 / T)."""
    smoothness, variance, moment = 2.0, 3.0, 1.0
    step, squared_gradients = 1 / smoothness, []
    for _ in range(1000):
        squared_gradients.append(smoothness**2 * moment)
        # The second moment of w after a step with additive noise, exactly.
        moment = (1 - step * smoothness) ** 2 * moment + step**2 * variance
    assert all(abs(value - variance) < 1e-9 for value in squared_gradients[1:])
