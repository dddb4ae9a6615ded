"""Chance and floor: what a loss curve is read against."""

# N samples per view, D features

import math

import pytest
import torch
from family_cases import KINDS
from streamed_checks import simplex

from counterpoint.losses import InfoNCE
from counterpoint.losses.loss import Loss
from counterpoint.losses.pairs import Negatives
from oracles.number_checks import assert_numbers

ROUNDING = 1e-12  # a bound may be missed by no more than the rounding of a mean of a few float64 numbers

each_kind = pytest.mark.parametrize("kind", KINDS)


def descend(loss: Loss, n: int, d: int, *, nonnegative: bool) -> float:
    """Loss after some Adam steps from a random start."""
    generator = torch.Generator().manual_seed(n * 100 + d)
    z = torch.randn(2, n, d, generator=generator, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([z], lr=0.2)
    reached = math.nan
    for _ in range(80):
        optimizer.zero_grad()
        value = loss(*(z.square() if nonnegative else z))
        value.backward()
        optimizer.step()
        reached = float(value.detach())
    return reached


@each_kind
def test_the_number_of_negatives(kind: Negatives) -> None:
    for n in (2, 5):
        alpha = InfoNCE(negatives=kind).importance(torch.eye(n), torch.eye(n))
        assert (alpha > 0).sum(1).tolist() == [InfoNCE(negatives=kind).num_negatives(n)] * (2 * n)


@each_kind
@pytest.mark.parametrize("epsilon", [1.0, 0.0])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.sampled(3)
def test_descent_comes_close_to_the_floor_and_no_further(kind: Negatives, epsilon: float, nonnegative: bool) -> None:
    n = 4
    loss = InfoNCE(0.5, epsilon, kind)
    reached = descend(loss, n, n if nonnegative else n - 1, nonnegative=nonnegative)
    floor, chance = loss.floor(n, nonnegative=nonnegative), loss.chance(n)
    assert floor - ROUNDING <= reached < floor + 0.1 * (chance - floor)


@each_kind
def test_a_wholly_silent_batch_is_at_chance_without_gradient(kind: Negatives) -> None:
    z = torch.zeros(3, 4, requires_grad=True)
    loss = InfoNCE(0.1, negatives=kind)
    value = loss(z, z)
    value.backward()
    assert_numbers(value, loss.chance(3), dtype=torch.float32)
    assert z.grad is not None
    assert not z.grad.any()


@each_kind
def test_too_few_dimensions_leave_a_gap(kind: Negatives) -> None:
    """Four points on a circle are no simplex."""
    loss = InfoNCE(0.5, negatives=kind)
    assert descend(loss, 4, 2, nonnegative=False) > loss.floor(4) + 0.01


@each_kind
def test_raw_vectors_may_grow_until_only_epsilon_is_left(kind: Negatives) -> None:
    for epsilon in (1.0, 0.3):
        loss = InfoNCE(0.5, epsilon, kind, normalize=False)
        far = 100 * simplex(3)
        assert_numbers(loss(far, far), loss.floor(3))
        assert_numbers(loss.floor(3), math.log(epsilon))
    dcl = InfoNCE(0.5, 0.0, kind, normalize=False)
    assert dcl.floor(3) == -math.inf
    assert float(dcl(far, far)) < -1e3
