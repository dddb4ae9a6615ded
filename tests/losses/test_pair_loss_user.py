"""A user's own phi and psi: derivatives by autograd, the log domain where asked for, words for mistakes."""

# N samples per view, D features

import math
from typing import Any

import pytest
import torch
from loss_checks import HESSIAN_LIMIT, KERNELS, draw_views, gradients, on_kernel, simplex
from torch import Tensor

import derivatives
from counterpoint.core.errors import NonFiniteError
from counterpoint.kernels.contract import EXPONENTIAL
from counterpoint.losses.family import LiftedStructured, LinearTriplet, ModifiedTriplet, NPlusOneTuplet, SoftTriplet
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.pairs import Pairing, Phi, Psi
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


@pytest.mark.parametrize(
    ("phi", "domain"), [(torch.log, r"log\(x\), x > 0"), (torch.sqrt, "sqrt, where it is a number")]
)
def test_a_sum_outside_the_domain_of_phi_is_named(phi: object, domain: str) -> None:
    z = torch.eye(3, dtype=torch.float64)
    with pytest.raises(
        NonFiniteError, match=rf"is nan for finite inputs: the sum of psi = sin .* phi = {domain}; take"
    ):
        PairLoss(phi, torch.sin)(z, z)  # pyright: ignore[reportArgumentType]


def test_a_value_that_is_too_large_is_still_called_so() -> None:
    z = torch.eye(3, dtype=torch.float64)
    with pytest.raises(NonFiniteError, match="is inf for finite inputs: they are too large for float64"):
        PairLoss(lambda x: math.inf * x.exp(), torch.exp)(z, z)
