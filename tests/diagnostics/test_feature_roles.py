"""Repeated dimensions and dimensions of several classes: known answers, loops, chance, and what must not matter."""

# N samples, D features, C classes

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics import feature_roles as module
from counterpoint.diagnostics.feature_roles import classes_per_dim, drawn_correlation, duplicate_dims, polysemantic_dims
from oracles import class_directions_oracle as oracle


def draw(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(12, 40), d=st.integers(1, 6), repeats=st.integers(0, 6), seed=st.integers(0, 99))
def test_repeated_dimensions_are_those_of_the_loop(n: int, d: int, repeats: int, seed: int) -> None:
    z = draw(n, d, seed)
    source = torch.randint(d, (repeats,), generator=torch.Generator().manual_seed(seed))
    z = torch.cat([z, z[:, source] * -3 + 0.05 * draw(n, repeats, seed + 1)], dim=1)
    assert duplicate_dims(z) == oracle.duplicate_dims(z.double().numpy())


@settings(max_examples=40, deadline=None)
@given(n=st.integers(5, 60), d=st.integers(1, 5), num_classes=st.integers(1, 5), seed=st.integers(0, 99))
def test_dimensions_of_several_classes_are_those_of_the_loop(n: int, d: int, num_classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(-1, num_classes, (n,), generator=generator)
    z = (draw(n, d, seed) + 2.0 * (labels[:, None] % 2 == torch.arange(d) % 2) - 1).clamp_min(0)
    assert polysemantic_dims(z, labels) == oracle.polysemantic_dims(z.double().numpy(), labels.tolist(), 1e-5)


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (draw(500, 64), 0),
        (draw(500, 64).repeat(1, 2), 64),
        (torch.ones(500, 8), 0),
        (torch.cat([draw(500, 4), torch.zeros(500, 4)], dim=1), 0),
        (draw(500, 1) * torch.linspace(1, 2, 16), 15),
        (draw(500, 8) + 1e3, 0),
        (torch.cat([draw(500, 4), draw(500, 4) + 0.25 * draw(500, 4, 1)], dim=1), 0),  # correlations of 0.97
    ],
    ids=["isotropic", "each twice", "constant", "silent", "rank 1", "offset", "much alike"],
)
def test_repeated_dimensions_of_plain_cases(z: Tensor, expected: int) -> None:
    assert duplicate_dims(z) == expected


def test_two_dimensions_that_fire_once_are_no_repetition() -> None:
    z = torch.zeros(100, 2)
    z[3] = 1.0
    assert duplicate_dims(z) == 0


def test_blocks_and_many_samples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.cat([draw(300, 20), -draw(300, 20)], dim=1)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    assert duplicate_dims(z) == 20
    monkeypatch.setattr(module, "MOST_SAMPLES", 50)
    assert duplicate_dims(z) == 20


def test_scale_sign_offset_and_order_do_not_matter() -> None:
    z = draw(200, 10).repeat(1, 2)
    changed = z.flip(0) * torch.linspace(-3, 3, 20) + torch.linspace(-2, 2, 20)
    assert duplicate_dims(changed) == duplicate_dims(z) == 10


def test_a_code_that_knows_no_class_stands_for_none() -> None:
    """At 5 % for all dimensions together; classes of unequal size."""
    labels = torch.arange(4).repeat_interleave(torch.tensor([400, 50, 30, 20]))
    named = sum(int(classes_per_dim(draw(500, 30, seed).clamp_min(0), labels).sum() > 0) for seed in range(100))
    assert named <= 5 + 3 * 2.2  # 5 of 100, within three standard errors


def test_a_dimension_per_class_two_classes_per_dimension_and_a_dense_code() -> None:
    labels = torch.arange(4).repeat_interleave(25)
    own = torch.eye(4)[labels]
    assert classes_per_dim(own, labels).tolist() == [1, 1, 1, 1]
    shared = own @ torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    assert classes_per_dim(shared, labels).tolist() == [2, 2]
    assert classes_per_dim(draw(100, 3), labels).tolist() == [0, 0, 0]
    assert classes_per_dim(own, torch.full((100,), -1)).tolist() == [0, 0, 0, 0]


def test_the_drawn_matrix_has_the_most_active_dimensions_in_their_order() -> None:
    z = draw(300, 150) * torch.linspace(0.1, 2, 150)
    found = drawn_correlation(z)
    assert len(found.dims) == module.MOST_DRAWN
    assert list(found.dims) == sorted(found.dims)
    assert found.matrix_LL.diagonal().tolist() == pytest.approx([1.0] * 128)
    expected = torch.corrcoef(z[:, list(found.dims)].double().T)
    assert torch.allclose(found.matrix_LL, expected, atol=1e-9)
    assert drawn_correlation(torch.ones(9, 2)).matrix_LL.tolist() == [[0.0, 0.0], [0.0, 0.0]]
