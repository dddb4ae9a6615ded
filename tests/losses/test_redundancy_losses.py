"""Barlow Twins and VICReg against their papers' loops; ``test_peers`` has lightly's."""

# N samples per view, D features

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from lightly.loss import BarlowTwinsLoss, VICRegLoss
from loss_checks import Oracle, assert_matches, draw_views, gradients

from counterpoint.losses.loss import Loss
from counterpoint.losses.noncontrastive import BarlowTwins, VICReg
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close, relative_error

CASES: list[tuple[Loss, Oracle]] = [
    (BarlowTwins(), partial(oracle.barlow_twins, weight=0.005, epsilon=1e-5)),
    (BarlowTwins(0.7, 0.1), partial(oracle.barlow_twins, weight=0.7, epsilon=0.1)),
    (VICReg(), partial(oracle.vicreg, weights=(25.0, 25.0, 1.0), epsilon=1e-4)),
    (VICReg(1.0, 2.0, 3.0, 0.1), partial(oracle.vicreg, weights=(1.0, 2.0, 3.0), epsilon=0.1)),
]
IDS = ["barlow", "barlow-strong", "vicreg", "vicreg-other"]
SHAPES = [(5, 3), (9, 2), (4, 1), (5, 20), (3, 7), (4, 9)]  # more features than samples: no D x D matrix
each_case = pytest.mark.parametrize(("loss", "truth"), CASES, ids=IDS)
each_loss = pytest.mark.parametrize("loss", [loss for loss, _ in CASES], ids=IDS)


@each_case
@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_value_and_gradient_are_the_papers(*, loss: Loss, truth: Oracle, dtype: torch.dtype, n: int, d: int) -> None:
    assert_matches(loss, truth, *draw_views(n, d, dtype=dtype))


@each_loss
def test_zero_vectors_are_at_chance_without_an_infinite_gradient(loss: Loss) -> None:
    z = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    value = loss(z, z)
    chance = loss.chance(4, num_features=3) if isinstance(loss, BarlowTwins) else loss.chance(4)
    assert_numbers(value, chance)
    assert bool(torch.isfinite(gradients(value, z, z)).all())


@pytest.mark.parametrize("kind", ["as little correlated as can be", "one much larger", "constant but for two"])
def test_many_features_lose_no_digits(kind: str) -> None:
    """Squares of all correlations, minus those of the diagonal: nothing may cancel that the loss needs."""
    n, d = 8, 32
    generator = torch.Generator().manual_seed(0)
    z0 = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0][:n]
    if kind == "one much larger":
        z0[:, 0] *= 1e4
    if kind == "constant but for two":
        z0[:, 2:] = 0.5
    z1 = z0 + 1e-3 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    for ours, theirs in ((BarlowTwins(0.5), BarlowTwinsLoss(0.5)), (VICReg(0.0, 0.0, 1.0), VICRegLoss(0.0, 0.0, 1.0))):
        exact = [z.float().double().requires_grad_() for z in (z0, z1)]
        single = [z.detach().float().requires_grad_() for z in exact]
        value, expected = ours(*single), theirs(*exact)
        assert_close(value, expected)
        assert_close(gradients(value, *single), gradients(expected, *exact), dtype=torch.float32)


def test_size_of_a_feature_matters_to_vicreg_only() -> None:
    z0, z1 = (z.detach() for z in draw_views())
    scale = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    barlow = BarlowTwins(variance_epsilon=1e-20)
    assert_close(barlow(z0 * scale, z1), barlow(z0, z1))
    assert relative_error(VICReg()(z0 * scale, z1), VICReg()(z0, z1)) > 1e-3


def test_identical_vectors_are_at_chance() -> None:
    z = torch.tensor([[3.0, -4.0, 1.0]], dtype=torch.float64).expand(6, 3)
    assert_numbers(BarlowTwins()(z, z), BarlowTwins().chance(6, num_features=3))
    assert_numbers(VICReg()(z, z), VICReg().chance(6))
    assert_numbers(VICReg(variance=2.0).chance(6), 2 * (1 - math.sqrt(1e-4)))
    assert VICReg(variance_epsilon=4.0).chance(6) == float(VICReg(variance_epsilon=4.0)(z, z)) == 0.0
    assert BarlowTwins().chance(6, num_features=3) == 3.0
    assert math.isnan(BarlowTwins().chance(6))


@pytest.mark.parametrize("nonnegative", [False, True])
def test_uncorrelated_features_that_agree_attain_the_floor(nonnegative: bool) -> None:
    z = (
        100 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
        + 100 * nonnegative
    )
    assert bool((z >= 0).all()) is nonnegative
    for loss in (BarlowTwins(), VICReg()):
        assert 0 <= float(loss(z, z)) - loss.floor(4, nonnegative=nonnegative) < 1e-12
        assert float(loss(*draw_views()).detach()) > loss.floor(5)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: BarlowTwins(-0.1), r"lambda_ must be >= 0 and finite, got -0\.1; zbontar2021 uses 0\.005"),
        (lambda: BarlowTwins(math.nan), r"lambda_ must be >= 0 and finite, got nan"),
        (
            lambda: BarlowTwins(variance_epsilon=0),
            r"variance_epsilon must be > 0, got 0; 1e-5 is batch normalisation's",
        ),
        (lambda: VICReg(similarity=-1), r"similarity must be >= 0 and finite, got -1; bardes2022 uses 25, 25 and 1"),
        (lambda: VICReg(variance=math.inf), r"variance must be >= 0 and finite, got inf"),
        (lambda: VICReg(covariance=-2), r"covariance must be >= 0 and finite, got -2"),
        (lambda: VICReg(variance_epsilon=-1), r"variance_epsilon must be > 0, got -1; bardes2022 uses 1e-4"),
    ],
)
def test_bad_settings_are_named(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()
