"""SGD on the toy networks, live dimensions by depth, and what ReLU adds."""

from itertools import pairwise

import pytest
import torch

from counterpoint.core.errors import TrainingError, UsageError
from counterpoint.diagnostics.spectra import covariance_spectrum
from oracles import feature_measures
from reproductions.directclr2022.singular_vectors import (
    conservation_drift,
    live_alignment,
    live_dimensions,
    log_spectrum,
)
from reproductions.directclr2022.toy_models import (
    CATALOGUE,
    DistanceInfoNCE,
    ProductInfoNCE,
    ToyData,
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
from tolerances import assert_close

SHORT = SgdPlan(rate=0.05, num_steps=2_000, batch_size=64, num_records=2)  # the released toy in a tenth of the work


def trained(depth: int, *, is_rectified: bool = False) -> tuple[NetworkPath, ToyData]:
    generator = torch.Generator().manual_seed(0)
    data = ToyData(block_noise(16, 0.001), gaussian_points(10_000, 16, generator=generator))
    start = decaying_network(depth, 16, generator=generator, is_rectified=is_rectified)
    return gradient_descent(start, data, ProductInfoNCE(), descent=SHORT, generator=generator), data


def narrow_data(num_dims: int) -> ToyData:
    points_PD = gaussian_points(100, num_dims, generator=torch.Generator().manual_seed(5))
    return ToyData(block_noise(num_dims, 0.1), points_PD)


def spectrum_of(path: NetworkPath, data: ToyData) -> torch.Tensor:
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


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_sgd_with_small_steps_on_many_samples_follows_the_flow(name: str) -> None:
    """Halving the rate brings SGD on one fixed batch twice as close to the flow: Euler's method is of order one."""
    start = decaying_network(2, 3, generator=torch.Generator().manual_seed(3))
    views = draw_views(narrow_data(3), 12, generator=torch.Generator().manual_seed(4))
    loss, end = CATALOGUE[name], 0.02
    exact = gradient_flow(start, views, loss, torch.tensor([0.0, end])).last
    errors = []
    for num_steps in (100, 200):
        weights = start.weights
        for _ in range(num_steps):
            at = network_gradient(ToyNetwork(weights), views, loss)
            weights = tuple(w - end / num_steps * g for w, g in zip(weights, at.gradients, strict=True))
        errors.append(max(float((a - b).abs().max()) for a, b in zip(weights, exact.weights, strict=True)))
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


@pytest.mark.thorough
def test_live_dimensions_fall_with_depth() -> None:
    live = [live_dimensions(spectrum_of(*trained(depth))) for depth in (1, 2, 3, 4)]
    assert live[0] >= 15
    assert all(deep < shallow for shallow, deep in pairwise(live))
    assert live[3] <= 5


@pytest.mark.thorough
def test_two_layers_agree_on_the_live_subspace_though_sgd_does_not_conserve() -> None:
    path, data = trained(2)
    num_live = live_dimensions(spectrum_of(path, data))
    below_DD, above_DD = path.last.weights
    assert float(live_alignment(below_DD, above_DD, num_live)[-1]) > 0.98
    assert conservation_drift(path.networks[0].weights, path.last.weights) > 1e-3


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
    assert_close(log_spectrum(z_ND).exp(), covariance_spectrum(z_ND))
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
    with pytest.raises(UsageError, match="log spectrum must be a vector without NaN"):
        live_dimensions(torch.tensor([torch.nan]))
    assert live_dimensions(torch.tensor([-torch.inf, -torch.inf])) == 0
