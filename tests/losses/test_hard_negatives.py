"""Hard negatives around the losses with an exponential, against robinson2021's objective."""

# N samples per view, D features

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from family_cases import KINDS
from loss_checks import (
    KERNELS,
    Oracle,
    assert_matches,
    draw_views,
    gradient_of_held_pairs,
    gradients,
    on_kernel,
    simplex,
    with_edges,
)
from torch import Tensor

from counterpoint.losses import family
from counterpoint.losses.alpha_rules import Entropy
from counterpoint.losses.binary import MIOv1
from counterpoint.losses.family import MINE, LiftedStructured, NPlusOneTuplet, SoftTriplet
from counterpoint.losses.infonce import DCL, InfoNCE
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.wrappers import HardNegatives
from oracles import labelled_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_kind = pytest.mark.parametrize("kind", KINDS)
each_unit = pytest.mark.parametrize("normalize", [True, False], ids=["unit", "raw"])
EXPONENTIAL = [DCL, InfoNCE, MINE, SoftTriplet, NPlusOneTuplet, LiftedStructured]


def case(beta: float, tau: float, epsilon: float, kind: str, normalize: bool) -> tuple[HardNegatives, Oracle]:
    loss = HardNegatives(InfoNCE(tau, epsilon, kind, normalize), beta)  # pyright: ignore[reportArgumentType]
    return loss, lambda a, b: oracle.hard_negatives(oracle.exponents(a, b, tau, kind, normalize), beta, epsilon)


@each_kernel
@each_dtype
@each_kind
@each_unit
@pytest.mark.parametrize(("beta", "epsilon"), [(0.0, 1.0), (0.5, 1.0), (2.0, 0.0), (1.0, 0.3)])
@pytest.mark.sampled(8)
def test_value_and_gradient_are_the_papers(
    *, kernel: str, dtype: torch.dtype, kind: str, normalize: bool, beta: float, epsilon: float
) -> None:
    z0, z1 = draw_views(dtype=dtype)
    with on_kernel(kernel):
        assert_matches(*case(beta, 0.6, epsilon, kind, normalize), z0, z1)


@pytest.mark.parametrize("make", EXPONENTIAL)
def test_without_concentration_it_is_the_wrapped_loss(make: Callable[..., PairLoss]) -> None:
    z0, z1 = draw_views()
    inner = make()
    assert torch.equal(HardNegatives(inner, 0)(z0, z1), inner(z0, z1))
    assert torch.equal(HardNegatives(inner, 0).importance(z0, z1), inner.importance(z0, z1))
    assert_close(HardNegatives(inner, 1e-13)(z0, z1), inner(z0, z1))
    assert float((HardNegatives(inner, 1.0)(z0, z1) - inner(z0, z1)).detach()) > 1e-3


def paper(z0: Tensor, z1: Tensor, tau: float, epsilon: float, margin: float = 0.0) -> float:
    """Mean of log(epsilon + xi) at beta = 1.5; the margin moves all exponents alike."""
    u = oracle.exponents(z0.tolist(), z1.tolist(), tau, "two-view", True)
    return complex(oracle.hard_negatives([[x + margin for x in row] for row in u], 1.5, epsilon)).real


def test_other_phis_and_margins() -> None:
    z0, z1 = (z.detach() for z in draw_views())
    assert_numbers(HardNegatives(MINE(), 1.5)(z0, z1), paper(z0, z1, 1.0, 0.0))
    assert_numbers(HardNegatives(NPlusOneTuplet(), 1.5)(z0, z1), paper(z0, z1, 1.0, 1.0))
    assert_numbers(HardNegatives(SoftTriplet(0.4, 0.3), 1.5)(z0, z1), 0.4 * paper(z0, z1, 0.4, 1.0, 0.3))
    root = PairLoss(torch.sqrt, torch.exp)
    one = z0[:2], z0[:2]  # all four anchors are alike
    assert_numbers(HardNegatives(root, 1.5)(*one), math.exp(paper(*one, 1.0, 0.0) / 2))
    shifted = PairLoss(root.phi, MINE().psi, reduction="sum")
    assert_close(HardNegatives(shifted, 1.5)(z0, z1) / 10, HardNegatives(PairLoss(root.phi, MINE().psi), 1.5)(z0, z1))


@each_kernel
@each_kind
def test_a_low_temperature_neither_overflows_nor_loses_the_gradient(kernel: str, kind: str) -> None:
    with on_kernel(kernel):
        loss, truth = case(2.0, 0.01, 1.0, kind, True)
        z0, z1 = with_edges(1e3, torch.float64)
        assert_matches(loss, truth, z0, z1)
        single = [z.detach().float().requires_grad_() for z in (z0, z1)]
        assert_close(loss(*single), loss(z0, z1), dtype=torch.float32)
        assert bool(torch.isfinite(gradients(loss(*single), *single)).all())


@pytest.mark.parametrize("make", EXPONENTIAL)
@each_kind
def test_the_loss_has_the_gradient_of_held_alpha(make: Callable[..., PairLoss], kind: str) -> None:
    loss = HardNegatives(make(negatives=kind), 1.5)
    unit = [F.normalize(z.detach(), dim=1).requires_grad_() for z in draw_views()]
    alpha = loss.importance(*unit)
    assert bool((alpha[loss.loss.importance(*unit) == 0] == 0).all())
    held = gradient_of_held_pairs(alpha / 10, None, *unit)
    along = (held * torch.stack(unit)).sum(2, keepdim=True) * torch.stack(unit)  # normalising takes off what is along z
    assert_close(gradients(loss(*unit), *unit), held - along)


def test_harder_negatives_weigh_more() -> None:
    """Every anchor has its hardest negatives at a cosine of .5; the first has others at -.5."""
    z = torch.tensor([[1.0, 0.0], [0.5, 0.75**0.5], [-0.5, 0.75**0.5]], dtype=torch.float64)
    near, far = HardNegatives(DCL(0.5), 1.0).importance(z, z)[0, 1:3].tolist()
    assert far < 0 < near
    values = [float(HardNegatives(DCL(0.5), beta)(z, z)) for beta in (0.0, 0.5, 1.0, 2.0)]
    assert values == sorted(set(values))
    assert_numbers(HardNegatives(DCL(0.5), 500.0)(z, z), math.log(4) + (0.5 - 1) / 0.5)  # K times the hardest


@pytest.mark.parametrize("make", EXPONENTIAL)
def test_what_a_curve_is_read_with_is_that_of_the_wrapped_loss(make: Callable[..., PairLoss]) -> None:
    inner = make()
    loss = HardNegatives(inner, 2.0)
    alike = torch.tensor([[0.6, -0.8]], dtype=torch.float64).expand(5, 2)
    assert_numbers(loss(alike, alike), loss.chance(5))
    assert loss.num_negatives(5) == inner.num_negatives(5)
    for nonnegative, best in ((False, simplex(5)), (True, torch.eye(5, dtype=torch.float64))):
        assert_numbers(loss(best, best), loss.floor(5, nonnegative=nonnegative))  # all negatives are equally hard
    for seed in range(10):
        z0, z1 = draw_views(5, 5, seed=seed)
        assert float(loss(z0, z1).detach()) > float(inner(z0, z1).detach()) > loss.floor(5)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (family.Triplet(), r"got Triplet"),
        (family.LinearTriplet(), r"got LinearTriplet"),
        (PairLoss(torch.log1p, torch.sinh), r"got PairLoss"),
        (MIOv1(), r"got MIOv1"),
        (Entropy(0.5), r"got Entropy"),
        (InfoNCE, r"got function"),
        (HardNegatives(InfoNCE()), r"got HardNegatives"),
    ],
)
def test_a_loss_that_cannot_be_wrapped_is_named(loss: PairLoss, words: str) -> None:
    with pytest.raises(
        TypeError, match=rf"loss must be a pairwise loss with exponential psi, such as InfoNCE.*{words}"
    ):
        HardNegatives(loss)
