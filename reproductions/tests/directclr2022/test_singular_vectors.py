"""How singular values and vectors move, and how alignment of neighbouring layers is read."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from oracles import flow_oracle
from reproductions.directclr2022.linear_flow import aligned_rates, two_layer_velocity
from reproductions.directclr2022.singular_vectors import (
    Factors,
    alignment_blocks,
    alignment_matrix,
    alignment_rate,
    factor_rates,
    factors,
    live_alignment,
    singular_value_rates,
)
from reproductions.directclr2022.toy_networks import decaying_weight
from tolerances import assert_close

STEP = 1e-5  # central differences err by about STEP^2 times a third derivative, and by 1e-16 / STEP
ERROR = 1e-6
few = settings(max_examples=20)
sizes = st.tuples(st.integers(2, 5), st.integers(0, 10**6))
cases = st.tuples(st.integers(1, 6), st.integers(0, 10**6))


def difference(value_at: Callable[[float], Tensor]) -> Tensor:
    return (value_at(STEP) - value_at(-STEP)) / (2 * STEP)


def near(mine: Tensor, measured: Tensor, *, scale: float = 1.0) -> bool:
    return float((mine - measured).abs().max()) <= ERROR * max(scale, float(measured.abs().max()))


def draw(d: int, seed: int, count: int) -> list[Tensor]:
    """Matrices whose singular values differ by a factor of at least e^0.35."""
    generator = torch.Generator().manual_seed(seed)
    return [decaying_weight(d, generator=generator) for _ in range(count)]


def signed_factors(weight_DD: Tensor, model: Factors) -> Factors:
    at = factors(weight_DD)
    sign_D = (at.u_DD * model.u_DD).sum(dim=0).sign()
    return Factors(at.u_DD * sign_D, at.sigma_D, at.v_DD * sign_D)


@few
@given(size=sizes)
def test_lemmas_4_and_5_are_the_derivatives_of_the_factors(size: tuple[int, int]) -> None:
    weight_DD, velocity_DD = draw(*size, count=2)
    at = factors(weight_DD)
    rates = factor_rates(at, velocity_DD)
    scale = float(weight_DD.abs().max() / at.sigma_D[-1])
    for name in ("u_DD", "sigma_D", "v_DD"):
        measured = difference(lambda t, name=name: getattr(signed_factors(weight_DD + t * velocity_DD, at), name))
        assert near(getattr(rates, name), measured, scale=scale)


def test_erratum_the_printed_h_turns_singular_vectors_the_wrong_way() -> None:
    """Eq. 15 as printed gives exactly minus the derivative."""
    weight_DD, velocity_DD = draw(4, 0, count=2)
    at = factors(weight_DD)
    h = flow_oracle.inverse_gaps_as_printed(at.sigma_D.numpy())
    u, _, _ = np.linalg.svd(weight_DD.numpy())
    signs = np.sign(np.sum(u * at.u_DD.numpy(), axis=0))
    printed = torch.from_numpy(flow_oracle.left_vectors_rate(weight_DD.numpy(), velocity_DD.numpy(), h) * signs)
    measured = difference(lambda t: signed_factors(weight_DD + t * velocity_DD, at).u_DD)
    assert near(-printed, measured)
    assert not near(printed, measured)
    assert_close(factor_rates(at, velocity_DD).u_DD, -printed)


@few
@given(size=sizes)
def test_lemma_7_is_the_derivative_of_both_layers_singular_values(size: tuple[int, int]) -> None:
    w1_DD, w2_DD, gradient_DD = draw(*size, count=3)
    moved = two_layer_velocity(w1_DD, w2_DD, gradient_DD)
    rates = singular_value_rates(factors(w1_DD), factors(w2_DD), gradient_DD)
    assert near(rates.first, difference(lambda t: torch.linalg.svdvals(w1_DD + t * moved.first)))
    assert near(rates.second, difference(lambda t: torch.linalg.svdvals(w2_DD + t * moved.second)))


def alignment_along(w1_DD: Tensor, w2_DD: Tensor, gradient_DD: Tensor) -> Tensor:
    """d/dt of V2^T U1 measured along the two-layer flow."""
    first, second = factors(w1_DD), factors(w2_DD)
    moved = two_layer_velocity(w1_DD, w2_DD, gradient_DD)

    def alignment(t: float) -> Tensor:
        above = signed_factors(w2_DD + t * moved.second, second)
        return above.v_DD.T @ signed_factors(w1_DD + t * moved.first, first).u_DD

    return difference(alignment)


@few
@given(size=sizes)
def test_lemma_6_is_the_derivative_of_the_alignment_matrix(size: tuple[int, int]) -> None:
    w1_DD, w2_DD, gradient_DD = draw(*size, count=3)
    rate_DD = alignment_rate(factors(w1_DD), factors(w2_DD), gradient_DD)
    assert near(rate_DD, alignment_along(w1_DD, w2_DD, gradient_DD), scale=1 / float(factors(w1_DD).sigma_D[-1]))


def test_erratum_lemma_6_with_the_printed_h_has_the_opposite_sign() -> None:
    """Both terms of Eq. 18 are linear in H: flipping it flips the rate."""
    w1_DD, w2_DD, gradient_DD = draw(4, 1, count=3)
    first, second = factors(w1_DD), factors(w2_DD)
    h1, h2 = (torch.from_numpy(flow_oracle.inverse_gaps_as_printed(at.sigma_D.numpy())) for at in (first, second))
    a = second.v_DD.T @ first.u_DD
    f = torch.diag(second.sigma_D) @ second.u_DD.T @ gradient_DD @ first.v_DD @ torch.diag(first.sigma_D)  # Eq. 20
    printed = -a @ (h1 * (a.T @ f + f.T @ a)) + (h2 * (a @ f.T + f @ a.T)) @ a  # Eq. 18
    assert_close(alignment_rate(first, second, gradient_DD), -printed)
    assert not near(printed, alignment_along(w1_DD, w2_DD, gradient_DD))


@few
@given(size=sizes)
def test_lemma_7_becomes_theorem_3_where_v2_is_u1(size: tuple[int, int]) -> None:
    w1_DD, w2_DD, x_DD = draw(*size, count=3)
    first, second, gap_DD = factors(w1_DD), factors(w2_DD), x_DD + x_DD.T
    aligned_DD = second.u_DD * second.sigma_D @ first.u_DD.T  # W2 with V2 = U1
    rates = singular_value_rates(first, Factors(second.u_DD, second.sigma_D, first.u_DD), -aligned_DD @ w1_DD @ gap_DD)
    curvature_D = (first.v_DD * (gap_DD @ first.v_DD)).sum(dim=0)
    claimed = aligned_rates(first.sigma_D, second.sigma_D, curvature_D)
    assert_close(rates.first, claimed.first)
    assert_close(rates.second, claimed.second)


def test_erratum_theorem_3_does_not_hold_where_v2_is_u1_transposed() -> None:
    w1_DD, w2_DD, x_DD = draw(4, 2, count=3)
    first, second, gap_DD = factors(w1_DD), factors(w2_DD), x_DD + x_DD.T
    crossed_DD = second.u_DD * second.sigma_D @ first.u_DD  # W2 with V2 = U1^T, as printed
    at = Factors(second.u_DD, second.sigma_D, first.u_DD.T)
    rates = singular_value_rates(first, at, -crossed_DD @ w1_DD @ gap_DD)
    curvature_D = (first.v_DD * (gap_DD @ first.v_DD)).sum(dim=0)
    assert not near(rates.first, aligned_rates(first.sigma_D, second.sigma_D, curvature_D).first)


def test_equal_singular_values_have_no_derivative_of_their_vectors() -> None:
    with pytest.raises(UsageError, match="singular values must differ"):
        factor_rates(factors(torch.eye(3)), torch.zeros(3, 3))
    with pytest.raises(UsageError, match="weight must be square, got shape"):
        factors(torch.zeros(2, 3))


def orthogonal(d: int, generator: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q


@few
@given(case=cases)
def test_aligned_layers_give_the_identity_in_any_basis(case: tuple[int, int]) -> None:
    d, generator = case[0], torch.Generator().manual_seed(case[1])
    w1_DD = decaying_weight(d, generator=generator)
    w2_DD = orthogonal(d, generator) @ w1_DD.T
    identity_DD = torch.eye(d, dtype=torch.float64)
    assert_close(alignment_matrix(w1_DD, w2_DD), identity_DD)
    turn_DD = orthogonal(d, generator)  # of the space between the layers
    assert_close(alignment_matrix(3 * turn_DD @ w1_DD, w2_DD @ turn_DD.T), identity_DD)


def test_equal_singular_values_are_judged_as_a_block(generator: torch.Generator) -> None:
    """Two layers that agree on a plane but not on axes in it: |A| is not the identity, the plane is one."""
    plane_DD = torch.block_diag(orthogonal(2, generator), torch.ones(1, 1, dtype=torch.float64))
    below_DD = torch.diag(torch.tensor([2.0, 1.95, 0.5], dtype=torch.float64))
    above_DD = below_DD @ plane_DD
    assert float(alignment_matrix(below_DD, above_DD).diagonal()[0]) < 0.95
    assert_close(live_alignment(below_DD, above_DD, 2), torch.ones(2, dtype=torch.float64))
    blocks = alignment_blocks(below_DD, above_DD)
    assert [(block.first, block.last) for block in blocks] == [(0, 2), (2, 3)]
    assert [block.share for block in blocks] == pytest.approx([1.0, 1.0], abs=1e-12)


def test_mistakes_are_explained() -> None:
    eye_DD = torch.eye(3)
    with pytest.raises(UsageError, match="above takes 2 inputs, but below gives 3"):
        alignment_matrix(eye_DD, torch.eye(2))
    with pytest.raises(UsageError, match="num_live must be between 1 and 3, got 4"):
        live_alignment(eye_DD, eye_DD, 4)
