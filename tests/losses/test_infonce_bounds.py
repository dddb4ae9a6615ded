"""Chance and floor: what a loss curve is read against."""

# N samples per view, D features

import math

import pytest
import torch
from torch import Tensor

from counterpoint.losses import InfoNCE
from counterpoint.losses.loss import Loss
from counterpoint.losses.pairs import Negatives
from oracles.number_checks import assert_numbers

KINDS = ["two-view", "cross-view", "same-view"]
ROUNDING = 1e-12  # a bound may be missed by no more than the rounding of a mean of a few float64 numbers

each_kind = pytest.mark.parametrize("kind", KINDS)
each_epsilon = pytest.mark.parametrize("epsilon", [1.0, 0.0, 0.3])


def simplex(n: int) -> Tensor:
    """The n corners of a regular simplex around 0, in n - 1 dimensions."""
    centred = torch.eye(n, dtype=torch.float64) - 1 / n
    left, sizes, _ = torch.linalg.svd(centred)
    return (left * sizes)[:, : n - 1]


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
@each_epsilon
@pytest.mark.parametrize("normalize", [True, False])
def test_identical_embeddings_are_at_chance(kind: Negatives, epsilon: float, normalize: bool) -> None:
    for n in (2, 3, 7):
        loss = InfoNCE(0.2, epsilon, kind, normalize)
        z = torch.tensor([[3.0, -4.0, 1.0]], dtype=torch.float64).expand(n, 3)
        assert_numbers(loss(z, z), loss.chance(n))
        num_negatives = 2 * n - 2 if kind == "two-view" else n - 1
        assert_numbers(loss.chance(n), math.log(epsilon + num_negatives))


@each_kind
@each_epsilon
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_a_simplex_attains_the_floor(kind: Negatives, epsilon: float, tau: float) -> None:
    loss = InfoNCE(tau, epsilon, kind)
    for n in (2, 3, 6):
        assert_numbers([1.0, float(loss(simplex(n), simplex(n)))], [1.0, loss.floor(n)])


@each_kind
@each_epsilon
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_an_orthonormal_basis_attains_the_floor_of_nonnegative_embeddings(
    kind: Negatives, epsilon: float, tau: float
) -> None:
    loss = InfoNCE(tau, epsilon, kind)
    for n in (2, 3, 6):
        basis = torch.eye(n, dtype=torch.float64)
        assert_numbers([1.0, float(loss(basis, basis))], [1.0, loss.floor(n, nonnegative=True)])
        assert loss.floor(n, nonnegative=True) > loss.floor(n)


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
