"""SIGReg, VISReg and RDMReg against their papers, their targets against quadrature, and what collapse does."""

# N samples per view, D features, M slices

import math
from collections.abc import Callable

import pytest
import torch
from loss_checks import assert_matches, draw_views, gradients
from scipy import integrate, stats
from torch import Tensor

from counterpoint.core.counter_random import slice_directions
from counterpoint.losses import RDMReg, SIGReg, VISReg
from counterpoint.losses.distribution import SlicedLoss
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers
from oracles.whole_batch_losses import gradient
from tolerances import assert_close, relative_error

LOSSES: list[SlicedLoss] = [
    SIGReg(num_slices=5),
    SIGReg(0.7, num_slices=3, seed=4),
    VISReg(num_slices=5),
    VISReg(2.0, 0.5, 3.0, num_slices=3, seed=4, variance_epsilon=0.1),
    RDMReg(num_slices=5),
    RDMReg(-0.7, 2, 2.0, 0.5, num_slices=3, seed=4),
]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)


def truth_of(loss: SlicedLoss, *views: Tensor) -> Callable[..., oracle.Number]:
    """The oracle of rows of as many views, on the directions and draws that the loss has."""
    z0 = views[0]
    directions = slice_directions(loss.num_slices, z0, seed=loss.seed, step=0).mT.tolist()
    if isinstance(loss, SIGReg):
        return lambda a, b, *local: oracle.sigreg(a, b, directions, loss.lambda_, local)
    if isinstance(loss, RDMReg):
        target = loss.draw_target(z0).tolist()
        return lambda a, b, *local: oracle.rdmreg(a, b, directions, target, (loss.invariance, loss.matching), local)
    assert isinstance(loss, VISReg)
    weights, epsilon = (loss.invariance, loss.scale, loss.shape), loss.variance_epsilon
    held = [[s.real for s in map(complex, oracle.deviations(z.tolist(), epsilon))] for z in views]
    return lambda a, b, *local: oracle.visreg(a, b, directions, weights, epsilon, held, local=local)


@each_loss
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "d"), [(5, 3), (9, 2), (4, 1), (3, 8)])
def test_value_and_gradient_are_the_papers(loss: SlicedLoss, dtype: torch.dtype, n: int, d: int) -> None:
    z0, z1 = draw_views(n, d, dtype=dtype)
    assert_matches(loss, truth_of(loss, z0, z1), z0, z1)


def test_terms_of_the_released_code_weigh_one_each() -> None:
    """wu2026 adds them up; RDMReg likewise its two."""
    z0, z1 = draw_views(6, 3)
    assert_close(VISReg()(z0, z1), VISReg(1.0, 1.0, 1.0)(z0, z1))
    assert_close(RDMReg()(z0, z1), RDMReg(invariance=1.0, matching=1.0)(z0, z1))


@each_loss
def test_local_views_meet_the_mean_of_the_global_ones_and_have_the_distribution(loss: SlicedLoss) -> None:
    z0, z1, z2, z3 = (*draw_views(6, 3), *draw_views(6, 3, seed=1))
    truth = truth_of(loss, z0, z1, z2, z3)

    def of_all(*views: Tensor) -> Tensor:
        return loss(*views[:2], local_LND=torch.stack(views[2:]))

    rows = [z.tolist() for z in (z0, z1, z2, z3)]
    value = of_all(z0, z1, z2, z3)
    assert relative_error(value, torch.tensor(complex(truth(*rows)).real, dtype=torch.float64)) < 1e-12
    assert_numbers(gradients(value, z0, z1), gradient(lambda a, b: truth(a, b, *rows[2:]), *rows[:2]), dtype=z0.dtype)
    value = of_all(z0, z1, z2, z3)
    assert_numbers(gradients(value, z2, z3), gradient(lambda a, b: truth(*rows[:2], a, b), *rows[2:]), dtype=z0.dtype)
    assert torch.equal(loss(z0, z1, local_LND=torch.empty(0, 6, 3, dtype=torch.float64)), loss(z0, z1))
    with pytest.raises(ValueError, match=r"local_LND must be views of the samples of z0, \(l, 6, 3\), got \(2, 5, 3\)"):
        loss(z0, z1, local_LND=torch.stack([z2, z3])[:, :5])
    with pytest.raises(TypeError, match=r"local_LND must be a tensor \(l, n, d\), got list; use torch\.stack"):
        loss(z0, z1, local_LND=[z2, z3])
    with pytest.raises(ValueError, match=r"local_LND\[1\] .*row 0"):
        loss(z0, z1, local_LND=torch.stack([z2, z3 / 0.0 * 0.0]))


@each_loss
def test_each_step_has_its_own_directions_and_a_seed_gives_them_again(loss: SlicedLoss) -> None:
    z0, z1 = (z.detach() for z in draw_views())
    assert torch.equal(loss(z0, z1, step=3), loss(z0, z1, step=3))
    assert relative_error(loss(z0, z1, step=4), loss(z0, z1, step=3)) > 1e-6
    other = type(loss)(num_slices=loss.num_slices, seed=loss.seed + 1)
    same = type(loss)(num_slices=loss.num_slices, seed=loss.seed)
    assert relative_error(other(z0, z1, step=3), same(z0, z1, step=3)) > 1e-6


def test_directions_are_uniform_on_the_sphere() -> None:
    a_DM = slice_directions(20_000, torch.zeros(1, 5, dtype=torch.float64), seed=0, step=9)
    assert_close(a_DM.norm(dim=0), torch.ones(20_000, dtype=torch.float64))
    moments = a_DM @ a_DM.mT / 20_000
    # A product of two coordinates has a variance below 1 / 25.
    assert float((moments - torch.eye(5) / 5).abs().max()) < 5 * 0.2 / math.sqrt(20_000)
    assert float(a_DM.mean(1).abs().max()) < 5 * math.sqrt(0.2 / 20_000)


# --- the target of RDMReg


def moment(loss: RDMReg, power: int) -> float:
    """Of max(0, mu + g), by quadrature."""

    def density(x: float) -> float:
        return float(stats.norm.pdf(x) if loss.p == 2 else stats.laplace.pdf(x, scale=math.sqrt(0.5)))

    found = integrate.quad(lambda x: x**power * density(x - loss.mu), 0, max(loss.mu, 0) + 40, points=[abs(loss.mu)])
    return float(found[0])


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("mu", [-1.5, 0.0, 0.8])
def test_zeros_and_chance_are_the_targets(mu: float, p: int) -> None:
    loss = RDMReg(mu, p)
    assert abs(1 - loss.zero_share - moment(loss, 0)) < 1e-8
    assert abs(loss.chance(9) - (moment(loss, 2) - moment(loss, 1) ** 2)) < 1e-7
    drawn = loss.draw_target(torch.zeros(400, 100, dtype=torch.float64), step=2)
    assert float(drawn.min()) == 0
    share = float((drawn == 0).double().mean())
    assert abs(share - loss.zero_share) < 5 * math.sqrt(loss.zero_share * (1 - loss.zero_share) / 40_000)
    assert abs(float(drawn.mean()) - moment(loss, 1)) < 5 * math.sqrt(loss.chance(9) / 40_000)
    collapsed = drawn.mean().expand(400, 100)
    assert abs(float(loss(collapsed, collapsed)) / loss.chance(9) - 1) < 0.2


@pytest.mark.parametrize(
    ("loss", "draw"),
    [
        (SIGReg(1.0), lambda n: torch.randn(n, 8, generator=torch.Generator().manual_seed(0))),
        (VISReg(), lambda n: torch.randn(n, 8, generator=torch.Generator().manual_seed(0))),
        (RDMReg(-0.5), lambda n: RDMReg(-0.5, seed=7).draw_target(torch.zeros(n, 8))),
    ],
    ids=["sigreg", "visreg", "rdmreg"],
)
def test_the_target_is_far_below_chance_and_other_shapes_are_not(
    loss: SlicedLoss, draw: Callable[[int], Tensor]
) -> None:
    z = draw(2000)
    assert float(loss(z, z)) < 0.05 * loss.chance(2000)
    signs = z[:, :1].sign().expand_as(z) * (1 + 0.1 * z)  # two clusters
    assert float(loss(signs, signs)) > 5 * float(loss(z, z))


# --- collapse


def pull(loss: SlicedLoss, spread: float) -> float:
    """Length of the gradient that moves vectors apart which are alike but for a spread, and away from zero."""
    noise = torch.randn(64, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z0, z1 = (5.0 + spread * noise).requires_grad_(), (5.0 + spread * noise).requires_grad_()
    slope = gradients(loss(z0, z1), z0, z1)
    return float((slope - slope.mean(1, keepdim=True)).norm())


def test_the_gradient_of_sigreg_vanishes_at_collapse_and_that_of_visreg_does_not() -> None:
    zero = torch.zeros(64, 16, dtype=torch.float64, requires_grad=True)
    assert float(gradients(SIGReg()(zero, zero), zero, zero).norm()) < 1e-12
    assert pull(SIGReg(), 0.0) < 1e-12
    assert pull(SIGReg(), 1e-4) < 1e-3 * pull(SIGReg(), 1.0)
    for spread in (1e-2, 1e-4, 0.0):
        assert pull(VISReg(), spread) > pull(VISReg(), 1.0)
        assert math.isfinite(pull(VISReg(), spread))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: SIGReg(1.5), r"lambda_ must be at most 1, got 1\.5"),
        (lambda: SIGReg(-0.1), r"lambda_ must be >= 0"),
        (lambda: SIGReg(num_slices=0), r"num_slices must be a whole number from 1"),
        (lambda: SIGReg(seed=-1), r"seed must be a whole number from 0"),
        (lambda: VISReg(shape=-1), r"shape must be >= 0"),
        (lambda: VISReg(variance_epsilon=0), r"variance_epsilon must be > 0"),
        (lambda: RDMReg(math.nan), r"mu must be from -10 to 10"),
        (lambda: RDMReg(p=3), r"p must be a whole number from 1 to 2"),
        (lambda: RDMReg(matching=math.inf), r"matching must be >= 0"),
        (lambda: SIGReg()(torch.eye(2), torch.eye(2), step=-1), r"step must be a whole number from 0"),
    ],
)
def test_bad_settings_are_named(build: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build()
