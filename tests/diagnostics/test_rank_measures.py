"""Measures of rank: the papers' definitions, known answers, and what a measure must not depend on."""

# N samples, D features, K = min(N, D) singular values

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.measure import measure_place
from counterpoint.diagnostics.rank_measures import (
    alpha_req,
    entropy_rank,
    nesum,
    participation_ratio,
    rankme,
    singular_values,
    stable_rank,
)
from counterpoint.diagnostics.spectra import covariance_spectrum
from oracles import rank_oracle as oracle
from oracles.number_checks import assert_numbers

NO_EPS = 1e-30  # so small that known answers are exact

MEASURES: dict[str, Callable[[Tensor], float]] = {
    "rankme": lambda z: rankme(z, eps=NO_EPS),
    "participation ratio": lambda z: participation_ratio(covariance_spectrum(z)),
    "stable rank": lambda z: stable_rank(singular_values(z)),
    "nesum": lambda z: nesum(covariance_spectrum(z)),
}


def draw(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(d: int) -> Tensor:
    return torch.linalg.qr(draw(d, d, seed=9)).Q


def axes(rank: int, d: int) -> Tensor:
    """Samples +e_k and -e_k for k < rank: isotropic on rank axes, mean 0."""
    basis = torch.eye(d, dtype=torch.float64)[:rank]
    return torch.cat([basis, -basis])


shapes = given(n=st.integers(2, 9), d=st.integers(1, 6), seed=st.integers(0, 99), shift=st.sampled_from([0.0, 3.0]))


@pytest.mark.parametrize("eps", [1e-7, 1e-3])
@shapes
@settings(max_examples=30)
def test_rankme_is_the_papers(eps: float, n: int, d: int, seed: int, shift: float) -> None:
    z = draw(n, d, seed) + shift
    expected = oracle.rankme(z.numpy(), "uncentred", eps)
    assert_numbers(rankme(z, eps=eps), expected)


@shapes
@settings(max_examples=30)
def test_ratios_are_the_papers(n: int, d: int, seed: int, shift: float) -> None:
    z = draw(n, d, seed) + shift
    values = oracle.eigenvalues(z.numpy())
    assert_numbers(participation_ratio(covariance_spectrum(z)), oracle.participation_ratio(values))
    assert_numbers(nesum(covariance_spectrum(z)), oracle.nesum(values))
    assert_numbers(stable_rank(singular_values(z)), oracle.stable_rank(z.numpy()))
    assert_numbers(stable_rank(covariance_spectrum(z).sqrt()), oracle.nesum(values))


@given(n=st.integers(2, 30), d=st.integers(1, 24))
@settings(max_examples=60)
def test_alpha_req_is_the_slope_of_its_authors_equations(n: int, d: int) -> None:
    z = draw(n, d, n + 31 * d)
    assert_numbers(alpha_req(covariance_spectrum(z)), oracle.alpha_req(oracle.eigenvalues(z.numpy()), 11, 100, True))


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("rank", [1, 3, 8])
def test_equal_directions_are_counted(name: str, rank: int) -> None:
    z = axes(rank, 8)
    for same in (z, z @ rotation(8), torch.cat([z, z, z]), 1e-8 * z, 1e8 * z, z.float()):
        assert_numbers(MEASURES[name](same), float(rank))


@pytest.mark.parametrize("name", MEASURES)
def test_a_simplex_has_one_direction_less_than_corners(name: str) -> None:
    corners = torch.eye(6, dtype=torch.float64)
    assert_numbers(MEASURES[name](corners - corners.mean(dim=0)), 5.0)


@pytest.mark.parametrize("name", MEASURES)
def test_constant_features_have_no_direction_when_centred_and_one_when_not(name: str) -> None:
    is_centred = name not in ("rankme", "stable rank")
    assert_numbers(MEASURES[name](torch.full((9, 4), 0.7)), 0.0 if is_centred else 1.0)
    assert MEASURES[name](torch.zeros(9, 4)) == 0.0


def test_known_answers_for_unequal_values() -> None:
    spectrum = torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64)
    assert_numbers(participation_ratio(spectrum), 25 / 17)
    assert_numbers(nesum(spectrum), 1.25)
    assert_numbers(stable_rank(spectrum), 17 / 16)
    # Shares 4/5 and 1/5: exp(ln 5 - 4/5 ln 4).
    assert_numbers(entropy_rank(spectrum, NO_EPS), 5 * 4**-0.8)
    # With eps = 1/10 the shares are 9/10, 3/10 and 1/10.
    assert_numbers(entropy_rank(spectrum, 0.1), 0.9**-0.9 * 0.3**-0.3 * 0.1**-0.1)
    for measure in (participation_ratio, nesum, stable_rank, entropy_rank):
        assert_numbers(measure(1e-200 * spectrum), measure(spectrum))


def test_rankme_of_gaussian_features_is_that_of_the_survey() -> None:
    """Figures that our survey of other programs measured with their code."""
    z = draw(1000, 1024)
    assert abs(rankme(z) - 814) < 1
    assert abs(rankme(z, eps=1e-5) - 866) < 1


def test_an_offset_is_a_direction_of_the_uncentred_measures() -> None:
    z = axes(4, 6)
    z[:, 5] = 1e4
    assert rankme(z) < 1.01
    assert stable_rank(singular_values(z)) < 1.01
    assert_numbers(nesum(covariance_spectrum(z)), 4.0)


def test_singular_values_are_those_of_the_matrix() -> None:
    for z in (draw(7, 4), draw(4, 7), draw(5, 5)):
        assert_numbers(singular_values(z), torch.linalg.svdvals(z))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.5])
def test_a_power_law_has_its_exponent(alpha: float) -> None:
    spectrum = 3 * torch.arange(1, 151, dtype=torch.float64) ** -alpha
    assert_numbers([alpha_req(spectrum), 1.0], [alpha, 1.0])


def test_only_the_range_is_fitted_and_ends_with_the_last_positive_value() -> None:
    spectrum = torch.arange(1, 201, dtype=torch.float64) ** -1.5
    spectrum[:10] = 7.0
    spectrum[100:] = 1e-9
    assert_numbers(alpha_req(spectrum), 1.5)
    spectrum[50:] = 0.0
    assert_numbers(alpha_req(spectrum), 1.5)
    spectrum[12:] = 0.0
    assert_numbers(alpha_req(spectrum), 1.5)  # two are left, which is a line
    spectrum[11:] = 0.0
    assert math.isnan(alpha_req(spectrum))
    assert math.isnan(alpha_req(torch.zeros(50)))


def test_metrics_take_unit_length_features_and_are_none_where_they_do_not_exist() -> None:
    z = axes(3, 5) * torch.tensor([1.0, 2.0, 5.0, 0.1, 9.0, 4.0])[:, None]
    figures = measure_place(z).figures
    for name in ("participation_ratio", "stable_rank", "nesum"):
        assert getattr(figures, name) is not None
    assert_numbers(figures.stable_rank, 3.0)
    assert_numbers(figures.rankme, oracle.smoothed_entropy_rank([1.0, 1.0, 1.0, 0.0, 0.0], 1e-7))
    assert figures.alpha_req is None
    assert measure_place(draw(300, 40)).figures.alpha_req is not None


def test_what_cannot_be_measured_is_named() -> None:
    with pytest.raises(ValueError, match="eps must be > 0, got 0; RankMe's is 1e-07"):
        rankme(torch.eye(3), eps=0)
    with pytest.raises(ValueError, match="z must have at least 2 rows, got 1"):
        rankme(torch.ones(1, 3))
