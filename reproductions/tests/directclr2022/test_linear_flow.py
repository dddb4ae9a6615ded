"""One linear layer: losses and gradients, the matrix X with its erratum, Theorem 1, and the flows."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

from counterpoint.core.errors import UsageError
from counterpoint.losses import InfoNCE
from oracles import flow_oracle
from reproductions.directclr2022.linear_flow import (
    covariance_gap,
    fixed_gap_flow,
    gap_directions,
    linear_flow,
    singular_value_ceilings,
)
from reproductions.directclr2022.toy_models import (
    CATALOGUE,
    DistanceInfoNCE,
    ProductInfoNCE,
    ToyData,
    ToyViews,
    block_noise,
    covariance_factor,
    draw_views,
    gaussian_points,
    isotropic_noise,
)
from reproductions.directclr2022.toy_networks import ToyNetwork, gradient_flow
from reproductions.flow_integrator import integrate
from tolerances import assert_close, assert_estimate

LOSSES = {"eq2": flow_oracle.distance_loss, "released": flow_oracle.product_loss}
NAMES = pytest.mark.parametrize("name", list(CATALOGUE))
problems = st.tuples(st.integers(2, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
few = settings(max_examples=25)


def problem(n: int, d: int, k: int, seed: int, noise: float = 0.7) -> tuple[ToyViews, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    views = draw_views(ToyData(isotropic_noise(d, noise)), n, generator=generator)
    return views, gaussian_points(k, d, generator=generator)


def size_of(views: ToyViews) -> float:
    """What sums over the samples are made of; X may nearly vanish between its parts."""
    return float(views.x_ND.square().sum() + views.other_ND.square().sum())


def symmetric(d: int, seed: int) -> torch.Tensor:
    x_DD = gaussian_points(d, d, generator=torch.Generator().manual_seed(seed))
    return (x_DD + x_DD.T) / 2


@NAMES
@few
@given(sizes=problems)
def test_losses_and_gradients_are_those_of_the_papers_loops(name: str, sizes: tuple[int, int, int, int]) -> None:
    views, weight_KD = problem(*sizes)
    z, other = (view.numpy() @ weight_KD.numpy().T for view in (views.x_ND, views.other_ND))
    at, loops = CATALOGUE[name].at(torch.from_numpy(z), torch.from_numpy(other)), LOSSES[name]
    # A loss near 0 is a logarithm near 1: its error is that of the numbers it is made of.
    assert abs(at.value - np.real(loops(z, other))) <= 1e-10 * max(1.0, at.value)
    scale = torch.from_numpy(np.concatenate([z, other])).abs().max() * (1 if name == "eq2" else 10)
    for mine, oracle in (
        (at.gradient_NK, flow_oracle.gradient(lambda moved: loops(moved, other), z)),
        (at.other_gradient_NK, flow_oracle.gradient(lambda moved: loops(z, moved), other)),
    ):
        assert float((mine - torch.from_numpy(oracle)).abs().max()) <= 1e-10 * float(scale)


def test_eq_2_is_the_librarys_infonce_of_raw_vectors(generator: torch.Generator) -> None:
    z_NK, other_NK = gaussian_points(9, 3, generator=generator), gaussian_points(9, 3, generator=generator)
    loss = InfoNCE(1.0, 1.0, "same-view", False, anchors="first", reduction="sum")
    assert_close(torch.tensor(DistanceInfoNCE().at(z_NK, other_NK).value), loss(z_NK, other_NK))


def test_the_released_loss_is_the_librarys_infonce_on_the_sphere(generator: torch.Generator) -> None:
    z_NK, other_NK = (torch.nn.functional.normalize(gaussian_points(9, 3, generator=generator)) for _ in range(2))
    loss = InfoNCE(0.1, 1.0, "cross-view", anchors="first")
    assert_close(torch.tensor(ProductInfoNCE(0.1).at(z_NK, other_NK).value), loss(z_NK, other_NK))


def test_erratum_the_loss_of_section_6_2_rises_with_agreement(generator: torch.Generator) -> None:
    """It prints sum log(exp(z z') / sum_j exp(z_i z_j)): no minus, no temperature, and z_i itself as a negative."""
    z_NK = torch.nn.functional.normalize(gaussian_points(9, 3, generator=generator))
    apart_NK = torch.nn.functional.normalize(z_NK + gaussian_points(9, 3, generator=generator))

    def printed(other_NK: torch.Tensor) -> float:
        return float(((z_NK * other_NK).sum(1) - (z_NK @ z_NK.T).logsumexp(1)).sum())

    def released(other_NK: torch.Tensor) -> float:
        return float(torch.nn.functional.cross_entropy(z_NK @ other_NK.T / 0.1, torch.arange(9)))

    loss = InfoNCE(0.1, 1.0, "cross-view", anchors="first")
    for other_NK in (z_NK, apart_NK):
        assert float(loss(z_NK, other_NK)) == pytest.approx(released(other_NK), rel=1e-10)
        assert abs(-printed(other_NK) / 9 - released(other_NK)) > 0.1  # another sign is not enough
    assert released(z_NK) < released(apart_NK)
    assert printed(z_NK) > printed(apart_NK)


@NAMES
@few
@given(sizes=problems)
def test_the_gradient_is_minus_w_x(name: str, sizes: tuple[int, int, int, int]) -> None:
    """Lemma 1, Eq. 5: the loops' derivative in W against X."""
    views, weight_KD = problem(*sizes)
    x, other = views.x_ND.numpy(), views.other_ND.numpy()
    derivative = flow_oracle.gradient(lambda w: LOSSES[name](x @ w.T, other @ w.T), weight_KD.numpy())
    gap = covariance_gap(weight_KD, views, CATALOGUE[name])
    scale = float(weight_KD.abs().max()) * size_of(views) * (1 if name == "eq2" else 10)
    assert float((-weight_KD @ gap.gap - torch.from_numpy(derivative)).abs().max()) <= 1e-10 * scale


@few
@given(sizes=problems)
def test_x_is_that_of_lemma_2_and_of_its_proof(sizes: tuple[int, int, int, int]) -> None:
    views, weight_KD = problem(*sizes)
    x, other = views.x_ND.numpy(), views.other_ND.numpy()
    alpha = flow_oracle.alphas(x @ weight_KD.numpy().T, other @ weight_KD.numpy().T)
    gap = covariance_gap(weight_KD, views, DistanceInfoNCE())
    for right in (
        flow_oracle.gap_of_lemma_2(x, other, alpha),
        flow_oracle.gap_as_printed(x, other, alpha, sign=1.0),  # first line of appendix B.2
    ):
        assert float((gap.gap - torch.from_numpy(right)).abs().max()) <= 1e-10 * size_of(views)


def test_erratum_eq_6_as_printed_is_not_the_gradient() -> None:
    views, weight_KD = problem(6, 3, 3, seed=1)
    x, other = views.x_ND.numpy(), views.other_ND.numpy()
    derivative = flow_oracle.gradient(lambda w: flow_oracle.distance_loss(x @ w.T, other @ w.T), weight_KD.numpy())
    alpha = flow_oracle.alphas(x @ weight_KD.numpy().T, other @ weight_KD.numpy().T)
    for sign, is_right in ((1.0, True), (-1.0, False)):
        claimed = -weight_KD.numpy() @ flow_oracle.gap_as_printed(x, other, alpha, sign)
        error = np.abs(claimed - derivative).max() / np.abs(derivative).max()
        assert error < 1e-10 if is_right else error > 0.1


@NAMES
@few
@given(sizes=problems)
def test_both_covariances_have_no_negative_eigenvalue(name: str, sizes: tuple[int, int, int, int]) -> None:
    views, weight_KD = problem(*sizes)
    gap = covariance_gap(weight_KD, views, CATALOGUE[name])
    for part_DD in (gap.data_DD, gap.augmentation_DD):
        assert float(torch.linalg.eigvalsh(part_DD)[0]) >= -1e-12 * float(part_DD.abs().max())
    assert name == "released" or not gap.popularity_DD.any()


@pytest.mark.parametrize(("is_first_clean", "num_vanishing"), [(True, 3), (False, 0)])
def test_noise_on_one_view_vanishes_directions_at_once_and_on_both_it_does_not(
    is_first_clean: bool, num_vanishing: int, generator: torch.Generator
) -> None:
    """Noise on both views enters the data's covariance too: 2 (1 + s^2) - 2 s^2 > 0, but 2 - s^2 < 0."""
    data = ToyData(block_noise(6, 2.0, first=3), is_first_clean=is_first_clean)
    views = draw_views(data, 1500, generator=generator)
    gap = covariance_gap(torch.zeros(1, 6), views, DistanceInfoNCE())
    assert gap_directions(gap.gap).num_vanishing == num_vanishing


@few
@given(d=st.integers(1, 5), seed=st.integers(0, 10**6), time=st.floats(0, 3))
def test_the_fixed_flow_is_the_matrix_exponential(d: int, seed: int, time: float) -> None:
    gap_DD = symmetric(d, seed)
    weight_KD = gaussian_points(3, d, generator=torch.Generator().manual_seed(seed + 1))
    (reached,) = fixed_gap_flow(weight_KD, gap_DD, torch.tensor([time], dtype=torch.float64)).states
    assert_close(reached[0], weight_KD @ torch.from_numpy(expm(gap_DD.numpy() * time)))


@few
@given(d=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_theorem_1_as_many_singular_values_vanish_as_x_has_negative_eigenvalues(d: int, seed: int) -> None:
    gap_DD = symmetric(d, seed)
    weight_DD = gaussian_points(d, d, generator=torch.Generator().manual_seed(seed + 1))
    split = gap_directions(gap_DD)
    time = 0.8
    (reached,) = fixed_gap_flow(weight_DD, gap_DD, torch.tensor([time])).states
    before_D = (weight_DD @ split.directions_DD).norm(dim=0)
    time = float(torch.tensor(time).double())  # as the flow took it: 0.8 of float32
    assert_close((reached[0] @ split.directions_DD).norm(dim=0), before_D * torch.exp(split.rates_D * time))
    ceilings_D = singular_value_ceilings(weight_DD, gap_DD, time)
    assert bool((torch.linalg.svdvals(reached[0]) <= ceilings_D * (1 + 1e-12)).all())
    assert split.num_vanishing == int((torch.linalg.eigvalsh(gap_DD) < 0).sum())
    slowest = float(split.rates_D[split.rates_D < 0].max()) if split.num_vanishing else -1.0
    later = singular_value_ceilings(weight_DD, gap_DD, 40 / -slowest)
    assert int((later < 1e-12).sum()) >= split.num_vanishing


@NAMES
@pytest.mark.thorough
def test_two_routes_to_the_nonlinear_flow_agree(name: str) -> None:
    """W X with X from covariances, and minus the gradient from the embeddings."""
    views, weight_KD = problem(10, 3, 3, seed=5)
    times_T = torch.linspace(0, 1, 4)
    by_gap = linear_flow(0.3 * weight_KD, views, CATALOGUE[name], times_T, tolerance=1e-13)
    by_gradient = gradient_flow(ToyNetwork((0.3 * weight_KD,)), views, CATALOGUE[name], times_T, tolerance=1e-13)
    assert_close(by_gap.states[-1][0], by_gradient.last.weights[0])
    assert bool((by_gradient.losses_T.diff() < 0).all())


@pytest.mark.thorough
def test_strong_noise_on_one_view_shrinks_its_directions_along_the_true_flow() -> None:
    data = ToyData(block_noise(4, 3.0, first=2), is_first_clean=True)
    views = draw_views(data, 60, generator=torch.Generator().manual_seed(2))
    flow = linear_flow(0.01 * torch.eye(4), views, DistanceInfoNCE(), torch.linspace(0, 0.5, 3))
    columns_D = flow.states[-1][0].norm(dim=0)
    assert bool((columns_D[:2] > 0.5).all())
    assert bool((columns_D[2:] < 0.2 * columns_D[:2].min()).all())


def test_views_have_the_noise_they_were_asked_for(generator: torch.Generator) -> None:
    covariance_DD = torch.tensor([[2.0, 0.6], [0.6, 0.5]], dtype=torch.float64)
    points_PD = gaussian_points(3, 2, generator=generator)
    views = draw_views(ToyData(covariance_factor(covariance_DD), points_PD, True), 40_000, generator=generator)
    noise_ND = views.other_ND - views.x_ND
    assert bool(torch.isin(views.x_ND, points_PD).all())
    for i, j in ((0, 0), (0, 1), (1, 1)):
        products_N = noise_ND[:, i] * noise_ND[:, j]
        standard_error = float(products_N.std()) / math.sqrt(len(products_N))
        assert_estimate(float(products_N.mean()), float(covariance_DD[i, j]), standard_error)


def test_mistakes_are_explained() -> None:
    with pytest.raises(UsageError, match="gap must be square and symmetric"):
        gap_directions(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    with pytest.raises(ValueError, match=r"temperature must be > 0, got 0; the released toys have 0\.1"):
        ProductInfoNCE(0)
    with pytest.raises(
        UsageError, match=r"20 evaluations led to time .* only; ask for earlier times or a larger tolerance"
    ):
        integrate(lambda state: [-state[0]], [torch.eye(2)], torch.tensor([0.0, 50.0]), max_evaluations=20)
    with pytest.raises(UsageError, match="both views must have one shape"):
        ToyViews(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(UsageError, match="noise must be a square factor"):
        ToyData(torch.zeros(2, 3))
    with pytest.raises(UsageError, match="covariance must have no eigenvalue below 0, got -1"):
        covariance_factor(-torch.eye(2))
