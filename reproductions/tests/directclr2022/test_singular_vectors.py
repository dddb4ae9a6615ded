"""Motion of singular values and vectors along flows, and measures of the alignment of neighbouring layers."""

# D width of a layer; the flow of two layers is dW1 = -W2^T G, dW2 = -G W1^T (directclr2022, Lemma 3)

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import draws as rows
from counterpoint.core.errors import UsageError
from oracles import alignment_oracle as oracle
from oracles import flow_oracle
from oracles.number_checks import assert_numbers
from reproductions.directclr2022.singular_vectors import alignment_blocks, alignment_matrix, live_alignment
from reproductions.directclr2022.toy_networks import decaying_weight
from tolerances import assert_close

STEP = 1e-5  # central differences err by about STEP^2 times a third derivative, and by 1e-16 / STEP
ERROR = 1e-6
few = settings(max_examples=20)
sizes = st.tuples(st.integers(2, 5), st.integers(0, 10**6))
Factors = tuple[Tensor, Tensor, Tensor]  # U, the singular values and V


def difference(value_at: Callable[[float], Tensor]) -> Tensor:
    return (value_at(STEP) - value_at(-STEP)) / (2 * STEP)


def near(mine: Tensor, measured: Tensor, *, scale: float = 1.0) -> bool:
    return float((mine - measured).abs().max()) <= ERROR * max(scale, float(measured.abs().max()))


def draw(d: int, seed: int, count: int) -> list[Tensor]:
    """Matrices whose singular values differ by a factor of at least e^0.35."""
    generator = torch.Generator().manual_seed(seed)
    return [decaying_weight(d, generator=generator) for _ in range(count)]


def factors(weight_DD: Tensor) -> Factors:
    u_DD, sigma_D, vh_DD = torch.linalg.svd(weight_DD)
    return u_DD, sigma_D, vh_DD.T


def signed_factors(weight_DD: Tensor, model: Factors) -> Factors:
    """Factors with the signs of others close by."""
    u_DD, sigma_D, v_DD = factors(weight_DD)
    sign_D = (u_DD * model[0]).sum(dim=0).sign()
    return u_DD * sign_D, sigma_D, v_DD * sign_D


def printed_h(sigma_D: Tensor) -> Tensor:
    """H of Eq. 15 and 19, whose sign is wrong."""
    return torch.from_numpy(flow_oracle.inverse_gaps_as_printed(sigma_D.numpy()))


@few
@given(size=sizes)
def test_erratum_the_printed_h_turns_singular_vectors_the_wrong_way(size: tuple[int, int]) -> None:
    """Lemmas 4 and 5 give the derivatives of all factors (Eq. 12 to 14) with minus the H that Eq. 15 prints."""
    weight_DD, velocity_DD = draw(*size, count=2)
    at = u_DD, sigma_D, v_DD = factors(weight_DD)
    measured = [
        difference(lambda t, place=place: signed_factors(weight_DD + t * velocity_DD, at)[place]) for place in range(3)
    ]
    inner_DD, scale = u_DD.T @ velocity_DD @ v_DD, float(weight_DD.abs().max() / sigma_D[-1])
    right_DD, left_DD = inner_DD * sigma_D, sigma_D[:, None] * inner_DD
    assert near(inner_DD.diagonal(), measured[1], scale=scale)  # Eq. 12
    for h_DD, is_right in ((-printed_h(sigma_D), True), (printed_h(sigma_D), False)):
        for rate_DD, found_DD in (
            (u_DD @ (h_DD * (right_DD + right_DD.T)), measured[0]),  # Eq. 13
            (v_DD @ (h_DD * (left_DD.T + left_DD)), measured[2]),  # Eq. 14
        ):
            assert near(rate_DD, found_DD, scale=scale) == is_right


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_erratum_lemma_6_with_the_printed_h_has_the_opposite_sign(seed: int) -> None:
    """Both terms of Eq. 18 are linear in H: flipping it flips the rate of A = V2^T U1."""
    w1_DD, w2_DD, gradient_DD = draw(4, seed, count=3)
    first, second = factors(w1_DD), factors(w2_DD)

    def alignment(t: float) -> Tensor:
        above = signed_factors(w2_DD - t * gradient_DD @ w1_DD.T, second)
        return above[2].T @ signed_factors(w1_DD - t * w2_DD.T @ gradient_DD, first)[0]

    h1, h2, a = printed_h(first[1]), printed_h(second[1]), second[2].T @ first[0]
    f = torch.diag(second[1]) @ second[0].T @ gradient_DD @ first[2] @ torch.diag(first[1])  # Eq. 20
    printed = -a @ (h1 * (a.T @ f + f.T @ a)) + (h2 * (a @ f.T + f @ a.T)) @ a  # Eq. 18
    measured = difference(alignment)
    assert near(-printed, measured, scale=1 / float(first[1][-1]))
    assert not near(printed, measured, scale=1 / float(first[1][-1]))


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_erratum_theorem_3_does_not_hold_where_v2_is_u1_transposed(seed: int) -> None:
    """Eq. 11, sigma_1' = sigma_1 sigma_2^2 r with r = v_1^T X v_1, holds where V2 = U1."""
    w1_DD, w2_DD, x_DD = draw(4, seed, count=3)
    (u1, sigma1, v1), (u2, sigma2, _) = factors(w1_DD), factors(w2_DD)
    gap_DD = x_DD + x_DD.T
    curvature_D = (v1 * (gap_DD @ v1)).sum(dim=0)
    claimed = (sigma1 * sigma2.square() * curvature_D, sigma2 * sigma1.square() * curvature_D)
    for v2, is_right in ((u1, True), (u1.T, False)):
        above_DD = u2 * sigma2 @ v2.T
        gradient_DD = -above_DD @ w1_DD @ gap_DD
        rates = (
            difference(lambda t, w=above_DD, g=gradient_DD: torch.linalg.svdvals(w1_DD - t * w.T @ g)),
            difference(lambda t, w=above_DD, g=gradient_DD: torch.linalg.svdvals(w - t * g @ w1_DD.T)),
        )
        assert near(claimed[0], rates[0]) == is_right
        assert near(claimed[1], rates[1]) == is_right


def test_equal_singular_values_are_judged_as_a_block(generator: torch.Generator) -> None:
    """Two layers that agree on a plane but not on axes in it: |A| is not the identity, the plane is one."""
    turn = torch.linalg.qr(torch.randn(2, 2, generator=generator, dtype=torch.float64)).Q
    plane_DD = torch.block_diag(turn, torch.ones(1, 1, dtype=torch.float64))
    below_DD = torch.diag(torch.tensor([2.0, 1.95, 0.5], dtype=torch.float64))
    above_DD = below_DD @ plane_DD
    assert float(alignment_matrix(below_DD, above_DD).diagonal()[0]) < 0.95
    assert_close(live_alignment(below_DD, above_DD, 2), torch.ones(2, dtype=torch.float64))
    blocks = alignment_blocks(below_DD, above_DD)
    assert [(block.first, block.last) for block in blocks] == [(0, 2), (2, 3)]
    assert [block.share for block in blocks] == pytest.approx([1.0, 1.0], abs=1e-12)


@pytest.mark.parametrize(("inputs", "width", "outputs"), [(7, 5, 3), (3, 5, 4), (5, 5, 5), (2, 6, 2)])
def test_any_shapes_are_those_of_the_oracle(inputs: int, width: int, outputs: int) -> None:
    below, above = rows.draw(width, inputs), rows.draw(outputs, width, seed=1)
    live = min(inputs, width, outputs)
    expected = oracle.principal_cosines(below.numpy(), above.numpy(), live, live)
    assert_numbers(live_alignment(below, above, live), expected)


def test_mistakes_are_explained() -> None:
    eye_DD = torch.eye(3)
    with pytest.raises(UsageError, match="above takes 2 inputs, but below gives 3"):
        alignment_matrix(eye_DD, torch.eye(2))
    with pytest.raises(UsageError, match="num_live must be between 1 and 3, got 4"):
        live_alignment(eye_DD, eye_DD, 4)
    with pytest.raises(ValueError, match="below must be finite"):
        live_alignment(torch.full((2, 2), math.nan), torch.eye(2), 1)
