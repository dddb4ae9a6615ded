"""SEPIN: loops, integrals over a grid, the closed form for Gaussians, and codes whose answer is known."""

# N samples, D dimensions

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_NEGATIVES
from counterpoint.core.errors import DataError
from counterpoint.core.metric import loaded_metrics
from counterpoint.data.order import random_order
from counterpoint.evaluation import sepin as module
from counterpoint.evaluation.scoring import Estimate, Labelled
from counterpoint.evaluation.sepin import Separability, contrastive_sepin, gaussian_sepin, noisy_sepin
from oracles import sepin_oracle as oracle
from oracles.number_checks import assert_numbers
from tolerances import STANDARD_ERRORS


def draw(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_within_errors(found: Separability, exact: Any) -> None:
    distance = (found.information_D - torch.as_tensor(exact, dtype=torch.float64)).abs()
    assert (distance <= STANDARD_ERRORS * found.standard_error_D).all(), distance / found.standard_error_D


@given(
    n=st.integers(3, 9),
    width=st.integers(1, 4),
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.2, 1.0, 3.0]),
    renormalize=st.booleans(),
)
@settings(max_examples=20)
def test_the_contrastive_estimate_is_its_loop(
    n: int, width: int, seed: int, temperature: float, renormalize: bool
) -> None:
    z0, z1 = draw(n, width, seed).round(decimals=0), draw(n, width, seed + 1)
    found = contrastive_sepin(z0, z1, temperature=temperature, renormalize=renormalize)
    loops = oracle.contrastive(z0.tolist(), z1.tolist(), temperature, range(n), renormalize)
    assert_numbers([1.0, *found.information_D.tolist()], [1.0, *loops])


def test_negatives_are_drawn_once_and_never_an_anchors_own_sample() -> None:
    z0, z1 = draw(9, 3), draw(9, 3, seed=1)
    found = contrastive_sepin(z0, z1, num_negatives=4, seed=5)
    drawn = random_order(5, 0, 9, purpose=PURPOSE_NEGATIVES)[:4].tolist()
    assert_numbers(found.information_D, oracle.contrastive(z0.tolist(), z1.tolist(), 1.0, drawn))
    assert not torch.equal(found.information_D, contrastive_sepin(z0, z1, num_negatives=4).information_D)


def test_dimensions_that_tell_samples_apart_count_and_others_do_not() -> None:
    """The sign that ncl2024 drops: its Eq. 16 makes the first three negative."""
    labels = torch.arange(30) % 3
    code = torch.cat([torch.eye(3, dtype=torch.float64)[labels], torch.ones(30, 1), torch.zeros(30, 1)], dim=1)
    found = contrastive_sepin(code, code).information_D
    assert (found[:3] > 0.04).all()
    assert_numbers([1.0, *found[3:].tolist()], [1.0, 0.0, 0.0])
    constant = contrastive_sepin(torch.ones(12, 4), torch.ones(12, 4))
    assert_numbers([1.0, *constant.information_D.tolist()], [1.0] + 4 * [0.0])


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.0])
def test_the_noisy_estimate_is_the_integral(noise: float) -> None:
    codes = draw(5, 2)
    found = noisy_sepin(codes, noise=noise, num_draws=20_000)
    assert_within_errors(found, oracle.of_two_dimensions(codes.numpy(), noise))


def test_a_duplicated_dimension_tells_nothing_new_but_for_its_own_noise() -> None:
    """Var(z_1 | z_2) of two noisy readings of one Gaussian of variance v is s^2 + v s^2 / (v + s^2)."""
    column = draw(400, 1)
    codes = column.repeat(1, 2)
    variance, square = float(column.var()), 0.5**2
    exact = 0.5 * math.log(1 + variance / (variance + square))
    assert_numbers(gaussian_sepin(codes, noise=0.5).information_D, [exact, exact])
    alone = gaussian_sepin(torch.cat([column, torch.zeros(400, 1)], dim=1), noise=0.5).information_D
    assert_numbers([1.0, *alone.tolist()], [1.0, 0.5 * math.log(1 + variance / square), 0.0])


@pytest.mark.parametrize("width", [1, 3])
def test_the_closed_form_is_the_conditional_variance(width: int) -> None:
    codes = draw(50, width) @ (torch.eye(width, dtype=torch.float64) + 0.5 * draw(width, width, 1))
    covariance = np.atleast_2d(np.cov(codes.numpy().T)) + 0.4**2 * np.eye(width)
    found = []
    for i in range(width):
        rest = [d for d in range(width) if d != i]
        explained = 0.0
        if rest:
            along = covariance[i, rest]
            explained = float(along @ np.linalg.solve(covariance[np.ix_(rest, rest)], along))
        found.append(0.5 * math.log((covariance[i, i] - explained) / 0.4**2))
    assert_numbers(gaussian_sepin(codes, noise=0.4).information_D, found)


def gaussian_codes(n: int) -> Tensor:
    """Normal draws whose covariance is exactly [[1, .3], [.3, 1]], so that the closed form has no error of theirs."""
    z = draw(n, 2)
    z = (z - z.mean(dim=0)) @ torch.linalg.inv(torch.linalg.cholesky(z.T.cov())).T
    return z @ torch.linalg.cholesky(torch.tensor([[1.0, 0.3], [0.3, 1.0]], dtype=torch.float64)).T


def test_the_noisy_estimate_is_near_the_closed_form() -> None:
    codes = gaussian_codes(1000)
    assert_within_errors(noisy_sepin(codes, noise=0.6), gaussian_sepin(codes, noise=0.6).information_D)


@pytest.mark.thorough
def test_the_noisy_estimate_is_within_one_percent_of_the_closed_form() -> None:
    codes = gaussian_codes(800)
    found, exact = noisy_sepin(codes, noise=0.6, num_draws=80_000), gaussian_sepin(codes, noise=0.6)
    assert (found.information_D / exact.information_D - 1).abs().max() < 0.01
    assert (found.standard_error_D / exact.information_D).max() < 0.006


def test_constant_and_noiseless_codes_have_known_answers() -> None:
    constant = noisy_sepin(torch.full((20, 3), 0.7), noise=0.1, num_draws=30)
    assert_numbers([1.0, *constant.information_D.tolist()], [1.0, 0.0, 0.0, 0.0])
    # Far apart in the first dimension, alike in the other: it alone tells which of 8 samples it was.
    apart = torch.stack([100.0 * torch.arange(8), torch.zeros(8)], dim=1)
    found = noisy_sepin(apart, noise=0.1, num_draws=4000)
    assert_within_errors(found, [math.log(8), 0.0])


def test_blocks_and_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, num_threads = draw(60, 4), torch.get_num_threads()

    def found() -> list[Tensor]:
        noisy, contrastive = noisy_sepin(codes, noise=0.5, num_draws=90), contrastive_sepin(codes, codes.roll(1))
        return [noisy.information_D, noisy.standard_error_D, contrastive.information_D, contrastive.standard_error_D]

    monkeypatch.setattr(module, "MOST_PAIRS", 700)
    torch.set_num_threads(1)
    try:
        one = found()
        torch.set_num_threads(2)
        two = found()
    finally:
        torch.set_num_threads(num_threads)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    monkeypatch.setattr(module, "MOST_PAIRS", 1 << 17)
    for a, b in zip(one, found(), strict=True):
        assert_numbers(a, b)


def test_the_best_dimensions_are_averaged() -> None:
    known = Separability(torch.tensor([0.2, 0.8, 0.5]), torch.zeros(3))
    assert_numbers([known.at(k) for k in (1, 2, 3)], [0.8, 0.65, 0.5], dtype=torch.float32)
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"k must be between 1 and the number of dimensions, 3, got {k}"):
            known.at(k)


Z = draw(6, 2)
BAD: list[tuple[Any, dict[str, Any], str]] = [
    (gaussian_sepin, {"codes_ND": Z, "noise": 0.0}, r"noise must be > 0, got 0\.0"),
    (noisy_sepin, {"codes_ND": Z, "noise": -1.0}, r"noise must be > 0, got -1\.0"),
    (noisy_sepin, {"codes_ND": Z, "noise": 1.0, "num_draws": 1}, "num_draws must be >= 2, got 1; 1000 is usual"),
    (noisy_sepin, {"codes_ND": Z / 0, "noise": 1.0}, "codes must be finite, but row 0"),
    (contrastive_sepin, {"z0_ND": Z, "z1_ND": Z[:5]}, r"z0 and z1 must have the same shape, got \(6, 2\) and \(5, 2\)"),
    (contrastive_sepin, {"z0_ND": Z, "z1_ND": Z, "temperature": 0.0}, r"temperature must be > 0, got 0\.0; 1 is"),
    (contrastive_sepin, {"z0_ND": Z, "z1_ND": Z, "num_negatives": 1}, "num_negatives must be between 2 and the samp"),
    (contrastive_sepin, {"z0_ND": Z, "z1_ND": Z, "num_negatives": 7}, "num_negatives must be between 2 and .*, 6, got"),
]


@pytest.mark.parametrize(("function", "given", "sentence"), BAD, ids=[case[2][:40] for case in BAD])
def test_bad_input_is_named(function: Any, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        function(**given)


def of_views(z0: Tensor, z1: Tensor, name: str) -> Estimate:
    labels = torch.arange(len(z0)) % 2
    known = Labelled(z0, labels, z0, labels, k=1, temperature=1.0, views=(z0, z1))
    outcome = loaded_metrics("evaluation")[name].measure(known).outcome
    assert isinstance(outcome, Estimate)
    return outcome


def test_the_metrics_are_means_over_the_most_informative_dimensions() -> None:
    z0 = draw(60, 12)
    z1 = z0 + 0.3 * draw(60, 12, 1)
    found = contrastive_sepin(z0, z1)
    sizes = {"sepin@1": 1, "sepin@10": 10, "sepin": 12}
    for name, k in sizes.items():
        outcome = of_views(z0, z1, name)
        assert outcome.value == found.at(k)
        assert outcome.low is not None
        assert outcome.high is not None
        assert outcome.low < outcome.value < outcome.high
    one, best = of_views(z0, z1, "sepin@1"), int(found.information_D.argmax())
    assert one.high is not None
    assert_numbers((one.high - one.value) / 1.959963984540054, found.standard_error_D[best])


def test_fewer_dimensions_than_asked_for_are_refused() -> None:
    z = draw(20, 3)
    with pytest.raises(DataError, match="SEPIN@10 is a mean over 10 dimensions, and there are only 3; ask for sepin"):
        of_views(z, z, "sepin@10")


def test_a_dimension_that_is_the_same_for_all_tells_nothing() -> None:
    z = torch.cat([draw(50, 3), torch.full((50, 1), 2.0)], dim=1)
    last = contrastive_sepin(z, z).information_D
    assert last[:3].min() > last[3].abs()
