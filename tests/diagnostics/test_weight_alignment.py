"""Alignment of adjacent layers: aligned, turned and disjoint subspaces, and DirectCLR's linear toy."""

# D inputs, H width between both layers, K outputs

import math

import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.diagnostics.weight_alignment import layer_alignment, live_directions
from oracles import alignment_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.directclr2022.singular_vectors import live_alignment


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def turned(sigma_K: list[float], left: Tensor, right: Tensor) -> Tensor:
    """A matrix with these singular values, left and right singular vectors."""
    return left[:, : len(sigma_K)] @ torch.diag(torch.tensor(sigma_K, dtype=torch.float64)) @ right[:, : len(sigma_K)].T


def basis(size: int, seed: int) -> Tensor:
    return torch.linalg.qr(draw(size, size, seed=seed)).Q


def test_aligned_layers_overlap_fully_although_no_index_meets_its_own() -> None:
    """Both live subspaces are one, and within it the vectors are turned: equal singular values leave them arbitrary."""
    common = basis(20, 1)
    inside = torch.block_diag(basis(6, 2), torch.eye(14).double())
    below = turned([0.7] * 6 + [1e-9] * 14, common, basis(20, 3))
    above = turned([0.7] * 6 + [1e-9] * 14, basis(20, 4), common @ inside)
    found = layer_alignment(below, above)
    assert (found.figures.live_below, found.figures.live_above) == (6, 6)
    assert_numbers(found.figures.overlap, 1.0)
    assert found.figures.chance == 6 / 20
    assert float(found.matrix_HH.diagonal()[:6].mean()) < 0.8


@pytest.mark.parametrize("degrees", [0.0, 30.0, 60.0, 90.0])
def test_a_turn_by_an_angle_has_that_principal_angle(degrees: float) -> None:
    """W1 fills axes 1 and 2, W2 reads axis 1 and one between axes 2 and 3."""
    angle = math.radians(degrees)
    below = torch.diag(torch.tensor([3.0, 2.0, 0.0, 0.0], dtype=torch.float64))
    reads = torch.tensor([[2.0, 0, 0, 0], [0, 3 * math.cos(angle), 3 * math.sin(angle), 0]], dtype=torch.float64)
    found = layer_alignment(below, reads)
    assert_numbers(found.figures.overlap, (1 + math.cos(angle) ** 2) / 2)


def test_random_subspaces_overlap_as_by_chance() -> None:
    overlaps = []
    for seed in range(40):
        below = turned([1.0] * 5, basis(30, 2 * seed), basis(30, 99))
        above = turned([1.0] * 8, basis(30, 98), basis(30, 2 * seed + 1))
        found = layer_alignment(below, above)
        assert found.figures.chance == 8 / 30
        overlaps.append(found.figures.overlap)
    spread = torch.tensor(overlaps).std() / math.sqrt(len(overlaps))
    assert abs(float(torch.tensor(overlaps).mean()) - 8 / 30) < 5 * float(spread)


@pytest.mark.parametrize(("inputs", "width", "outputs"), [(7, 5, 3), (3, 5, 4), (5, 5, 5), (2, 6, 2)])
def test_any_shapes_are_those_of_the_oracle(inputs: int, width: int, outputs: int) -> None:
    below, above = draw(width, inputs), draw(outputs, width, seed=1)
    found = layer_alignment(below, above)
    live = (found.figures.live_below, found.figures.live_above)
    assert live == (min(width, inputs), min(width, outputs))
    expected = oracle.principal_cosines(below.numpy(), above.numpy(), *live)
    assert_numbers(live_alignment(below, above, *live), expected)
    assert_numbers(found.figures.overlap, sum(cosine**2 for cosine in expected) / len(expected))


def test_the_linear_toy_aligns_its_live_subspaces() -> None:
    """Two linear layers under a flow that aligns them (directclr2022, Theorem 2): dW1 = W2' X, dW2 = X W1'."""
    w1, w2 = 0.1 * draw(8, 8, seed=5), 0.1 * draw(8, 8, seed=6)
    start = layer_alignment(w1, w2)
    target = torch.diag(torch.tensor([1.0] * 4 + [0.0] * 4, dtype=torch.float64))
    for _ in range(3000):
        x = target - w2 @ w1
        w1, w2 = w1 + 0.05 * w2.T @ x, w2 + 0.05 * x @ w1.T
    cosines = live_alignment(w1, w2, 4)
    assert float(cosines[-1]) > 0.99
    assert float(live_alignment(0.1 * draw(8, 8, seed=5), 0.1 * draw(8, 8, seed=6), 4)[-1]) < 0.9
    assert start.figures.live_below == 8


@pytest.mark.parametrize("rank", [98, 64, 40])
@pytest.mark.parametrize("rest", [0.0, 1e-3])
def test_live_directions_of_weights_of_known_rank(rank: int, rest: float) -> None:
    weight = turned([1.0] * rank + [rest] * (128 - rank), basis(128, 7), basis(128, 8))
    assert abs(live_directions(weight) - rank) <= 1
    assert live_directions(draw(128, 256)) == 128
    assert live_directions(draw(128, 20)) == 20
    assert live_directions(torch.zeros(4, 4)) == 0


def test_a_layer_without_weights_overlaps_with_nothing() -> None:
    found = layer_alignment(torch.zeros(3, 3), torch.eye(3))
    assert (found.figures.live_below, found.figures.overlap) == (0, 0.0)


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="above takes 4 inputs, but below gives 3"):
        layer_alignment(torch.eye(3), torch.eye(4))
    with pytest.raises(ValueError, match="below must be finite"):
        layer_alignment(torch.full((2, 2), math.nan), torch.eye(2))
