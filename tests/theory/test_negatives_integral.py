"""The expectation over k negatives as one integral, against sums over all counts."""

# C classes

import math
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.theory.geometry import negatives_integral
from counterpoint.theory.geometry.negatives_integral import (
    LONGEST_SERIES,
    Basis,
    ChebyshevBasis,
    ExponentialBasis,
    LogSumIntegral,
    series_length,
)
from oracles import class_risk_oracle as oracle
from oracles.number_checks import assert_numbers

TEMPERATURES = [0.05, 0.1, 0.5, 1.0, 10.0]
EPSILONS = [0.0, 0.25, 1.0, 30.0]


def rows_of(x: list[float], r: list[float], epsilon: float, k: int, bounds: tuple[float, float]) -> Any:
    """The one row of a problem, as value, slope, diagonal and whole Hessian."""
    size = len(x)
    integral = LogSumIntegral(torch.tensor([r] * size, dtype=torch.float64), k, epsilon, *bounds)
    x_CC = torch.tensor([x] * size, dtype=torch.float64)
    at = integral.at(x_CC)
    hessian = at.hessian(torch.eye(size, dtype=torch.float64))  # row i is the Hessian's column i: all rows are alike
    return float(at.value_C[0]), at.slope_CC[0], at.diagonal_CC[0], hessian


def terms(cosines: list[float], tau: float, unit: float = 1.0) -> tuple[list[float], tuple[float, float]]:
    """exp((a - 1) / tau) for each cosine, and what bounds it for any cosine."""
    return [unit * math.exp((a - 1) / tau) for a in cosines], (unit * math.exp(-2 / tau), unit)


def assert_agrees(ours: Any, expected: tuple[float, np.ndarray, np.ndarray]) -> None:
    value, slope, diagonal, hessian = ours
    assert value == pytest.approx(expected[0], rel=1e-10, abs=1e-10)
    assert_numbers(slope, expected[1].tolist())
    assert_numbers(diagonal, np.diag(expected[2]).tolist())
    assert_numbers(hessian, expected[2].tolist())


@pytest.mark.parametrize("tau", TEMPERATURES)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [1, 2, 7, 40])
@pytest.mark.sampled(2)
def test_it_is_the_sum_over_all_counts(tau: float, epsilon: float, k: int) -> None:
    x, bounds = terms([1.0, -0.63, 0.2], tau)
    r = [0.5, 0.3, 0.2]
    assert_agrees(rows_of(x, r, epsilon, k, bounds), oracle.expected_log(x, r, epsilon, k))


@pytest.mark.parametrize("tau", TEMPERATURES)
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("is_mean", [False, True], ids=["sum", "mean"])
@pytest.mark.parametrize("k", [512, 10**6])
@pytest.mark.sampled(26)
def test_many_negatives_follow_the_binomial_distribution(tau: float, epsilon: float, is_mean: bool, k: int) -> None:
    x, bounds = terms([1.0, -0.9], tau, 1 / k if is_mean else 1.0)
    for r in (0.3, 2e-5):
        assert_agrees(rows_of(x, [r, 1 - r], epsilon, k, bounds), oracle.expected_log_of_two(x, r, epsilon, k))


def test_terms_far_below_epsilon_keep_their_slopes() -> None:
    """Both classes opposite at a low temperature: the value vanishes, its derivatives are no noise."""
    x, bounds = terms([-1.0, -0.95], 0.05)
    assert max(x) < 1e-16
    assert_agrees(rows_of(x, [0.4, 0.6], 1.0, 64, bounds), oracle.expected_log_of_two(x, 0.4, 1.0, 64))


@pytest.mark.parametrize("tau", [0.01, 0.03, 0.0472, 0.1])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 30.0])
@pytest.mark.parametrize("k", [1, 2, 7, 60])
@pytest.mark.parametrize("r", [[0.0, 0.8, 0.2, 0.0], [0.0, 0.5, 0.3, 0.2]], ids=["all far", "one near"])
@pytest.mark.sampled(3)
def test_sums_far_below_epsilon_keep_their_digits(r: list[float], k: int, epsilon: float, tau: float) -> None:
    """No tolerance but a relative one, for terms of e^-200 and of 1 alike; collisions, of weight 0, set the bounds."""
    x, bounds = terms([1.0, -1.0, -0.7, 0.4], tau)
    value, slope, diagonal, hessian = rows_of(x, r, epsilon, k, bounds)
    expected = oracle.expected_log(x[1:], r[1:], epsilon, k)
    assert value == pytest.approx(expected[0], rel=1e-12, abs=0.0)
    assert slope[1:].tolist() == pytest.approx(expected[1].tolist(), rel=1e-11, abs=0.0)
    assert diagonal[1:].tolist() == pytest.approx(np.diag(expected[2]).tolist(), rel=1e-10, abs=0.0)
    if k > 1:  # a single term's slope is no function of the others: 0 has no relative error
        assert hessian[1:, 1:].flatten().tolist() == pytest.approx(expected[2].flatten().tolist(), rel=1e-10, abs=0.0)


@pytest.mark.parametrize("is_fine", [False, True])
@pytest.mark.parametrize("basis", [ChebyshevBasis, ExponentialBasis], ids=["series", "exponentials"])
def test_both_bases_hold(basis: type, is_fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(integral: LogSumIntegral) -> Basis:
        s_Q, low, high = integral.nodes, integral.low, integral.high
        return ChebyshevBasis(s_Q, low, high) if basis is ChebyshevBasis else ExponentialBasis(s_Q, is_fine=is_fine)

    monkeypatch.setattr(LogSumIntegral, "basis", property(chosen))
    x, bounds = terms([1.0, -0.63, 0.2], 0.4)
    r = [0.5, 0.3, 0.2]
    assert_agrees(rows_of(x, r, 1.0, 12, bounds), oracle.expected_log(x, r, 1.0, 12))


def test_a_long_sum_takes_exponentials_where_a_series_would_round_too_coarsely() -> None:
    one_C = torch.ones(1, 1, dtype=torch.float64)
    assert isinstance(LogSumIntegral(one_C, 10**6, 1.0, math.exp(-40), 1.0).basis, ExponentialBasis)
    assert isinstance(LogSumIntegral(one_C, 10**6, 1.0, 0.1, 1.0).basis, ChebyshevBasis)


@pytest.mark.parametrize("half_width", [0.0, 1e-3, 1.0, 20.0, 1e5])
def test_the_length_of_a_series_makes_it_exact(half_width: float) -> None:
    length = series_length(half_width)
    if half_width > 1e4:
        assert length > LONGEST_SERIES
        return
    t = torch.linspace(-1, 1, 201, dtype=torch.float64)
    basis = ChebyshevBasis(torch.ones(1, dtype=torch.float64), 0.0, 2 * half_width)
    values = (basis.coefficients_QM @ basis.values((half_width * (1 + t))[None]))[0, 0]
    assert_numbers(values, torch.exp(-half_width * (1 + t)))
    assert length <= basis.length


@pytest.mark.parametrize("kept", [0, 1 << 26])
def test_rows_may_come_in_blocks_and_be_forgotten(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    size = 7
    x_CC = torch.rand(size, size, generator=generator, dtype=torch.float64)
    r_CC = torch.rand(size, size, generator=generator, dtype=torch.float64)
    v_CC = torch.rand(size, size, generator=generator, dtype=torch.float64)
    integral = LogSumIntegral(r_CC / r_CC.sum(1, keepdim=True), 9, 1.0, 0.0, 1.0)
    whole = integral.at(x_CC)
    expected = whole.hessian(v_CC)
    monkeypatch.setattr(negatives_integral, "BLOCK_NUMBERS", 2 * size * integral.basis.coefficients_QM.shape[1])
    monkeypatch.setattr(negatives_integral, "KEPT_NUMBERS", kept)
    parts = integral.at(x_CC)
    assert_numbers(parts.value_C, whole.value_C)
    assert_numbers(parts.slope_CC, whole.slope_CC)
    assert_numbers(parts.diagonal_CC, whole.diagonal_CC)
    assert_numbers(parts.hessian(v_CC), expected)
