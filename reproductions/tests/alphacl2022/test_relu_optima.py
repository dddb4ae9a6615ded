"""Where ReLU networks end on orthogonal modes: Theorem 5 for one node, Theorem 6 for many, and the rank in between."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from reproductions.alphacl2022.contrastive_covariance import contrastive_covariance
from reproductions.alphacl2022.relu_optima import (
    ascend_sticky,
    describe_first_layer,
    follow_single_node,
)
from reproductions.alphacl2022.two_layer_relu import draw_mixture, mode_spectrum

seeds = st.integers(0, 2**31)
STRONG = torch.tensor([[0.5, -1.0], [-1.0, 0.7]], dtype=torch.float64)  # augmentation lowered the diagonal


def draw_covariance(seed: int, num_modes: int, spread: float = 0.1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    num_samples = 2 * num_modes
    alpha = 0.1 + torch.rand(num_samples, num_samples, generator=generator, dtype=torch.float64)
    magnitudes = 0.5 + 3 * torch.rand(num_modes, generator=generator, dtype=torch.float64)
    mixture = draw_mixture(magnitudes, num_samples, spread=spread, generator=generator)
    return contrastive_covariance(alpha, mixture.first_NM, mixture.second_NM)


def draw_layers(seed: int, num_modes: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    w1 = torch.rand(num_nodes, num_modes, generator=generator, dtype=torch.float64)
    return w1, torch.randn(4, num_nodes, generator=generator, dtype=torch.float64)


@settings(max_examples=30)
@given(seed=seeds, num_modes=st.integers(1, 7))
def test_theorem_5_one_node_ends_with_one_mode(seed: int, num_modes: int) -> None:
    x_alpha = draw_covariance(seed, num_modes)
    path = follow_single_node(x_alpha, draw_layers(seed, num_modes, 1)[0][0])
    assert path.mode is not None
    assert path.status == f"one mode is left: {path.mode}"
    assert sorted((*path.order, path.mode)) == list(range(num_modes))  # each other mode died once
    assert torch.equal(path.weights_TM[-1], torch.eye(num_modes, dtype=torch.float64)[path.mode])
    assert float((path.weights_TM.norm(dim=1) - 1).abs().max()) < 1e-8
    objective_T = ((path.weights_TM @ x_alpha) * path.weights_TM).sum(1)
    assert float(objective_T.diff().min()) >= -1e-8 * float(x_alpha.norm())  # the energy rises
    assert bool(((path.weights_TM[1:] == 0) >= (path.weights_TM[:-1] == 0)).all())  # what is 0 stays 0


def test_theorem_5_every_mode_can_win() -> None:
    x_alpha = draw_covariance(3, 5)
    for mode in range(5):
        start = torch.full((5,), 0.05, dtype=torch.float64)
        start[mode] = 1.0
        assert follow_single_node(x_alpha, start).mode == mode


def test_theorem_5_leaves_out_the_eigenvector_of_the_smallest_eigenvalue() -> None:
    """All its entries are positive and nothing moves; next to it the flow goes off to one mode or the other."""
    x_alpha = torch.tensor([[2.0, -2.0], [-2.0, 2.0]], dtype=torch.float64)
    fixed = mode_spectrum(x_alpha).bottom_M
    path = follow_single_node(x_alpha, fixed, horizon=20.0)
    assert path.mode is None
    assert "2 modes are left at the horizon 20" in path.status
    tilt = torch.tensor([1e-6, -1e-6])
    assert follow_single_node(x_alpha, fixed + tilt).mode == 0
    assert follow_single_node(x_alpha, fixed - tilt).mode == 1


SPREADS = st.sampled_from([0.0, 0.1, 0.5, 0.9])


@settings(max_examples=5)
@given(seed=seeds, num_modes=st.integers(2, 5), spread=SPREADS)
@pytest.mark.thorough
def test_theorem_6_one_mode_or_rank_above_one(seed: int, num_modes: int, spread: float) -> None:
    x_alpha = draw_covariance(seed, num_modes, spread)
    made = ascend_sticky(x_alpha, *draw_layers(seed, num_modes, 5), num_steps=1500)
    assume(made.criticality < 1e-6 and float(made.objective_T[-1]) > 0)
    found = describe_first_layer(made.w1_KM)
    assert found.single_mode is not None or found.rank > 1
    assert found.rank <= 2  # the module's reduction


@settings(max_examples=12)
@given(seed=seeds, num_modes=st.integers(2, 5), spread=SPREADS)
@pytest.mark.thorough
def test_no_ascent_leaves_the_orthant_or_beats_a_linear_network(seed: int, num_modes: int, spread: float) -> None:
    x_alpha = draw_covariance(seed, num_modes, spread)
    made = ascend_sticky(x_alpha, *draw_layers(seed, num_modes, 5), num_steps=300)
    assert float(made.w1_KM.min()) >= 0
    largest = float(torch.linalg.eigvalsh(x_alpha)[-1])
    assert float(made.objective_T[-1]) <= largest * (1 + 1e-12)


@pytest.mark.thorough
def test_theorem_6_both_cases_occur() -> None:
    single = ascend_sticky(torch.tensor([[3.0, -1.0], [-1.0, 1.0]]), *draw_layers(1, 2, 4))
    assert single.criticality < 1e-8
    assert describe_first_layer(single.w1_KM).single_mode is not None
    halves = torch.tensor([[1.0, 0.1], [0.1, 1.0]]), torch.tensor([[1.0, -1.0]])  # a node for each, of opposite signs
    double = ascend_sticky(STRONG, *halves)
    assert double.criticality < 1e-8
    assert describe_first_layer(double.w1_KM).rank == 2
    assert float(double.objective_T[-1]) == pytest.approx(
        (1 - 0.5 * 0.7) / (2 - 0.5 - 0.7), rel=1e-10
    )  # (h^2 - a c) / (2 h - a - c)


@pytest.mark.thorough
def test_a_rank_one_layer_on_two_modes_is_no_optimum() -> None:
    """The heart of Theorem 6: from u with two modes, some direction raises the energy."""
    x_alpha = torch.tensor([[3.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    bottom = mode_spectrum(x_alpha).bottom_M  # critical for rank one, as W_2 has one column only
    start = [bottom[None] + 1e-4 * torch.tensor([[1.0, -1.0]]), torch.ones(1, 1).double()]
    made = ascend_sticky(x_alpha, start[0], start[1])
    assert float(made.objective_T[-1]) > float(made.objective_T[0]) + 1
    assert describe_first_layer(made.w1_KM).single_mode == 0


def test_what_a_first_layer_looks_at() -> None:
    found = describe_first_layer(torch.tensor([[3.0, 4.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]))
    assert (found.rank, found.modes, found.single_mode) == (2, (0, 1, 2), None)
    assert found.concentration == pytest.approx(0.9)  # (0.8 + 1) / 2; the silent node does not count
    assert found.coverage == pytest.approx((0.6 + 0.8 + 1) / 3)


def test_bad_input_is_refused_in_words() -> None:
    x_alpha = torch.tensor([[2.0, -1.0], [-1.0, 1.0]])
    with pytest.raises(ValueError, match="w must have a positive entry"):
        follow_single_node(x_alpha, -torch.ones(2))
    with pytest.raises(ValueError, match="negative off-diagonal entries"):
        follow_single_node(torch.ones(2, 2), torch.ones(2))
    with pytest.raises(ValueError, match="W_1 must have a positive entry"):
        describe_first_layer(-torch.eye(2))
