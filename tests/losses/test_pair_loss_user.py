"""A user's own phi and psi: derivatives by autograd or given, the log domain where asked for, words for mistakes."""

# N samples per view, D features

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from streamed_checks import KERNELS, assert_parts_average_to_the_whole, on_kernel, simplex
from torch import Tensor
from whole_batch_checks import HESSIAN_LIMIT, draw_views, gradients

import derivatives
from counterpoint.core.errors import NonFiniteError
from counterpoint.kernels.contract import EXPONENTIAL, SOFTPLUS, PairFunction
from counterpoint.losses.blocks import Pairing
from counterpoint.losses.family import LiftedStructured, LinearTriplet, ModifiedTriplet, NPlusOneTuplet, SoftTriplet
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.pairs import Phi, Psi
from oracles.number_checks import assert_numbers
from tolerances import assert_close, relative_error

each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def same(x: Tensor) -> Tensor:
    return x


ALIKE = [
    (PairLoss(torch.log1p, torch.exp), NPlusOneTuplet()),
    (PairLoss(same, lambda u: torch.sigmoid(3 * u)), ModifiedTriplet(3.0)),
    (PairLoss(same, same), LinearTriplet()),
    (PairLoss(same, lambda u: 2 * u - u), LinearTriplet()),
    (PairLoss(lambda x: 0.5 * torch.log1p(x), lambda u: torch.exp(2 * u + 0.3)), SoftTriplet(0.5, 0.3)),
    (PairLoss(lambda x: x.log().relu().square(), Psi(EXPONENTIAL, "exp(x + 1)", margin=1.0)), LiftedStructured()),
]


@each_kernel
@pytest.mark.parametrize(("own", "member"), ALIKE, ids=[member.card.name for _, member in ALIKE])
def test_a_member_written_by_hand_is_the_member(own: PairLoss, member: PairLoss, kernel: str) -> None:
    z0, z1 = draw_views(4, 3)
    v = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with on_kernel(kernel):
        ours, theirs = own(z0, z1), member(z0, z1)
        assert_close(ours, theirs)
        assert_close(gradients(ours, z0, z1), gradients(theirs, z0, z1))
        z = torch.stack([z0, z1]).detach()
        product, expected = (derivatives.vhp(lambda z, f=f: f(z[0], z[1]), z, v) for f in (own, member))
    assert relative_error(product, expected) < HESSIAN_LIMIT
    assert_close(own.importance(z0, z1), member.importance(z0, z1))


@each_kernel
def test_given_derivatives_are_used(kernel: str) -> None:
    """With slopes that are wrong on purpose the gradient, and alpha, are wrong by the same factor on every kernel."""
    z0, z1 = draw_views(4, 3)
    true = PairLoss(torch.square, SOFTPLUS)
    doubled = PairFunction("doubled", SOFTPLUS.value, lambda u: 2 * SOFTPLUS.slope(u), SOFTPLUS.curvature)
    false = PairLoss(torch.square, doubled)
    with on_kernel(kernel):
        slopes = [gradients(loss(z0, z1), z0, z1) for loss in (true, false)]
    assert_close(slopes[1], 2 * slopes[0])
    assert_close(false.importance(z0, z1), 2 * true.importance(z0, z1))


@each_kernel
def test_exp_is_computed_in_the_log_domain(kernel: str) -> None:
    """As torch.exp, and with a phi of logarithms, exponents of 1e6 stay numbers; as another function they do not."""
    z0, z1 = (1e3 * z.detach().requires_grad_() for z in draw_views(4, 3))
    raw = Pairing(normalize=False)
    phi = Phi(torch.log, "log(x)", lambda log_xi: log_xi)
    with on_kernel(kernel):
        value = PairLoss(phi, torch.exp, pairing=raw)(z0, z1)
        assert bool(torch.isfinite(gradients(value, z0, z1)).all())
        with pytest.raises(NonFiniteError, match=r"PairLoss is (-?inf|nan) for finite inputs"):
            PairLoss(torch.log, lambda u: 1.0 * torch.exp(u), pairing=raw)(z0, z1)
    assert bool(torch.isfinite(value))


@pytest.mark.parametrize("negatives", ["two-view", "cross-view", "same-view"])
@each_kernel
def test_parts_average_to_the_whole(negatives: Any, kernel: str) -> None:
    z0, z1 = draw_views(6, 3)
    loss = PairLoss(torch.arctan, F.softplus, pairing=Pairing(negatives))
    with on_kernel(kernel):
        assert_parts_average_to_the_whole(loss, z0, z1, 3)


def test_its_bounds_hold_for_functions_that_are_not_convex() -> None:
    """Jensen's inequality needs phi(psi) convex: five vectors at e and one at -e undercut the simplex."""
    for psi in (torch.exp, lambda u: torch.sigmoid(9 * u)):
        for phi in (lambda x: torch.sigmoid(40 * (x - 2.9)), torch.sqrt, torch.arctan):
            loss = PairLoss(phi, psi)
            z = torch.ones(6, 1, dtype=torch.float64)
            z[5] = -1.0
            for batch in (z, simplex(6), torch.eye(6, dtype=torch.float64)):
                assert float(loss(batch, batch)) >= loss.floor(6) - 1e-12
            equal = torch.ones(6, 2, dtype=torch.float64)
            assert_numbers(loss(equal, equal), loss.chance(6))


def test_its_card_names_the_functions() -> None:
    pairing = Pairing("cross-view", "first", normalize=False)
    card = PairLoss(torch.log1p, F.softplus, pairing=pairing, reduction="sum").card
    assert (card.name, card.phi, card.psi) == ("PairLoss", "log(1 + x)", "softplus")
    assert "sum over anchors" in card.normalization
    assert "vectors as they are" in card.normalization
    assert "first view" in card.negatives
    own = PairLoss(Phi(torch.log1p, "log(1 + x)"), Psi(SOFTPLUS, "softplus(x / 2)", scale=0.5)).card
    assert (own.phi, own.psi) == ("log(1 + x)", "softplus(x / 2)")


@pytest.mark.parametrize(
    ("phi", "psi", "error", "sentence"),
    [
        (1.0, torch.exp, TypeError, r"phi must be a function of a tensor, got float"),
        (torch.log1p, "exp", TypeError, r"psi must be a function of a tensor, got str"),
        (torch.sum, torch.exp, ValueError, r"phi must act on each element, but turned shape \(2, 3\) into \(\)"),
        (torch.log1p, lambda u: u.T, ValueError, r"psi must act on each element.*\(2, 3\) into \(3, 2\)"),
        (torch.log1p, lambda u: 1.0, ValueError, r"psi must act on each element.*into float"),
    ],
)
def test_mistakes_are_named(phi: Any, psi: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        PairLoss(phi, psi)


def test_an_unknown_reduction_or_pairing_is_named() -> None:
    with pytest.raises(ValueError, match=r"reduction must be one of mean, sum, got 'max'"):
        PairLoss(torch.log1p, torch.exp, reduction="max")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"anchors must be one of both, first, got 'all'"):
        Pairing(anchors="all")  # pyright: ignore[reportArgumentType]
