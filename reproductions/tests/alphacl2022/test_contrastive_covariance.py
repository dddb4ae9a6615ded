"""Contrastive covariance: the paper's loops, Theorem 1 for every member of the family, Lemma 4, and what errata say."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint import losses
from counterpoint.losses import AlphaCL, PairLoss
from counterpoint.losses.inputs import prepare_views
from losses.family_cases import CASES
from oracles import alphacl_theory_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.alphacl2022.contrastive_covariance import contrastive_covariance
from tolerances import assert_close

seeds = st.integers(0, 2**31)
LOSSES: dict[str, Callable[..., PairLoss | AlphaCL]] = {
    **{case.name: case.make for case in CASES},
    "alpha-cl": lambda **kwargs: AlphaCL(losses.Direct(), **kwargs),
    "alpha-cl-entropy": lambda **kwargs: AlphaCL(losses.Entropy(epsilon=1.0), **kwargs),
    "alpha-cl-square": lambda **kwargs: AlphaCL(losses.Square(), **kwargs),
}


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_alpha(seed: int, n: int) -> Tensor:
    return torch.rand(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cross_covariance(alpha: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """C[a, b] of two views each, (2, n, p) and (2, n, q): a block of that of both beside each other."""
    return contrastive_covariance(alpha, *torch.cat([a, b], dim=2))[: a.shape[2], a.shape[2] :]


def energy(alpha: Tensor, z: Tensor, z_other: Tensor) -> Tensor:
    return 0.5 * contrastive_covariance(alpha, z, z_other).trace()


def energy_of(loss: PairLoss | AlphaCL, z0: Tensor, z1: Tensor) -> Tensor:
    """The energy of all 2n vectors under the loss's own importance, times what the loss divides its sum by."""
    z0, z1 = prepare_views(z0, z1, normalize=loss.pairing.normalize)
    alpha = loss.importance(z0, z1).detach()  # sg(alpha) of Theorem 1
    return energy(alpha, torch.cat([z0, z1]), torch.cat([z1, z0])) / (2 * len(z0))


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(1, 6), p=st.integers(1, 4), q=st.integers(1, 4))
def test_the_covariance_is_the_papers_double_sum(seed: int, n: int, p: int, q: int) -> None:
    alpha, a, b = draw_alpha(seed, n), draw(seed + 1, 2, n, p), draw(seed + 2, 2, n, q)
    expected = oracle.covariance(*(t.numpy() for t in (alpha, a[0], a[1], b[0], b[1])))
    assert_numbers(cross_covariance(alpha, a, b), expected)


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(2, 6), d=st.integers(1, 4))
def test_half_the_trace_is_the_energy_of_half_squared_distances(seed: int, n: int, d: int) -> None:
    """Eq. 18 to 20: nothing is missing, as d^2 is half the squared distance; full squares would double it."""
    alpha, z = draw_alpha(seed, n), draw(seed + 1, 2, n, d)
    expected = complex(oracle.energy(*(t.numpy() for t in (alpha, z[0], z[1])))).real
    assert_numbers(energy(alpha, z[0], z[1]), expected)
    gaps = torch.cdist(z[0], z[0]).square() - (z[0] - z[1]).square().sum(1, keepdim=True)
    assert float((alpha.fill_diagonal_(0) * gaps).sum()) == pytest.approx(2 * expected, rel=1e-6, abs=1e-6)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(LOSSES)),
    negatives=st.sampled_from(["two-view", "same-view", "cross-view"]),
    normalize=st.booleans(),
    seed=seeds,
    n=st.integers(2, 5),
)
def test_theorem_1_every_loss_descends_as_its_energy_ascends(
    name: str, negatives: str, normalize: bool, seed: int, n: int
) -> None:
    loss = LOSSES[name](negatives=negatives, normalize=normalize)
    z0, z1 = (z.requires_grad_() for z in draw(seed, 2, n, 3))
    descent = torch.autograd.grad(loss(z0, z1), (z0, z1))
    ascent = torch.autograd.grad(energy_of(loss, z0, z1), (z0, z1))
    assert_close(-torch.stack(ascent), torch.stack(descent))


def test_erratum_equation_27_has_the_wrong_sign() -> None:
    """Descent on W_1 of z = W_2 W_1 x is +W_2^T C[z, x]; Eq. 27 says W_2^T (sum of gradients times inputs).

    By Lemma 4 sums of gradients with anything are minus its covariance with z.
    """
    x, w1, w2 = draw(5, 2, 6, 4), draw(6, 3, 4).requires_grad_(), draw(7, 2, 3)
    loss = losses.InfoNCE(0.7, 1.0, "same-view", False, anchors="first", reduction="sum")
    z = x @ w1.T @ w2.T
    by_views, by_weights = torch.autograd.grad(loss(*z), (z, w1))
    z = z.detach()
    alpha = loss.importance(*z)[:6, :6]
    sums = by_views[0].T @ x[0] + by_views[1].T @ x[1]
    assert_close(sums, -cross_covariance(alpha, z, x))  # Eq. 46
    assert_close(sums.T, -cross_covariance(alpha, x, z))  # Eq. 47
    assert_close(w2.T @ cross_covariance(alpha, z, x), -by_weights)
    assert_close(-w2.T @ sums, -by_weights)


def test_moving_everything_changes_nothing_even_far_from_the_origin() -> None:
    alpha, x = draw_alpha(11, 6), draw(12, 2, 6, 4)
    here = contrastive_covariance(alpha, x[0], x[1])
    there = contrastive_covariance(alpha, x[0] + 2.0**20, x[1] + 2.0**20)
    assert float((here - there).abs().max()) < 1e-7  # x itself lost 20 bits by the move


def test_bad_input_is_refused_in_words() -> None:
    z = torch.eye(3).double()
    with pytest.raises(ValueError, match=r"alpha must have shape \(3, 3\), got \(2, 2\)"):
        contrastive_covariance(torch.ones(2, 2), z, z)
    with pytest.raises(ValueError, match="one shape"):
        contrastive_covariance(torch.ones(3, 3), z, z[:, :2])
