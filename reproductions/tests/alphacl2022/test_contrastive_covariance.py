"""Contrastive covariance: the paper's loops, Theorem 1 for every member of the family, Lemma 4, and what errata say."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint import losses
from counterpoint.losses import AlphaCL, PairLoss
from oracles import alphacl_theory_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.alphacl2022.contrastive_covariance import (
    contrastive_covariance,
    energy,
    gap_costs,
    loss_gradients,
    weigh,
)
from tolerances import assert_close

seeds = st.integers(0, 2**31)
LOSSES: dict[str, Callable[..., PairLoss | AlphaCL]] = {
    "infonce": losses.InfoNCE,
    "dcl": losses.DCL,
    "mine": losses.MINE,
    "triplet": losses.Triplet,
    "soft-triplet": losses.SoftTriplet,
    "tuplet": losses.NPlusOneTuplet,
    "lifted": losses.LiftedStructured,
    "modified-triplet": losses.ModifiedTriplet,
    "linear": losses.LinearTriplet,
    "alpha-cl": lambda **kwargs: AlphaCL(losses.Direct(), **kwargs),
    "alpha-cl-entropy": lambda **kwargs: AlphaCL(losses.Entropy(epsilon=1.0), **kwargs),
    "alpha-cl-square": lambda **kwargs: AlphaCL(losses.Square(), **kwargs),
}


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_alpha(seed: int, n: int) -> Tensor:
    return torch.rand(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(1, 6), p=st.integers(1, 4), q=st.integers(1, 4))
def test_the_covariance_is_the_papers_double_sum(seed: int, n: int, p: int, q: int) -> None:
    alpha, a, b = draw_alpha(seed, n), draw(seed + 1, 2, n, p), draw(seed + 2, 2, n, q)
    expected = oracle.covariance(*(t.numpy() for t in (alpha, a[0], a[1], b[0], b[1])))
    assert_numbers(contrastive_covariance(alpha, a[0], a[1], b[0], b[1]), expected)


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(2, 6), d=st.integers(1, 4))
def test_half_the_trace_is_the_energy_of_half_squared_distances(seed: int, n: int, d: int) -> None:
    """Eq. 18 to 20: nothing is missing, as d^2 is half the squared distance; full squares would double it."""
    alpha, z = draw_alpha(seed, n), draw(seed + 1, 2, n, d)
    expected = complex(oracle.energy(*(t.numpy() for t in (alpha, z[0], z[1])))).real
    half_trace = 0.5 * contrastive_covariance(alpha, z[0], z[1]).trace()
    assert_numbers(energy(alpha, z[0], z[1]), expected)
    assert_numbers(half_trace, expected)
    full_squares = (alpha.fill_diagonal_(0) * 2 * gap_costs(z[0], z[1])).sum()
    assert_close(full_squares, 2 * half_trace)


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
    pairs = weigh(loss, z0, z1)
    ascent = torch.autograd.grad(pairs.scale * pairs.energy(), (z0, z1))
    assert_close(-torch.stack(ascent), torch.stack(descent))


@pytest.mark.parametrize(("tau", "epsilon"), [(1.0, 1.0), (0.5, 0.0), (2.0, 0.3)])
def test_the_papers_own_loss_by_loops_has_the_gradient_of_equations_50_and_51(tau: float, epsilon: float) -> None:
    z = draw(3, 2, 5, 3).numpy()
    phi, psi = oracle.nce(tau, epsilon)
    alpha = oracle.importance(z[0], z[1], phi, psi)
    made = loss_gradients(*map(torch.from_numpy, (alpha, z[0], z[1])))
    assert_numbers(made.anchors_ND, oracle.gradient(lambda a: oracle.pair_loss(a, z[1], phi, psi), z[0]))
    assert_numbers(made.partners_ND, oracle.gradient(lambda b: oracle.pair_loss(z[0], b, phi, psi), z[1]))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_our_importance_in_the_papers_pairing_is_the_papers(reduction: str) -> None:
    """The paper's phi has a factor tau that ours leaves out."""
    z = draw(4, 2, 5, 3)
    options = {"negatives": "same-view", "normalize": False, "anchors": "first", "reduction": reduction}
    pairs = weigh(losses.InfoNCE(0.5, 1.0, **options), z[0], z[1])  # type: ignore[arg-type]
    expected = oracle.importance(z[0].numpy(), z[1].numpy(), *oracle.nce(0.5, 1.0))
    assert_numbers(0.5 * pairs.alpha_VV[:5, :5], expected)
    assert not pairs.alpha_VV[5:].any()
    assert pairs.scale == (1.0 if reduction == "sum" else 0.2)


@settings(max_examples=25)
@given(seed=seeds, n=st.integers(2, 6))
def test_lemma_4_sums_of_gradients_with_anything_are_minus_its_covariance(seed: int, n: int) -> None:
    alpha, z, a = draw_alpha(seed, n), draw(seed + 1, 2, n, 3), draw(seed + 2, 2, n, 2)
    slopes = loss_gradients(alpha, z[0], z[1])
    products = slopes.anchors_ND.T @ a[0] + slopes.partners_ND.T @ a[1]
    assert_close(products, -contrastive_covariance(alpha, z[0], z[1], a[0], a[1]))  # Eq. 46
    assert_close(products.T, -contrastive_covariance(alpha, a[0], a[1], z[0], z[1]))  # Eq. 47


def test_erratum_equation_27_has_the_wrong_sign() -> None:
    """Descent on W_1 of z = W_2 W_1 x is +W_2^T C[z, x]; Eq. 27 says W_2^T (sum of gradients times inputs)."""
    x, w1, w2 = draw(5, 2, 6, 4), draw(6, 3, 4).requires_grad_(), draw(7, 2, 3)
    loss = losses.InfoNCE(0.7, 1.0, "same-view", False, anchors="first", reduction="sum")
    z0, z1 = (view @ w1.T @ w2.T for view in x)
    descent = -torch.autograd.grad(loss(z0, z1), w1)[0]
    pairs = weigh(loss, z0.detach(), z1.detach())
    alpha = pairs.alpha_VV[:6, :6]
    slopes = loss_gradients(alpha, z0.detach(), z1.detach())
    printed = w2.T @ (slopes.anchors_ND.T @ x[0] + slopes.partners_ND.T @ x[1])
    assert_close(w2.T @ contrastive_covariance(alpha, z0.detach(), z1.detach(), x[0], x[1]), descent)
    assert_close(-printed, descent)


def test_moving_everything_changes_nothing_even_far_from_the_origin() -> None:
    alpha, x = draw_alpha(11, 6), draw(12, 2, 6, 4)
    here = contrastive_covariance(alpha, x[0], x[1])
    there = contrastive_covariance(alpha, x[0] + 2.0**20, x[1] + 2.0**20)
    assert float((here - there).abs().max()) < 1e-7  # x itself lost 20 bits by the move
    assert torch.equal(here, here.T) or float((here - here.T).abs().max()) < 1e-12


def test_bad_input_is_refused_in_words() -> None:
    z = torch.eye(3).double()
    with pytest.raises(ValueError, match=r"alpha must have shape \(3, 3\), got \(2, 2\)"):
        energy(torch.ones(2, 2), z, z)
    with pytest.raises(ValueError, match="one shape"):
        energy(torch.ones(3, 3), z, z[:, :2])
    with pytest.raises(TypeError, match="got BarlowTwins; Theorem 1 needs"):
        weigh(losses.BarlowTwins(), z, z)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="held fixed"):
        weigh(AlphaCL(backpropagate_alpha=True), z, z)
