"""Two ReLU layers on orthogonal modes: Lemmas 3 and 13 to 15, the sticky weight rule, and where networks end."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracles import alphacl_theory_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.alphacl2022.alphacl_figures import MODES, released_batches
from reproductions.alphacl2022.contrastive_covariance import contrastive_covariance
from reproductions.alphacl2022.relu_optima import ascend_sticky, describe_first_layer, draw_mixture, sticky_velocities

seeds = st.integers(0, 2**31)
SPREADS = st.sampled_from([0.0, 0.1, 0.5, 0.9])
ONE = torch.ones(1, 1).double()
SKEWED = torch.tensor([[3.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
EVEN = torch.tensor([[2.0, -2.0], [-2.0, 2.0]], dtype=torch.float64)
STRONG = torch.tensor([[0.5, -1.0], [-1.0, 0.7]], dtype=torch.float64)  # augmentation lowered the diagonal


def draw_case(seed: int, num_modes: int, num_samples: int, spread: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Positive weights on pairs, two views that obey Assumption 1, and their contrastive covariance."""
    generator = torch.Generator().manual_seed(seed)
    alpha = 0.1 + torch.rand(num_samples, num_samples, generator=generator, dtype=torch.float64)
    magnitudes = 0.5 + 3 * torch.rand(num_modes, generator=generator, dtype=torch.float64)
    x_2NM = draw_mixture(magnitudes, num_samples, spread=spread, generator=generator)
    return alpha, x_2NM, contrastive_covariance(alpha, *x_2NM)


def draw_covariance(seed: int, num_modes: int, spread: float = 0.1) -> Tensor:
    return draw_case(seed, num_modes, 2 * num_modes, spread)[2]


def draw_layers(seed: int, num_modes: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    w1 = torch.rand(num_nodes, num_modes, generator=generator, dtype=torch.float64)
    return w1, torch.randn(4, num_nodes, generator=generator, dtype=torch.float64)


def twice_energy(x_alpha: Tensor, w1: Tensor, w2: Tensor) -> float:
    return float((w2 @ w1 @ x_alpha @ w1.T @ w2.T).trace())


def criticality(x_alpha: Tensor, w1: Tensor, w2: Tensor) -> float:
    """Norm of the gradients' parts beside the layers themselves (Eq. 30), relative to 2 E; 0 at a critical point."""
    pairs = zip(sticky_velocities(x_alpha, w1, w2), (w1, w2), strict=True)
    rests = [float((v - (v * w).sum() * w).norm()) for v, w in pairs]
    return max(rests) / abs(twice_energy(x_alpha, w1, w2))


def single_mode(x_alpha: Tensor, start: Tensor) -> int | None:
    """The mode with which one node ends; with one output W_2 stays 1, so that W_1 follows Eq. 41."""
    return describe_first_layer(ascend_sticky(x_alpha, start[None], ONE)[0]).single_mode


# --- the sticky weight rule


@settings(max_examples=10)
@given(seed=seeds, num_modes=st.integers(1, 4), share=st.floats(0, 0.9))
def test_theorem_4_relu_dynamics_are_linear_dynamics_that_stick_to_zero(
    seed: int, num_modes: int, share: float
) -> None:
    """The gates are those of the paper by loops (Eq. 39), with a part of the first layer's weights at zero."""
    alpha, x_2NM, x_alpha = draw_case(seed, num_modes, 5)
    w1, w2 = draw_layers(seed, num_modes, 3)
    w1 = torch.where(torch.rand(w1.shape, generator=torch.Generator().manual_seed(seed)) < share, 0.0, w1)
    assert float((x_alpha - torch.diag(x_alpha.diagonal() + 1)).max()) < 0  # Lemma 15, from which Lemma 14 follows
    rows = [t.numpy() for t in (alpha, *x_2NM)]
    first, second = sticky_velocities(x_alpha, w1, w2)
    assert_numbers(first, oracle.gradient(lambda w: oracle.relu_energy(w, w2.numpy(), *rows), w1.numpy()))
    assert_numbers(second, oracle.gradient(lambda w: oracle.relu_energy(w1.numpy(), w, *rows), w2.numpy()))


def test_without_one_hot_inputs_the_rule_fails() -> None:
    """A sample of two modes opens the gate for a weight at zero, which then moves."""
    x = torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]).double()
    w1, alpha = torch.tensor([[1.0, 0.0]]).double(), torch.ones(3, 3).double()
    assert float(sticky_velocities(contrastive_covariance(alpha, x, x), w1, ONE)[0][0, 1]) == 0
    rows = [t.numpy() for t in (alpha, x, x)]
    assert abs(oracle.gradient(lambda w: oracle.relu_energy(w, ONE.numpy(), *rows), w1.numpy())[0, 1]) > 0.5


def test_magnitudes_of_the_released_script_are_negative_in_the_smallest_mode() -> None:
    """Its m + N(0, 0.5) breaks Assumption 1, whose modes are non-negative; our factors are log-normal."""
    x_BM = torch.cat([torch.cat(list(batch)) for batch in released_batches(50)])
    shares = [float((x_M[x_M != 0] < 0).double().mean()) for x_M in x_BM.T]
    assert len(shares) == MODES
    assert shares[-1] == pytest.approx(0.023, abs=0.01)  # P(N(0, 1) < -2)
    assert max(shares[:-2]) == 0
    x_2NM = draw_mixture(torch.tensor([3.0, 2.0, 1.0]), 20, spread=0.5, generator=torch.Generator().manual_seed(1))
    assert bool((x_2NM >= 0).all())
    assert bool(((x_2NM > 0).sum(2) == 1).all())
    assert torch.equal(x_2NM[0] > 0, x_2NM[1] > 0)
    assert float((x_2NM[0] - x_2NM[1]).abs().max()) > 0.1


# --- where networks end


@settings(max_examples=10)
@given(seed=seeds, num_modes=st.integers(1, 7))
def test_theorem_5_one_node_ends_with_one_mode(seed: int, num_modes: int) -> None:
    x_alpha, start = draw_covariance(seed, num_modes), draw_layers(seed, num_modes, 1)[0]
    assert single_mode(x_alpha, start[0]) is not None


def test_theorem_5_leaves_out_the_eigenvector_of_the_smallest_eigenvalue() -> None:
    """All its entries are positive and nothing moves; next to it the flow goes off to one mode or the other."""
    for x_alpha in (EVEN, SKEWED):
        bottom = torch.linalg.eigh(x_alpha).eigenvectors[:, 0].abs()
        first, _ = sticky_velocities(x_alpha, bottom[None], ONE)
        assert float((first - (first @ bottom) * bottom).abs().max()) < 1e-15  # nothing but its length would change
        tilt = torch.tensor([1e-6, -1e-6])
        assert single_mode(x_alpha, bottom + tilt) == 0
        assert single_mode(x_alpha, bottom - tilt) == 1


@settings(max_examples=5)
@given(seed=seeds, num_modes=st.integers(2, 5), spread=SPREADS)
@pytest.mark.thorough
def test_theorem_6_one_mode_or_rank_above_one(seed: int, num_modes: int, spread: float) -> None:
    x_alpha = draw_covariance(seed, num_modes, spread)
    w1, w2 = ascend_sticky(x_alpha, *draw_layers(seed, num_modes, 5), num_steps=1500)
    assert float(w1.min()) >= 0
    assert twice_energy(x_alpha, w1, w2) <= float(torch.linalg.eigvalsh(x_alpha)[-1]) * (1 + 1e-12)
    assume(twice_energy(x_alpha, w1, w2) > 0 and criticality(x_alpha, w1, w2) < 1e-6)
    layer = describe_first_layer(w1)
    assert layer.single_mode is not None or layer.rank > 1
    assert layer.rank <= 2  # the module's reduction


@pytest.mark.thorough
def test_theorem_6_rank_two_occurs_at_its_value() -> None:
    halves = torch.tensor([[1.0, 0.1], [0.1, 1.0]]), torch.tensor([[1.0, -1.0]])  # a node for each, of opposite signs
    double = ascend_sticky(STRONG, *halves)
    assert criticality(STRONG, *double) < 1e-8
    assert describe_first_layer(double[0]).rank == 2
    expected = (1 - 0.5 * 0.7) / (2 - 0.5 - 0.7)  # (h^2 - a c) / (2 h - a - c)
    assert twice_energy(STRONG, *double) == pytest.approx(expected, rel=1e-10)


@pytest.mark.thorough
def test_a_rank_one_layer_on_two_modes_is_no_optimum() -> None:
    """The heart of Theorem 6: from u with two modes, some direction raises the energy."""
    bottom = torch.linalg.eigh(SKEWED).eigenvectors[:, 0].abs()  # critical for rank one: W_2 has one column only
    start = bottom[None] + 1e-4 * torch.tensor([[1.0, -1.0]])
    w1, w2 = ascend_sticky(SKEWED, start, ONE)
    assert twice_energy(SKEWED, w1, w2) > twice_energy(SKEWED, start, ONE) + 1
    assert describe_first_layer(w1).single_mode == 0


def test_what_a_first_layer_looks_at() -> None:
    layer = describe_first_layer(torch.tensor([[3.0, 4.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]))
    assert (layer.rank, layer.single_mode) == (2, None)
    assert layer.concentration == pytest.approx(0.9)  # (0.8 + 1) / 2; the silent node does not count


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="W_1 must have a positive entry"):
        describe_first_layer(-torch.eye(2))
    with pytest.raises(ValueError, match="at least the number of modes 2, got 1"):
        draw_mixture(torch.ones(2), 1, generator=torch.Generator())
    with pytest.raises(ValueError, match="W_1 must be >= 0"):
        sticky_velocities(torch.eye(2), -torch.eye(2), torch.eye(2))
