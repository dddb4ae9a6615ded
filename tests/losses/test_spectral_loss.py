"""The spectral contrastive loss against the sum over every pair, which it never forms."""

# N samples per view, D features

import math
from functools import partial

import pytest
import torch
from loss_checks import Oracle, assert_matches, draw_views

from counterpoint.losses.spectral import SpectralContrastive
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

RADII = [None, 1.0, 2.5]
SHAPES = [(5, 3), (9, 3), (2, 3), (3, 1), (4, 6), (12, 2)]  # up to 2 D samples products are squared, above not
each_radius = pytest.mark.parametrize("mu", RADII)
each_shape = pytest.mark.parametrize(("n", "d"), SHAPES)


def truth_of(mu: float | None) -> Oracle:
    return partial(oracle.spectral_contrastive, mu=mu)


@each_radius
@each_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_gradient_are_the_papers(*, mu: float | None, dtype: torch.dtype, n: int, d: int) -> None:
    assert_matches(SpectralContrastive(mu), truth_of(mu), *draw_views(n, d, dtype=dtype))


@pytest.mark.parametrize("n", [32, 64])
def test_own_terms_do_not_swallow_the_others(n: int) -> None:
    """Samples of length 1e3, nearly orthogonal: own terms of 1e12 beside squares of 100."""
    basis = 1e3 * torch.eye(64)[:n]
    tilt = 0.01 * torch.randn(n, 64, generator=torch.Generator().manual_seed(0))
    z0, z1 = basis + tilt, basis - tilt
    exact = SpectralContrastive(None)(z0.double(), z1.double())
    assert_close(SpectralContrastive(None)(z0, z1), exact, dtype=torch.float32)


@pytest.mark.parametrize("n", [129, 1000])
def test_in_few_dimensions_taking_off_the_own_terms_costs_no_digits(n: int) -> None:
    z0, z1 = draw_views(n, 64)
    z0, z1 = 1e3 * z0.detach(), 1e3 * z1.detach()
    exact = SpectralContrastive(None)(z0, z1)
    single = SpectralContrastive(None)(z0.float(), z1.float())
    assert_close(single, exact, dtype=torch.float32)
    products = z0 @ z1.T
    assert_close(exact, products[~torch.eye(n).bool()].square().mean() - 2 * products.diagonal().mean())


@pytest.mark.parametrize("mu", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("n", [4, 9])
def test_orthogonal_vectors_on_the_ball_attain_the_floor(mu: float, n: int) -> None:
    loss = SpectralContrastive(mu)
    z = 10 * torch.eye(n, dtype=torch.float64)
    for nonnegative in (False, True):
        assert_numbers(loss(z, z), loss.floor(n, nonnegative=nonnegative))
    for seed in range(10):
        z0, z1 = draw_views(n, n, seed=seed)
        assert float(loss(z0, z1).detach()) > loss.floor(n)


def test_without_the_ball_there_is_no_floor() -> None:
    loss = SpectralContrastive(None)
    z = torch.eye(4)
    assert float(loss(1e3 * z, 1e3 * z)) == -2e6
    assert loss.floor(4) == loss.floor(4, nonnegative=True) == -math.inf


@pytest.mark.parametrize("mu", [None, 0.25, 1.0, 4.0])
@pytest.mark.parametrize("n", [4, 9])
@pytest.mark.sampled(3)
def test_vectors_that_are_all_alike_attain_chance_at_their_best_length(mu: float | None, n: int) -> None:
    loss = SpectralContrastive(mu)
    direction = torch.tensor([[0.6, 0.0, -0.8]], dtype=torch.float64).expand(n, 3)
    best = min(float(loss(length * direction, length * direction)) for length in (k / 100 for k in range(301)))
    assert_numbers(best, loss.chance(n))
