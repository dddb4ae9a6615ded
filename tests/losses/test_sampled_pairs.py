"""A user's functions alone give the class-level record of the loss that they are; others are refused with a reason."""

import math

import pytest
import torch
import torch.nn.functional as F

from counterpoint.core.errors import NonFiniteError, UsageError
from counterpoint.losses import DCL, InfoNCE, LinearTriplet, PairLoss, SoftTriplet
from counterpoint.losses.class_level import LogOfSum, Separable
from counterpoint.theory import optimal_geometry

SHARES = [0.5, 0.3, 0.2]


def same(x: torch.Tensor) -> torch.Tensor:
    return 1.0 * x


@pytest.mark.parametrize(
    ("loss", "known"),
    [
        (PairLoss(lambda x: torch.log(1 + x), lambda gap: torch.exp(gap / 0.2)), InfoNCE(0.2)),
        (PairLoss(torch.log1p, lambda gap: torch.exp(gap / 0.01)), InfoNCE(0.01)),
        (PairLoss(lambda x: x.log(), lambda gap: torch.exp(gap / 0.5)), DCL(0.5)),
        (PairLoss(lambda x: 0.5 * torch.log1p(x), lambda gap: torch.exp(2 * gap + 0.3)), SoftTriplet(0.5, 0.3)),
    ],
    ids=["infonce", "low temperature", "dcl", "soft triplet"],
)
def test_logarithms_of_sums_of_exponentials_are_recognised(loss: PairLoss, known: PairLoss) -> None:
    found, expected = loss.class_level(), known.class_level()
    assert isinstance(found, LogOfSum)
    assert isinstance(expected, LogOfSum)
    numbers = [[r.epsilon, r.factor, r.scale, r.margin] for r in (found, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-9, abs=1e-12)


def test_functions_alone_give_a_geometry() -> None:
    """That of the same loss from the catalogue; of squares of softplus, one whose risk is least where it says."""
    mine = PairLoss(lambda x: torch.log(1 + x), lambda gap: torch.exp(gap / 0.5))
    ours = optimal_geometry(SHARES, loss=mine, num_negatives=8)
    assert torch.allclose(ours.gram, optimal_geometry(SHARES, loss=InfoNCE(0.5), num_negatives=8).gram, atol=1e-7)
    squares = PairLoss(same, lambda gap: F.softplus(3 * gap).square())
    assert isinstance(squares.class_level(), Separable)
    found = optimal_geometry([1 / 3] * 3, loss=squares, num_negatives=2).gram
    assert torch.allclose(found, 1.5 * torch.eye(3).double() - 0.5, atol=1e-5)  # a simplex, by symmetry
    assert isinstance(PairLoss(same, same).class_level(), type(LinearTriplet().class_level()))


@pytest.mark.parametrize(
    ("phi", "psi", "why"),
    [
        (same, torch.sinh, "not convex"),
        (same, torch.sigmoid, "not convex"),
        (same, lambda gap: (gap + 1).relu(), "kink"),
        (same, lambda gap: torch.exp(-gap), "not increasing"),
        (torch.square, torch.exp, "neither a sum nor the logarithm"),
        (lambda x: x.log() + 1, torch.exp, "neither a sum nor the logarithm"),
        (torch.log1p, F.softplus, "neither a sum nor the logarithm"),
        (lambda x: -x, torch.exp, "not increasing"),
    ],
)
def test_what_lemma_one_does_not_cover_is_refused(phi: object, psi: object, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        PairLoss(phi, psi).class_level()  # pyright: ignore[reportArgumentType]


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
