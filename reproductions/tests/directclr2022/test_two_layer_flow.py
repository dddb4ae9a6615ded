"""Two and more layers: gradients, what the flow conserves, Theorem 3 along true flows, and its closed form."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.core.errors import UsageError
from oracles import flow_oracle
from reproductions.directclr2022.linear_flow import (
    aligned_growth,
    aligned_rates,
    conservation_drift,
    conserved,
    covariance_gap,
    two_layer_flow,
    two_layer_velocity,
)
from reproductions.directclr2022.singular_vectors import alignment_matrix, factors
from reproductions.directclr2022.toy_models import CATALOGUE, ToyData, ToyViews, draw_views, isotropic_noise
from reproductions.directclr2022.toy_networks import (
    ToyNetwork,
    decaying_network,
    embed,
    gradient_flow,
    network_gradient,
    product,
)
from tolerances import assert_close

NAMES = pytest.mark.parametrize("name", list(CATALOGUE))
few = settings(max_examples=20)
DOUBLE = torch.float64


def views_of(n: int, d: int, seed: int, noise: float = 0.3) -> ToyViews:
    return draw_views(ToyData(isotropic_noise(d, noise)), n, generator=torch.Generator().manual_seed(seed))


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
        distance_NN = (z_NK[:, None] - z_NK[None]).square().sum(-1) / 2
        own_N = (z_NK - other_NK).square().sum(-1) / 2
        rest_N = (torch.exp(-distance_NN) * (1 - torch.eye(5, dtype=DOUBLE))).sum(dim=1)
        value = (own_N + torch.log(rest_N + torch.exp(-own_N))).sum()
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
    network, views = network_of(2, 4, 3), views_of(7, 4, 3)
    w1_DD, w2_DD = network.weights
    gap_DD = covariance_gap(w2_DD @ w1_DD, views, CATALOGUE[name]).gap
    moved = two_layer_velocity(w1_DD, w2_DD, -w2_DD @ w1_DD @ gap_DD)
    at = network_gradient(network, views, CATALOGUE[name])
    assert_close(moved.first, -at.gradients[0])
    assert_close(moved.second, -at.gradients[1])


@few
@given(d=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_any_gradient_conserves(d: int, seed: int) -> None:
    """d/dt (W1 W1^T - W2^T W2) = 0 for the flow of any function of the product."""
    w1_DD, w2_DD, gradient_DD = network_of(3, d, seed).weights
    moved = two_layer_velocity(w1_DD, w2_DD, gradient_DD)
    below_DD, above_DD = moved.first @ w1_DD.T, w2_DD.T @ moved.second
    assert float((below_DD + below_DD.T - above_DD - above_DD.T).abs().max()) <= 1e-14


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


def aligned_start(seed: int, d: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """W1 and W2 with V2 = U1, singular values that differ."""
    w1_DD, w2_DD = network_of(2, d, seed).weights
    first, second = factors(w1_DD), factors(w2_DD)
    return w1_DD, second.u_DD * (0.8 * second.sigma_D) @ first.u_DD.T


@NAMES
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_theorem_3_holds_along_the_true_flow_at_a_moment_of_alignment(name: str, seed: int) -> None:
    """The derivative at 0 of both layers' singular values, by five-point differences of the integrated flow."""
    weights, views = aligned_start(seed), views_of(8, 3, seed)
    step = 2e-4
    times_T = torch.arange(5, dtype=DOUBLE) * step
    flow = gradient_flow(ToyNetwork(weights), views, CATALOGUE[name], times_T, tolerance=1e-13)
    coefficients = torch.tensor([-25, 48, -36, 16, -3], dtype=DOUBLE) / (12 * step)
    gap_DD = covariance_gap(product(weights), views, CATALOGUE[name]).gap
    first, second = (factors(weight) for weight in weights)
    curvature_D = (first.v_DD * (gap_DD @ first.v_DD)).sum(dim=0)
    claimed = aligned_rates(first.sigma_D, second.sigma_D, curvature_D)
    for layer, rates_D in enumerate((claimed.first, claimed.second)):
        sigma_TD = torch.stack([torch.linalg.svdvals(reached.weights[layer]) for reached in flow.networks])
        measured_D = coefficients @ sigma_TD
        # The differences err by step^4 times a fifth derivative, itself about the rates to the power 5.
        error = float((measured_D - rates_D).abs().max() / rates_D.abs().max())
        assert error < 1e-7


@few
@given(seed=st.integers(0, 10**6), sign=st.sampled_from([1.0, -1.0]))
def test_the_closed_form_of_theorem_3_is_the_flow_with_fixed_x(seed: int, sign: float) -> None:
    w1_DD, w2_DD = aligned_start(seed)
    first, second = factors(w1_DD), factors(w2_DD)
    curvature_D = sign * torch.tensor([0.7, 1.3, 0.4], dtype=DOUBLE)
    gap_DD = first.v_DD * curvature_D @ first.v_DD.T
    times_T = torch.linspace(0, 0.6, 3, dtype=DOUBLE)
    grown = aligned_growth(first.sigma_D, second.sigma_D, curvature_D, times_T)
    flow = two_layer_flow(w1_DD, w2_DD, gap_DD, times_T, tolerance=3e-14)
    for layer, sigma_TD in enumerate((grown.first_TK, grown.second_TK)):
        for state, sigma_D in zip(flow.states, sigma_TD, strict=True):
            assert_close(torch.linalg.svdvals(state[layer]), sigma_D.sort(descending=True).values)


def test_erratum_section_5_3_has_the_wrong_sign_before_its_constant() -> None:
    """With sigma_1^2 = sigma_2^2 + C the rate of sigma_1 is sigma_1 (sigma_1^2 - C), not + C."""
    first, second, rate, time = 1.0, 0.6, 0.8, 0.5
    constant = first**2 - second**2
    grown = aligned_growth(*(torch.tensor([value]) for value in (first, second, rate, time)))
    right = flow_oracle.growth_as_printed(first, -constant, rate, time)
    printed = flow_oracle.growth_as_printed(first, constant, rate, time)
    assert abs(float(grown.first_TK) - right) < 1e-7  # float32 inputs
    assert abs(float(grown.first_TK) - printed) > 0.1


def test_singular_values_blow_up_when_the_closed_form_says_and_the_largest_first() -> None:
    identity = torch.eye(2, dtype=DOUBLE)
    sigma_D = torch.tensor([1.0, 0.5], dtype=DOUBLE)
    grown = aligned_growth(sigma_D, sigma_D, torch.ones(2), torch.tensor([0.49, 0.51]))
    assert_close(grown.blow_up_K, torch.tensor([0.5, 2.0], dtype=DOUBLE))
    assert bool(grown.first_TK[0].isfinite().all())
    assert bool(torch.equal(grown.first_TK[1].isinf(), torch.tensor([True, False])))
    with pytest.raises(UsageError, match=r"the flow grows without bound or stiffens after time 0\.5;"):
        two_layer_flow(torch.diag(sigma_D), torch.diag(sigma_D), identity, torch.tensor([0.0, 0.6]))


def test_only_directions_that_outgrow_the_constant_align() -> None:
    """Appendix B.5 concludes equality; what is conserved stays, so small directions keep their misalignment."""
    w1_DD, w2_DD = network_of(2, 4, 4).weights
    below_DD, above_DD = two_layer_flow(w1_DD, w2_DD, torch.eye(4), torch.tensor([0.0, 0.5])).states[-1]
    constant = float(conserved([w1_DD, w2_DD])[0].abs().max())
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


def test_mistakes_are_explained() -> None:
    one, times_T = torch.ones(1), torch.tensor([0.0, 1.0])
    with pytest.raises(UsageError, match="singular values must be > 0"):
        aligned_growth(0 * one, one, one, times_T)
    with pytest.raises(UsageError, match="W_2 takes 3 inputs, but W_1 gives 2"):
        ToyNetwork((torch.zeros(2, 2), torch.zeros(2, 3)))
