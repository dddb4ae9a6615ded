"""The l1 penalty around other losses: what it adds, what it hands on."""

# N samples per view, D features

import math

import pytest
import torch
from loss_checks import Oracle, assert_matches, draw_views
from torch import Tensor

from counterpoint.losses.cross_entropy import NonNegativeCrossEntropy
from counterpoint.losses.loss import Loss, LossCard, Part
from counterpoint.losses.noncontrastive import Regression, VICReg
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.losses.wrappers import SparsityPenalty
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

each_length = pytest.mark.parametrize("normalize", [True, False])


class Heard(Loss):
    """Remembers what it was called with."""

    card = LossCard("Heard", "-", "-", "-", "none", "as they are", "nobody2000, Eq. 1", "true", "no pairs")

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        self.heard = (z0, z1, labels, part)
        return z0.new_zeros(())

    def chance(self, n: int) -> float:
        return 7.0

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        return -3.0 if nonnegative else -4.0


def truth_of(weight: float, normalize: bool) -> Oracle:
    """The spectral loss with its penalty."""
    return lambda a, b: oracle.spectral_contrastive(a, b, 1.0) + weight * oracle.mean_l1(a, b, normalize)


@each_length
@pytest.mark.parametrize("weight", [0.0, 0.01, 2.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "d"), [(5, 3), (2, 3), (9, 2)])
def test_value_and_gradient_are_the_papers(
    *, normalize: bool, weight: float, dtype: torch.dtype, n: int, d: int
) -> None:
    loss = SparsityPenalty(SpectralContrastive(), weight, normalize=normalize)
    assert_matches(loss, truth_of(weight, normalize), *draw_views(n, d, dtype=dtype))


@each_length
def test_the_inner_loss_gets_what_came(normalize: bool) -> None:
    inner = Heard()
    z0, z1 = draw_views()
    labels, part = torch.arange(5), Part(0, 2, lambda statistic, is_log: statistic)
    value = SparsityPenalty(inner, normalize=normalize)(z0, z1, labels, part=part)
    assert all(ours is theirs for ours, theirs in zip(inner.heard, (z0, z1, labels, part), strict=True))
    assert_close(value, SparsityPenalty(inner, normalize=normalize)(z0, z1))  # the penalty takes the whole batch


@pytest.mark.parametrize(
    "inner", [VICReg(), Regression(), NonNegativeCrossEntropy(3, 3)], ids=lambda loss: loss.card.name
)
def test_it_wraps_any_loss(inner: Loss) -> None:
    z0, z1 = draw_views()
    labels = torch.tensor([2, 0, 1, 1, 1])
    penalised = SparsityPenalty(inner, 0.5, normalize=False)
    difference = penalised(z0, z1, labels) - inner(z0, z1, labels)
    assert_numbers(difference, 0.5 * complex(oracle.mean_l1(z0.tolist(), z1.tolist(), False)).real)
    assert list(map(id, penalised.parameters())) == list(map(id, inner.parameters()))


def test_one_active_feature_is_the_least_of_vectors_that_are_all_alike() -> None:
    """At unit length l1 runs from 1 to sqrt(D)."""
    loss = SparsityPenalty(SpectralContrastive(), 0.5)
    sparse = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=torch.float64).expand(6, 4)
    dense = torch.full((6, 4), 0.5, dtype=torch.float64)
    assert_numbers([float(loss(sparse, sparse)), loss.chance(6)], [-1 + 0.5, -1 + 0.5])
    assert_numbers(loss(dense, dense), -1 + 0.5 * math.sqrt(4))


def test_floor_and_chance_are_the_inner_ones() -> None:
    for normalize in (True, False):
        loss = SparsityPenalty(Heard(), 0.5, normalize=normalize)
        assert loss.floor(4) == -4.0
        assert loss.floor(4, nonnegative=True) == -3.0
        assert loss.chance(4) == 7.0 + 0.5 * normalize
    zeros = torch.zeros(4, 2)
    assert float(SparsityPenalty(Heard(), 0.5)(zeros, zeros)) == 0.0


def test_bad_settings_are_named() -> None:
    for weight in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"weight must be >= 0 and finite, got {weight}; ncl2024 uses 0\.01"):
            SparsityPenalty(Heard(), weight)
    with pytest.raises(TypeError, match=r"loss must be one of counterpoint\.losses, got Linear; build it first"):
        SparsityPenalty(torch.nn.Linear(2, 2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="got ABCMeta; build it first"):
        SparsityPenalty(SpectralContrastive)  # pyright: ignore[reportArgumentType]
