"""Spectra, effective rank and its isotropic ceiling, and the measures of rank of the literature."""

# N samples, D features

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics import spectra
from counterpoint.diagnostics.spectra import (
    covariance_spectrum,
    effective_rank,
    participation_ratio,
    rank_ceiling,
    rankme,
    singular_values,
)
from draws import draw
from oracles import feature_measures as oracle
from oracles import rank_oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close, assert_estimate

NO_EPS = 1e-30  # so small that known answers are exact


def rotation(d: int) -> Tensor:
    return torch.linalg.qr(draw(d, d, seed=9)).Q


def axes(rank: int, d: int) -> Tensor:
    """Samples +e_k and -e_k for k < rank: covariance 2 / (2 rank - 1) on rank axes, mean 0."""
    basis = torch.eye(d, dtype=torch.float64)[:rank]
    return torch.cat([basis, -basis])


@pytest.mark.parametrize("normalize", [False, True])
@given(n=st.integers(2, 8), d=st.integers(1, 6), seed=st.integers(0, 99), size=st.sampled_from([1e-4, 1.0, 1e4]))
@settings(max_examples=40)
def test_the_spectrum_is_that_of_numpys_covariance(normalize: bool, n: int, d: int, seed: int, size: float) -> None:
    z = size * draw(n, d, seed)
    rows = oracle.unit(z.numpy()) if normalize else z.numpy()
    spectrum = covariance_spectrum(z, normalize=normalize)
    expected = torch.from_numpy(oracle.covariance_singular_values(rows))
    if float(expected[0]) > 1e-12 * size**2:
        assert_close(spectrum, expected)
    assert bool((spectrum >= 0).all())
    assert bool((spectrum.diff() <= 0).all())


def test_known_spectra() -> None:
    assert_numbers(covariance_spectrum(axes(3, 3)), [0.4, 0.4, 0.4])
    two_points = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
    assert_numbers(covariance_spectrum(two_points), [2.0, 0.0, 0.0])
    assert covariance_spectrum(two_points).dtype == torch.float64
    # Unit rows (1, 0) and (0, 1) differ by (1, -1): variance 1 along it.
    assert_numbers(covariance_spectrum(torch.tensor([[5.0, 0.0], [0.0, 0.1]]), normalize=True), [1.0, 0.0])


@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.parametrize("is_rotated", [False, True])
def test_data_of_rank_r_have_r_values_and_effective_rank_r(rank: int, is_rotated: bool) -> None:
    z = axes(rank, 8) @ (rotation(8) if is_rotated else torch.eye(8).double())
    for normalize in (False, True):
        spectrum = covariance_spectrum(z, normalize=normalize)
        assert_numbers(spectrum, [2 / (2 * rank - 1)] * rank + [0.0] * (8 - rank))
        assert_numbers(effective_rank(spectrum), float(rank))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
def test_constant_features_have_rank_zero(normalize: bool, value: float) -> None:
    z = torch.full((10, 5), value, dtype=torch.float64)
    spectrum = covariance_spectrum(z, normalize=normalize)
    assert effective_rank(spectrum) == participation_ratio(spectrum) == 0.0
    assert_numbers(rankme(singular_values(z), NO_EPS), 1.0 if value else 0.0)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6).filter(lambda values: max(values) > 1e-3))
def test_effective_rank_is_the_exponential_of_the_entropy(values: list[float]) -> None:
    spectrum = torch.tensor(values, dtype=torch.float64)
    rank = effective_rank(spectrum)
    assert_numbers(rank, oracle.effective_rank(values))
    assert_numbers(effective_rank(7.0 * spectrum), rank)
    assert 1 - 1e-12 <= rank <= sum(value > 0 for value in values) + 1e-12


@pytest.mark.parametrize(("n", "d"), [(30, 4), (12, 20)])
def test_the_ceiling_is_the_rank_of_gaussian_features(n: int, d: int) -> None:
    """Twenty draws of our own say what a Gaussian of this shape has, and how much one draw scatters."""
    ranks = []
    for seed in range(20):
        z = np.random.default_rng(seed).normal(size=(n, d))
        values = oracle.covariance_singular_values(oracle.unit(z))
        ranks.append(oracle.effective_rank([max(0.0, value) for value in values[: min(n - 1, d)]]))
    assert_estimate(rank_ceiling(torch.empty(n, d)), float(np.mean(ranks)), float(np.std(ranks)))


def test_the_reference_is_small_fixed_and_touches_no_global_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.get_rng_state()
    assert rank_ceiling(torch.empty(50, 3)) == rank_ceiling(torch.empty(50, 3))
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr(spectra, "REFERENCE_SAMPLES", 40)
    assert rank_ceiling(torch.empty(1, 3).expand(10**12, 3)) == rank_ceiling(torch.empty(40, 3))


def test_features_that_cannot_be_measured_are_named() -> None:
    with pytest.raises(ValueError, match=r"z .*rows, got 1"):
        covariance_spectrum(torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"z .*row 1"):
        covariance_spectrum(torch.tensor([[1.0], [math.inf]]))


shapes = given(n=st.integers(2, 9), d=st.integers(1, 6), seed=st.integers(0, 99), shift=st.sampled_from([0.0, 3.0]))


@shapes
@settings(max_examples=40)
def test_rankme_and_participation_ratio_are_the_papers(n: int, d: int, seed: int, shift: float) -> None:
    z = draw(n, d, seed) + shift
    assert_numbers(rankme(singular_values(z)), rank_oracle.rankme(z.numpy(), "uncentred", 1e-7))
    expected = rank_oracle.participation_ratio(rank_oracle.eigenvalues(z.numpy()))
    assert_numbers(participation_ratio(covariance_spectrum(z)), expected)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_equal_directions_are_counted_by_every_measure(rank: int) -> None:
    z = axes(rank, 8)
    for same in (z, z @ rotation(8), torch.cat([z, z, z]), 1e-8 * z, z.float()):
        assert_numbers(rankme(singular_values(same), NO_EPS), float(rank))
        assert_numbers(participation_ratio(covariance_spectrum(same)), float(rank))


def test_known_answers_for_unequal_values() -> None:
    values = torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64)
    assert_numbers(participation_ratio(values), 25 / 17)
    assert_numbers(participation_ratio(1e-200 * values), 25 / 17)
    # Shares 4/5 and 1/5: exp(ln 5 - 4/5 ln 4). With eps = 1/10 they are 9/10, 3/10 and 1/10.
    assert_numbers(rankme(values, NO_EPS), 5 * 4**-0.8)
    assert_numbers(rankme(values, 0.1), 0.9**-0.9 * 0.3**-0.3 * 0.1**-0.1)


def test_rankme_of_gaussian_features_is_that_of_the_survey() -> None:
    """Figures that our survey of other programs measured with their code."""
    sigma = singular_values(draw(1000, 1024))
    assert abs(rankme(sigma) - 814) < 1
    assert abs(rankme(sigma, 1e-5) - 866) < 1


def test_a_shift_matters_only_to_unit_rows() -> None:
    z = draw(12, 5)
    assert_close(covariance_spectrum(z + 3.0), covariance_spectrum(z))
    assert float(covariance_spectrum(z + 3.0, normalize=True)[0]) < 0.5 * float(
        covariance_spectrum(z, normalize=True)[0]
    )
