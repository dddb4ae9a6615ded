"""Alignment of neighbouring layers: known answers, and what may not change it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.core.errors import UsageError
from counterpoint.papers.directclr2022.singular_vectors import alignment_blocks, alignment_matrix, live_alignment
from counterpoint.papers.directclr2022.toy_networks import decaying_weight
from tolerances import assert_close

few = settings(max_examples=20)
cases = st.tuples(st.integers(1, 6), st.integers(0, 10**6))


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


@few
@given(case=cases)
def test_rows_and_columns_have_length_one(case: tuple[int, int]) -> None:
    d, generator = case[0], torch.Generator().manual_seed(case[1])
    squared_DD = alignment_matrix(*(decaying_weight(d, generator=generator) for _ in range(2))).square()
    for axis in (0, 1):
        assert_close(squared_DD.sum(dim=axis), torch.ones(d, dtype=torch.float64))


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


def test_a_known_angle_between_subspaces() -> None:
    angle = torch.tensor(0.3, dtype=torch.float64)
    below_DD = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    turn_DD = torch.stack([torch.stack([angle.cos(), angle.sin()]), torch.stack([-angle.sin(), angle.cos()])])
    assert_close(live_alignment(below_DD, below_DD @ turn_DD, 1), angle.cos()[None])
    assert_close(alignment_matrix(below_DD, below_DD @ turn_DD), turn_DD.abs())


def test_layers_may_narrow_and_widen(generator: torch.Generator) -> None:
    below_HD = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    above_KH = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    assert alignment_matrix(below_HD, above_KH).shape == (3, 3)
    assert alignment_blocks(below_HD, above_KH)[-1].last == 3


def test_mistakes_are_explained() -> None:
    eye_DD = torch.eye(3)
    with pytest.raises(UsageError, match="above takes 2 inputs, but below gives 3"):
        alignment_matrix(eye_DD, torch.eye(2))
    with pytest.raises(UsageError, match="num_live must be between 1 and 3, got 4"):
        live_alignment(eye_DD, eye_DD, 4)
    with pytest.raises(ValueError, match="separation must be > 0"):
        alignment_blocks(eye_DD, eye_DD, separation=0)
    with pytest.raises(ValueError, match="below must be finite"):
        alignment_matrix(torch.full((3, 3), torch.inf), eye_DD)
