"""Vanished directions: counts for known ranks and floors, nothing for isotropic features, the null's law."""

# N samples, D features, R the rank

import itertools

import pytest
import torch
from torch import Tensor

from counterpoint.diagnostics.spectra import (
    Vanished,
    covariance_spectrum,
    isotropic_band,
    isotropic_spectrum,
    vanished_directions,
)
from draws import draw_single as draw
from oracles import feature_measures as oracle

DIMS = 128


def counted(z_ND: Tensor) -> Vanished:
    return vanished_directions(covariance_spectrum(z_ND, normalize=True), len(z_ND))


def of_rank(rank: int, num_samples: int, kind: str, floor: float) -> Tensor:
    """Features of some rank on a floor of noise: alike in all directions, mixed at random, or falling like 1/k."""
    signal = draw(num_samples, rank, seed=rank)
    turned = torch.linalg.qr(draw(DIMS, DIMS, seed=1)).Q[:rank]
    lengths = torch.arange(1, rank + 1) ** -0.5
    features = {
        "alike": lambda: signal @ turned,
        "mixed": lambda: signal @ draw(rank, DIMS, seed=2) / rank**0.5,
        "falling": lambda: (signal * lengths) @ turned,
    }[kind]()
    return features + floor * draw(num_samples, DIMS, seed=3)


@pytest.mark.parametrize("kind", ["alike", "mixed", "falling"])
@pytest.mark.parametrize("floor", [0.0, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("rank", [98, 64, 40])
def test_the_count_is_right_to_one(rank: int, floor: float, kind: str) -> None:
    for num_samples in (300, 2000):
        found = counted(of_rank(rank, num_samples, kind, floor))
        assert found.resolved == DIMS
        assert abs(found.count - (DIMS - rank)) <= 1


@pytest.mark.thorough
def test_isotropic_features_raise_nothing_in_500_draws() -> None:
    sizes = itertools.cycle([200, 500, 1000, 2000])
    draws = [(next(sizes), seed) for seed in range(490)] + [(20_000, seed) for seed in range(10)]
    assert [(n, seed) for n, seed in draws if counted(draw(n, DIMS, seed)).count] == []


@pytest.mark.parametrize("num_samples", [20, 60, 100, 127, 128, 129, 130, 140])
def test_few_samples_resolve_fewer_directions_and_raise_nothing(num_samples: int) -> None:
    found = [counted(draw(num_samples, DIMS, seed)) for seed in range(10)]
    assert {each.count for each in found} == {0}
    assert {each.resolved for each in found} <= set(range(min(num_samples - 1, DIMS) * 9 // 10, DIMS + 1))


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_a_smooth_fall_is_no_collapse(power: float) -> None:
    z = draw(5000, DIMS) * torch.arange(1, DIMS + 1) ** (-power / 2)
    assert counted(z).count == 0


def test_one_strong_direction_leaves_the_others_alive() -> None:
    z = draw(2000, DIMS)
    z[:, 0] *= 30
    assert counted(z).count == 0


def test_the_first_step_counts_where_there_are_two() -> None:
    spectrum = torch.tensor([1.0] * 40 + [1e-4] * 40 + [1e-9] * 48)
    found = vanished_directions(spectrum, 10_000)
    assert (found.count, found.resolved) == (88, 128)
    assert found.step == pytest.approx(4.0, abs=0.1)


def test_a_fall_without_a_step_ends_where_nothing_is_left() -> None:
    """Half a decade every five directions."""
    decades = -0.1 * torch.arange(128.0)
    spectrum = 10**decades
    alive = int((spectrum > 1e-6 * spectrum.mean()).sum())
    assert vanished_directions(spectrum, 10**6).count == 128 - alive
    assert 0 < alive < 128


def test_an_offset_and_the_lengths_of_rows_change_nothing() -> None:
    z = of_rank(64, 1000, "alike", 1e-4)
    for other in (z * draw(1000, 1, seed=5).abs(), z @ torch.linalg.qr(draw(DIMS, DIMS, seed=6)).Q):
        assert counted(other).count == counted(z).count
    assert vanished_directions(covariance_spectrum(z + 6), 1000).count == counted(z).count


def test_constant_features_have_no_direction() -> None:
    assert counted(torch.ones(300, 5)).count == counted(torch.zeros(300, 5)).count == 5


@pytest.mark.parametrize(("num_samples", "num_dims"), [(1001, 100), (1001, 700), (301, 1), (101, 400)])
def test_the_null_has_the_quantiles_of_its_law(num_samples: int, num_dims: int) -> None:
    found = isotropic_spectrum(num_samples, num_dims)
    free = num_samples - 1
    assert len(found) == min(free, num_dims)
    assert torch.equal(found, found.sort(descending=True).values)
    ratio, scale = num_dims / free, 1.0
    if ratio > 1:
        ratio, scale = 1 / ratio, ratio
    for place in {0, len(found) // 3, len(found) - 1}:
        share = oracle.marchenko_pastur_share(ratio, float(found[place]) / scale)
        assert share == pytest.approx(1 - (place + 0.5) / len(found), abs=2e-4)


@pytest.mark.parametrize(
    "shape", [(20, 2), (20, 8), (50, 16), (100, 99), (100, 100), (60, 128), (300, 128), (2000, 300)]
)
def test_isotropic_features_lie_in_their_band(shape: tuple[int, int]) -> None:
    low_K, high_K = isotropic_band(*shape)
    null_K = isotropic_spectrum(*shape)
    assert low_K.shape == high_K.shape == null_K.shape
    assert bool((low_K <= null_K).all())
    assert bool((null_K <= high_K).all())
    shares = []
    for seed in range(20):
        z_ND = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        lambda_K = torch.linalg.svdvals(z_ND - z_ND.mean(dim=0))[: len(null_K)].square() / (shape[0] - 1)
        lambda_K *= null_K.mean() / lambda_K.mean()
        shares.append(float(((lambda_K >= low_K) & (lambda_K <= high_K)).double().mean()))
    assert sum(shares) / len(shares) >= 0.95
    # Narrow enough to tell: features whose variances differ by two decades leave it.
    if shape[0] >= 50:
        uneven_K = null_K * torch.logspace(1, -1, len(null_K), dtype=torch.float64)
        assert float(((uneven_K >= low_K) & (uneven_K <= high_K)).double().mean()) < 0.5
