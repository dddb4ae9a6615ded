"""One linear layer: losses and gradients, the matrix X with its erratum, and Theorem 1."""

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
from reproductions.flow_integrator import integrate
from tolerances import assert_close, assert_estimate

LOSSES = {"eq2": flow_oracle.distance_loss, "released": flow_oracle.product_loss}
NAMES = pytest.mark.parametrize("name", list(CATALOGUE))
problems = st.tuples(st.integers(2, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
few = settings(max_examples=25)


def views_of(n: int, noise_DD: torch.Tensor, generator: torch.Generator, *, is_first_clean: bool = False) -> ToyViews:
    """Samples from N(0, I) with noise on both views, or on the second alone."""
    clean_ND = gaussian_points(n, len(noise_DD), generator=generator)
    first_ND, second_ND = (gaussian_points(n, len(noise_DD), generator=generator) @ noise_DD.T for _ in range(2))
    return ToyViews(clean_ND if is_first_clean else clean_ND + first_ND, clean_ND + second_ND)


def problem(n: int, d: int, k: int, seed: int) -> tuple[ToyViews, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return views_of(n, block_noise(d, 0.7), generator), gaussian_points(k, d, generator=generator)


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
        (at.gradients[0], flow_oracle.gradient(lambda moved: loops(moved, other), z)),
        (at.gradients[1], flow_oracle.gradient(lambda moved: loops(z, moved), other)),
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


@few
@given(sizes=problems)
def test_x_is_that_of_lemma_2_and_of_its_proof(sizes: tuple[int, int, int, int]) -> None:
    views, weight_KD = problem(*sizes)
    x, other = views.x_ND.numpy(), views.other_ND.numpy()
    alpha = flow_oracle.alphas(x @ weight_KD.numpy().T, other @ weight_KD.numpy().T)
    gap_DD = DistanceInfoNCE().covariance_gap(views, weight_KD)
    for right in (
        flow_oracle.gap_of_lemma_2(x, other, alpha),
        flow_oracle.gap_as_printed(x, other, alpha, sign=1.0),  # first line of appendix B.2
    ):
        # Relative to what the sums are made of; X may nearly vanish between its parts.
        assert float((gap_DD - torch.from_numpy(right)).abs().max()) <= 1e-10 * float((x**2).sum() + (other**2).sum())


def test_erratum_eq_6_as_printed_is_not_the_gradient() -> None:
    views, weight_KD = problem(6, 3, 3, seed=1)
    x, other = views.x_ND.numpy(), views.other_ND.numpy()
    derivative = flow_oracle.gradient(lambda w: flow_oracle.distance_loss(x @ w.T, other @ w.T), weight_KD.numpy())
    alpha = flow_oracle.alphas(x @ weight_KD.numpy().T, other @ weight_KD.numpy().T)
    for sign, is_right in ((1.0, True), (-1.0, False)):
        claimed = -weight_KD.numpy() @ flow_oracle.gap_as_printed(x, other, alpha, sign)
        error = np.abs(claimed - derivative).max() / np.abs(derivative).max()
        assert error < 1e-10 if is_right else error > 0.1


@pytest.mark.parametrize(("is_first_clean", "num_vanishing"), [(True, 3), (False, 0)])
def test_noise_on_one_view_vanishes_directions_at_once_and_on_both_it_does_not(
    is_first_clean: bool, num_vanishing: int, generator: torch.Generator
) -> None:
    """Noise on both views enters the data's covariance too: 2 (1 + s^2) - 2 s^2 > 0, but 2 - s^2 < 0."""
    views = views_of(1500, block_noise(6, 2.0, first=3), generator, is_first_clean=is_first_clean)
    gap_DD = DistanceInfoNCE().covariance_gap(views, torch.zeros(1, 6).double())
    assert int((torch.linalg.eigvalsh(gap_DD) < 0).sum()) == num_vanishing


@few
@given(d=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_theorem_1_as_many_singular_values_vanish_as_x_has_negative_eigenvalues(d: int, seed: int) -> None:
    """W(t) = W(0) e^{X t} (Eq. 23): sigma_k(W(t)) <= |W(0)| e^{lambda_k t}, as sigma_k(A B) <= |A| sigma_k(B)."""
    weight_DD, x_DD = gaussian_points(2 * d, d, generator=torch.Generator().manual_seed(seed)).split(d)
    gap_DD = (x_DD + x_DD.T) / 2
    rates_D, directions_DD = torch.linalg.eigh(gap_DD)
    largest, is_negative_D = torch.linalg.matrix_norm(weight_DD, ord=2), rates_D < 0
    slowest = float(rates_D[is_negative_D].max()) if bool(is_negative_D.any()) else -1.0
    reached_DD = weight_DD @ torch.from_numpy(expm(gap_DD.numpy() * 0.8))
    ceilings_D = largest * torch.exp(rates_D.flip(0) * 0.8)
    assert bool((torch.linalg.svdvals(reached_DD) <= ceilings_D + 1e-12 * ceilings_D[0]).all())
    along_D = (weight_DD @ directions_DD).norm(dim=0) * torch.exp(rates_D * 0.8)
    assert float(((reached_DD @ directions_DD).norm(dim=0) - along_D).abs().max()) <= 1e-10 * float(ceilings_D[0])
    # Long enough, as many as there are negative eigenvalues are below any number.
    assert int((largest * torch.exp(rates_D * 40 / -slowest) < 1e-12).sum()) >= int(is_negative_D.sum())


def test_views_have_the_noise_they_were_asked_for(generator: torch.Generator) -> None:
    factor_DD = torch.tensor([[1.2, 0.0], [0.5, 0.6]], dtype=torch.float64)
    points_PD = 100 * torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    views = draw_views(ToyData(factor_DD, points_PD), 40_000, generator=generator)
    noise_ND = views.x_ND - 100 * (views.x_ND / 100).round()  # points are far apart
    other_ND = views.other_ND - 100 * (views.other_ND / 100).round()
    covariance_DD = factor_DD @ factor_DD.T
    for i, j in ((0, 0), (0, 1), (1, 1)):
        for products_N, expected in (
            (noise_ND[:, i] * noise_ND[:, j], float(covariance_DD[i, j])),
            (noise_ND[:, i] * other_ND[:, j], 0.0),
        ):
            assert_estimate(float(products_N.mean()), expected, float(products_N.std()) / math.sqrt(len(products_N)))


def test_mistakes_are_explained() -> None:
    with pytest.raises(ValueError, match=r"temperature .*; the released toys have 0\.1"):
        ProductInfoNCE(0)
    with pytest.raises(
        UsageError, match=r"20 evaluations led to time .* only; ask for earlier times or a larger tolerance"
    ):
        integrate(lambda state: [-state[0]], [torch.eye(2)], torch.tensor([0.0, 50.0]), max_evaluations=20)
    with pytest.raises(UsageError, match="both views must have one shape"):
        ToyViews(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(UsageError, match="noise must be a square factor"):
        ToyData(torch.zeros(2, 3), torch.zeros(2, 3))
