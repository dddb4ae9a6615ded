"""Two ReLU layers on orthogonal modes: Assumption 1, Lemmas 3 and 13 to 16, and the sticky weight rule of Theorem 4."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracles import alphacl_theory_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.alphacl2022.contrastive_covariance import contrastive_covariance, energy
from reproductions.alphacl2022.deep_linear import twice_energy
from reproductions.alphacl2022.two_layer_relu import (
    ModeMixture,
    as_mixture,
    draw_mixture,
    mode_spectrum,
    relu_velocities,
    sticky_velocities,
)
from tolerances import assert_close

seeds = st.integers(0, 2**31)


def two_layer(w1_KM: Tensor, w2_OK: Tensor, x_NM: Tensor) -> Tensor:
    """z = W_2 [W_1 x]_+, one row per sample (alphacl2022, section 5.1)."""
    return torch.relu(x_NM @ w1_KM.T) @ w2_OK.T


def draw_case(seed: int, num_modes: int, num_samples: int) -> tuple[Tensor, ModeMixture, Tensor]:
    """Positive weights on pairs, data that obey Assumption 1, and their contrastive covariance."""
    generator = torch.Generator().manual_seed(seed)
    alpha = 0.1 + torch.rand(num_samples, num_samples, generator=generator, dtype=torch.float64)
    magnitudes = 0.5 + 3 * torch.rand(num_modes, generator=generator, dtype=torch.float64)
    mixture = draw_mixture(magnitudes, num_samples, spread=0.3, generator=generator)
    return alpha, mixture, contrastive_covariance(alpha, mixture.first_NM, mixture.second_NM)


def draw_weights(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=30)
@given(seed=seeds, num_modes=st.integers(1, 6))
def test_lemma_3_negative_weights_do_nothing_and_then_the_linear_energy_holds(seed: int, num_modes: int) -> None:
    alpha, mixture, x_alpha = draw_case(seed, num_modes, 8)
    w1, w2 = draw_weights(seed, 4, num_modes), draw_weights(seed + 1, 3, 4)
    positive = w1.clamp(min=0)
    z, z_other = (two_layer(w1, w2, x) for x in (mixture.first_NM, mixture.second_NM))
    assert_close(two_layer(positive, w2, mixture.first_NM), z)
    assert_close(mixture.first_NM @ positive.T @ w2.T, z)  # Lemma 13: with W_1 >= 0 all gates that matter are open
    linear = 0.5 * twice_energy(x_alpha, [positive, w2])
    assert float(energy(alpha, z, z_other)) == pytest.approx(linear, rel=1e-10, abs=1e-12)


@settings(max_examples=30)
@given(seed=seeds, num_modes=st.integers(1, 6), share=st.floats(0, 0.9))
def test_theorem_4_relu_dynamics_are_linear_dynamics_that_stick_to_zero(
    seed: int, num_modes: int, share: float
) -> None:
    alpha, mixture, x_alpha = draw_case(seed, num_modes, 8)
    w1, w2 = draw_weights(seed, 4, num_modes).abs(), draw_weights(seed + 1, 3, 4)
    w1 = torch.where(torch.rand(w1.shape, generator=torch.Generator().manual_seed(seed)) < share, 0.0, w1)
    relu, sticky = relu_velocities(alpha, mixture, w1, w2), sticky_velocities(x_alpha, w1, w2)
    scale = max(1.0, float(sticky.first_KM.abs().max()))
    assert float((relu.first_KM - sticky.first_KM).abs().max()) <= 1e-10 * scale
    assert float((relu.second_OK - sticky.second_OK).abs().max()) <= 1e-10 * scale
    assert not relu.first_KM[w1 == 0].any()


def test_theorem_4_gates_are_those_of_the_paper_by_loops() -> None:
    alpha, mixture, _ = draw_case(1, 3, 5)
    w1, w2 = draw_weights(2, 2, 3).abs(), draw_weights(3, 2, 2)
    w1[0, 1] = 0.0
    rows = [t.numpy() for t in (alpha, mixture.first_NM, mixture.second_NM)]
    made = relu_velocities(alpha, mixture, w1, w2)
    moving = (w1 > 0).numpy()  # at 0 the two sides have different slopes, and the rule says 0
    expected = oracle.gradient(lambda w: oracle.relu_energy(w, w2.numpy(), *rows), w1.numpy())
    assert_numbers(made.first_KM, np.where(moving, expected, 0.0))
    assert_numbers(made.second_OK, oracle.gradient(lambda w: oracle.relu_energy(w1.numpy(), w, *rows), w2.numpy()))


def test_without_one_hot_inputs_the_rule_fails() -> None:
    """A sample of two modes opens the gate for a weight at zero, which then moves."""
    x = torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]).double()
    mixed = ModeMixture(x, x, torch.zeros(3, dtype=torch.long))
    w1, w2 = torch.tensor([[1.0, 0.0]]).double(), torch.ones(1, 1).double()
    alpha = torch.ones(3, 3).double()
    sticky = sticky_velocities(contrastive_covariance(alpha, x, x), w1, w2)
    assert float(sticky.first_KM[0, 1]) == 0
    assert abs(float(relu_velocities(alpha, mixed, w1, w2).first_KM[0, 1])) > 0.5


@settings(max_examples=40)
@given(seed=seeds, num_modes=st.integers(2, 7))
def test_lemmas_14_and_15_signs_of_x_alpha_and_its_eigenvectors(seed: int, num_modes: int) -> None:
    _, mixture, x_alpha = draw_case(seed, num_modes, num_modes + 3)
    assert mixture.covers_all_modes
    spectrum = mode_spectrum(x_alpha)
    assert spectrum.largest_off_diagonal < 0  # Lemma 15
    assert float(spectrum.bottom_M.min()) > 0
    assert float(spectrum.top_M.min()) < 0 < float(spectrum.top_M.max())  # Lemma 14
    assert_close(x_alpha @ spectrum.top_M, spectrum.largest_eigenvalue * spectrum.top_M)
    residual = x_alpha @ spectrum.bottom_M - spectrum.smallest_eigenvalue * spectrum.bottom_M
    assert float(residual.norm()) <= 1e-10 * float(x_alpha.norm())


def test_lemma_15_needs_every_mode_and_every_pair() -> None:
    x = torch.eye(3).double()
    missing = contrastive_covariance(torch.ones(2, 2), x[:2], x[:2])
    assert mode_spectrum(missing).largest_off_diagonal == 0
    alpha = torch.ones(3, 3)
    alpha[0, 1] = alpha[1, 0] = 0
    assert mode_spectrum(contrastive_covariance(alpha, x, x)).largest_off_diagonal == 0


def test_assumption_1_is_checked_sample_by_sample() -> None:
    x = torch.eye(3)
    assert as_mixture(x * torch.tensor([[1.0], [2.0], [0.0]]), 0.5 * x * torch.tensor([[1.0], [2.0], [0.0]]))
    with pytest.raises(ValueError, match="sample 1 has more than one positive entry"):
        as_mixture(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.eye(2))
    with pytest.raises(ValueError, match="sample 2 has a second view that is no positive multiple"):
        as_mixture(x, x * torch.tensor([[1.0], [1.0], [0.0]]))
    with pytest.raises(ValueError, match="sample 0 has a second view that is no positive multiple"):
        as_mixture(torch.eye(2), torch.eye(2).flip(0))
    with pytest.raises(ValueError, match="one shape"):
        as_mixture(x, x[:2])
    magnitude = torch.tensor([1.0]) + 0.5 * torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="negative entry"):  # additive noise, as in the released script
        as_mixture(magnitude, magnitude)


def test_drawn_mixtures_obey_assumption_1() -> None:
    made = draw_mixture(torch.tensor([3.0, 2.0, 1.0]), 20, spread=0.5, generator=torch.Generator().manual_seed(1))
    checked = as_mixture(made.first_NM, made.second_NM)
    assert torch.equal(checked.mode_N, made.mode_N)
    assert made.covers_all_modes
    assert float((made.first_NM - made.second_NM).abs().max()) > 0.1


def test_bad_input_is_refused_in_words() -> None:
    generator = torch.Generator()
    with pytest.raises(ValueError, match="at least the number of modes 2, got 1"):
        draw_mixture(torch.ones(2), 1, generator=generator)
    with pytest.raises(ValueError, match="W_1 must be >= 0"):
        sticky_velocities(torch.eye(2), -torch.eye(2), torch.eye(2))
