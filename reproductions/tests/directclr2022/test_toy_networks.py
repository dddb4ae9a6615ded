"""Two and more layers: gradients, what flow and SGD do, Theorem 3 along true flows, depth, and what ReLU adds."""

from functools import reduce
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import TrainingError, UsageError
from counterpoint.losses import InfoNCE
from oracles import feature_measures, flow_oracle
from reproductions.directclr2022.singular_vectors import (
    alignment_matrix,
    conservation_drift,
    conserved,
    live_dimensions,
    log_spectrum,
)
from reproductions.directclr2022.toy_models import (
    CATALOGUE,
    DistanceInfoNCE,
    ProductInfoNCE,
    ToyData,
    ToyViews,
    block_noise,
    draw_views,
    gaussian_points,
)
from reproductions.directclr2022.toy_networks import (
    NetworkPath,
    SgdPlan,
    ToyNetwork,
    decaying_network,
    embed,
    gradient_descent,
    gradient_flow,
    network_gradient,
)
from reproductions.flow_integrator import State, integrate
from tolerances import assert_close

NAMES = pytest.mark.parametrize("name", list(CATALOGUE))
few = settings(max_examples=20)
DOUBLE = torch.float64
SHORT = SgdPlan(rate=0.05, num_steps=2_000, batch_size=64, num_records=2)  # the released toy in a tenth of the work


def views_of(n: int, d: int, seed: int, noise: float = 0.3) -> ToyViews:
    """Samples from N(0, I), with noise on both views."""
    generator = torch.Generator().manual_seed(seed)
    clean_ND = gaussian_points(n, d, generator=generator)
    return ToyViews(*(clean_ND + noise * torch.randn(2, n, d, generator=generator, dtype=DOUBLE)))


def network_of(depth: int, d: int, seed: int, *, is_rectified: bool = False) -> ToyNetwork:
    return decaying_network(depth, d, generator=torch.Generator().manual_seed(seed), is_rectified=is_rectified)


@NAMES
@few
@given(depth=st.integers(1, 4), d=st.integers(1, 4), seed=st.integers(0, 10**6), is_rectified=st.booleans())
def test_gradients_of_all_layers_are_autograds(name: str, depth: int, d: int, seed: int, is_rectified: bool) -> None:
    network, views = network_of(depth, d, seed, is_rectified=is_rectified), views_of(5, d, seed)
    weights = [weight.clone().requires_grad_() for weight in network.weights]
    z_NK, other_NK = (embed(ToyNetwork(tuple(weights), is_rectified), x) for x in (views.x_ND, views.other_ND))
    if name == "eq2":
        value = InfoNCE(1.0, 1.0, "same-view", False, anchors="first", reduction="sum")(z_NK, other_NK)
    else:
        value = torch.nn.functional.cross_entropy(z_NK @ other_NK.T / 0.1, torch.arange(5))
    at = network_gradient(network, views, CATALOGUE[name])
    # What terms of the gradient are made of, before they cancel.
    size = sum(float(v.square().sum()) for v in (views.x_ND, views.other_ND)) * 10
    assert abs(at.value - value.item()) <= 1e-10 * max(1.0, value.item())
    for mine, theirs in zip(at.gradients, torch.autograd.grad(value, weights), strict=True):
        assert float((mine - theirs).abs().max()) <= 1e-10 * size


@NAMES
def test_lemma_3_and_eq_10(name: str) -> None:
    """Both layers' gradients are W2^T G and G W1^T, with G = -W2 W1 X."""
    network, views = network_of(2, 4, 3), views_of(7, 4, 3)
    w1_DD, w2_DD = network.weights
    gradient_DD = -w2_DD @ w1_DD @ CATALOGUE[name].covariance_gap(views, w2_DD @ w1_DD)
    at = network_gradient(network, views, CATALOGUE[name])
    assert_close(at.gradients[0], w2_DD.T @ gradient_DD)
    assert_close(at.gradients[1], gradient_DD @ w1_DD.T)


def product(weights: tuple[Tensor, ...]) -> Tensor:
    return reduce(lambda below, above: above @ below, weights)


@NAMES
@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.sampled(6)
@pytest.mark.thorough
def test_the_flow_of_deep_networks_conserves_to_1e_9(name: str, depth: int) -> None:
    network, views = network_of(depth, 4, depth), views_of(10, 4, depth)
    flow = gradient_flow(network, views, CATALOGUE[name], torch.linspace(0, 2, 6))
    for reached in flow.networks[1:]:
        assert conservation_drift(network.weights, reached.weights) < 1e-9
    moved = (product(network.weights) - product(flow.last.weights)).abs().max()
    assert float(moved) > 0.1  # there was something to conserve
    assert bool((flow.losses_T.diff() < 0).all())


def aligned_start(seed: int, d: int = 3) -> tuple[Tensor, Tensor]:
    """W1 and W2 with V2 = U1, singular values that differ."""
    w1_DD, w2_DD = network_of(2, d, seed).weights
    first, second = torch.linalg.svd(w1_DD), torch.linalg.svd(w2_DD)
    return w1_DD, second.U * (0.8 * second.S) @ first.U.T


@NAMES
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_theorem_3_holds_along_the_true_flow_at_a_moment_of_alignment(name: str, seed: int) -> None:
    """The derivative at 0 of both layers' singular values, by five-point differences of the integrated flow."""
    weights, views = aligned_start(seed), views_of(8, 3, seed)
    step = 2e-4
    times_T = torch.arange(5, dtype=DOUBLE) * step
    flow = gradient_flow(ToyNetwork(weights), views, CATALOGUE[name], times_T, tolerance=1e-13)
    coefficients = torch.tensor([-25, 48, -36, 16, -3], dtype=DOUBLE) / (12 * step)
    gap_DD = CATALOGUE[name].covariance_gap(views, product(weights))
    first, second = (torch.linalg.svd(weight) for weight in weights)
    curvature_D = (first.Vh * (first.Vh @ gap_DD)).sum(dim=1)
    claimed = (first.S * second.S.square() * curvature_D, second.S * first.S.square() * curvature_D)  # Eq. 11
    for layer, rates_D in enumerate(claimed):
        sigma_TD = torch.stack([torch.linalg.svdvals(reached.weights[layer]) for reached in flow.networks])
        measured_D = coefficients @ sigma_TD
        # The differences err by step^4 times a fifth derivative, itself about the rates to the power 5.
        assert float((measured_D - rates_D).abs().max() / rates_D.abs().max()) < 1e-7


def fixed_gap_flow(weights: tuple[Tensor, ...], gap_DD: Tensor, end: float) -> State:
    """Follow two layers until a time, with X held fixed (Eq. 8 to 10)."""

    def velocity(state: State) -> list[Tensor]:
        gradient_DD = -state[1] @ state[0] @ gap_DD
        return [-state[1].T @ gradient_DD, -gradient_DD @ state[0].T]

    return integrate(velocity, weights, torch.tensor([0.0, end], dtype=DOUBLE)).states[-1]


def test_erratum_section_5_3_has_the_wrong_sign_before_its_constant() -> None:
    """The rate of sigma_1 is sigma_1 (sigma_1^2 - C), not + C, if sigma_1^2 = sigma_2^2 + C."""
    first, second, rate, time = 1.0, 0.6, 0.8, 0.5
    constant = first**2 - second**2
    layers = tuple(torch.full((1, 1), value, dtype=DOUBLE) for value in (first, second))
    reached = float(fixed_gap_flow(layers, torch.full((1, 1), rate, dtype=DOUBLE), time)[0])
    assert abs(reached - flow_oracle.growth_as_printed(first, -constant, rate, time)) < 1e-9
    assert abs(reached - flow_oracle.growth_as_printed(first, constant, rate, time)) > 0.1


def test_singular_values_blow_up_in_finite_time() -> None:
    """Equal layers have sigma^2 = sigma_0^2 / (1 - 2 r t sigma_0^2): the largest ends first, at 1 / (2 r sigma_0^2)."""
    both = (torch.diag(torch.tensor([1.0, 0.5], dtype=DOUBLE)),) * 2
    reached_DD = fixed_gap_flow(both, torch.eye(2).double(), 0.375)[0]
    assert_close(reached_DD.diagonal(), torch.tensor([2.0, 0.25 / 0.8125], dtype=DOUBLE) ** torch.tensor([1.0, 0.5]))
    with pytest.raises(UsageError, match=r"the flow grows without bound or stiffens after time 0\.5;"):
        fixed_gap_flow(both, torch.eye(2).double(), 0.6)


def test_only_directions_that_outgrow_the_constant_align() -> None:
    """Appendix B.5 concludes equality; what is conserved stays, so small directions keep their misalignment."""
    weights = network_of(2, 4, 4).weights
    below_DD, above_DD = fixed_gap_flow(weights, torch.eye(4).double(), 0.5)
    constant = float(conserved(weights)[0].abs().max())
    assert float(torch.linalg.svdvals(below_DD)[0]) ** 2 > 2 * constant
    cosine_D = alignment_matrix(below_DD, above_DD).diagonal()
    assert float(cosine_D[0]) > 0.999
    assert float(cosine_D[-2:].min()) < 0.9


@NAMES
def test_the_flow_with_relu_lowers_the_loss_and_keeps_the_balance_of_each_hidden_unit(name: str) -> None:
    """ReLU is homogeneous unit by unit: of what linear layers conserve the diagonal remains."""
    network, views = network_of(2, 3, 5, is_rectified=True), views_of(8, 3, 5)
    flow = gradient_flow(network, views, CATALOGUE[name], torch.linspace(0, 0.2, 4), tolerance=1e-6)
    assert bool((flow.losses_T.diff() < 0).all())
    (before_DD,), (after_DD,) = conserved(network.weights), conserved(flow.last.weights)
    assert float((after_DD - before_DD).diagonal().abs().max()) < 1e-6
    assert conservation_drift(network.weights, flow.last.weights) > 1e-3


# --- SGD, depth and ReLU


def trained(depth: int, *, is_rectified: bool = False) -> tuple[NetworkPath, ToyData]:
    generator = torch.Generator().manual_seed(0)
    data = ToyData(block_noise(16, 0.001), gaussian_points(10_000, 16, generator=generator))
    start = decaying_network(depth, 16, generator=generator, is_rectified=is_rectified)
    return gradient_descent(start, data, ProductInfoNCE(), descent=SHORT, generator=generator), data


def narrow_data(num_dims: int) -> ToyData:
    points_PD = gaussian_points(100, num_dims, generator=torch.Generator().manual_seed(5))
    return ToyData(block_noise(num_dims, 0.1), points_PD)


def spectrum_of(path: NetworkPath, data: ToyData) -> Tensor:
    return log_spectrum(embed(path.last, data.points_PD))


def test_a_step_of_sgd_is_minus_the_rate_times_the_gradient_on_its_batch() -> None:
    start = decaying_network(2, 3, generator=torch.Generator().manual_seed(1))
    data = narrow_data(3)
    descent = SgdPlan(rate=0.1, num_steps=2, batch_size=5, num_records=3)
    path = gradient_descent(start, data, DistanceInfoNCE(), descent=descent, generator=torch.Generator().manual_seed(2))
    generator, weights = torch.Generator().manual_seed(2), start.weights
    for reached in path.networks[1:]:
        at = network_gradient(ToyNetwork(weights), draw_views(data, 5, generator=generator), DistanceInfoNCE())
        weights = tuple(w - 0.1 * g for w, g in zip(weights, at.gradients, strict=True))
        for mine, expected in zip(reached.weights, weights, strict=True):
            assert_close(mine, expected)
    assert path.times_T.tolist() == pytest.approx([0.0, 0.1, 0.2])


@pytest.mark.thorough
def test_live_dimensions_fall_with_depth() -> None:
    live = [live_dimensions(spectrum_of(*trained(depth))) for depth in (1, 2, 3, 4)]
    assert live[0] >= 15
    assert all(deep < shallow for shallow, deep in pairwise(live))
    assert live[3] <= 5


@pytest.mark.thorough
def test_relu_costs_the_released_loss_the_direction_of_the_hidden_mean() -> None:
    """Products of embeddings count a mean that all samples share: W2 learns to take it away, and one direction dies."""
    path, data = trained(2, is_rectified=True)
    spectrum_D = spectrum_of(path, data)
    assert live_dimensions(spectrum_D) == 15
    assert float(spectrum_D[-1]) < -20
    hidden_ND = (data.points_PD @ path.last.weights[0].T).relu()
    mean_D = hidden_ND.mean(dim=0) / hidden_ND.mean(dim=0).norm()
    dead_D = torch.linalg.svd(path.last.weights[1]).Vh[-1]
    assert abs(float(mean_D @ dead_D)) > 0.99


def test_the_log_spectrum_is_that_of_the_covariance(generator: torch.Generator) -> None:
    z_ND = gaussian_points(50, 5, generator=generator)
    assert_close(log_spectrum(z_ND).exp(), torch.from_numpy(feature_measures.covariance_singular_values(z_ND.numpy())))
    faint_ND = z_ND * torch.tensor([1, 1, 1, 1, 1e-12], dtype=torch.float64)
    assert -58 < float(log_spectrum(faint_ND)[-1]) < -52  # 2 log 1e-12 = -55.3


def test_training_and_spectra_explain_mistakes() -> None:
    generator = torch.Generator().manual_seed(0)
    start = decaying_network(2, 3, generator=generator)
    with pytest.raises(TrainingError, match="a rate below 10000 may help"):
        gradient_descent(
            start, narrow_data(3), DistanceInfoNCE(),
            descent=SgdPlan(rate=1e4, num_steps=20), generator=generator,
        )  # fmt: skip
    narrow, message = narrow_data(2), "inputs must have 3 dimensions, as W_1 takes, got 2"
    with pytest.raises(UsageError, match=message):
        gradient_descent(start, narrow, DistanceInfoNCE(), descent=SgdPlan(num_steps=1), generator=generator)
    with pytest.raises(UsageError, match="W_2 takes 3 inputs, but W_1 gives 2"):
        ToyNetwork((torch.zeros(2, 2), torch.zeros(2, 3)))
    with pytest.raises(UsageError, match="log spectrum must be a vector without NaN"):
        live_dimensions(torch.tensor([torch.nan]))
    assert live_dimensions(torch.tensor([-torch.inf, -torch.inf])) == 0
