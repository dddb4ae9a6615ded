"""Alignment of adjacent layers: any shapes, subspaces that are one, and DirectCLR's linear toy."""

import math

import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
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


def test_aligned_subspaces_meet_although_no_index_meets_its_own() -> None:
    """Both live subspaces are one, and within it the vectors are turned: equal singular values leave them arbitrary."""
    common = basis(20, 1)
    inside = torch.block_diag(basis(6, 2), torch.eye(14).double())
    below = turned([0.7] * 6 + [1e-9] * 14, common, basis(20, 3))
    above = turned([0.7] * 6 + [1e-9] * 14, basis(20, 4), common @ inside)
    assert_numbers(live_alignment(below, above, 6), [1.0] * 6)


@pytest.mark.parametrize(("inputs", "width", "outputs"), [(7, 5, 3), (3, 5, 4), (5, 5, 5), (2, 6, 2)])
def test_any_shapes_are_those_of_the_oracle(inputs: int, width: int, outputs: int) -> None:
    below, above = draw(width, inputs), draw(outputs, width, seed=1)
    live = (min(width, inputs), min(width, outputs))
    expected = oracle.principal_cosines(below.numpy(), above.numpy(), *live)
    assert_numbers(live_alignment(below, above, *live), expected)


def test_the_linear_toy_aligns_its_live_subspaces() -> None:
    """Two linear layers under a flow that aligns them (directclr2022, Theorem 2): dW1 = W2' X, dW2 = X W1'."""
    w1, w2 = 0.1 * draw(8, 8, seed=5), 0.1 * draw(8, 8, seed=6)
    target = torch.diag(torch.tensor([1.0] * 4 + [0.0] * 4, dtype=torch.float64))
    for _ in range(3000):
        x = target - w2 @ w1
        w1, w2 = w1 + 0.05 * w2.T @ x, w2 + 0.05 * x @ w1.T
    cosines = live_alignment(w1, w2, 4)
    assert float(cosines[-1]) > 0.99
    assert float(live_alignment(0.1 * draw(8, 8, seed=5), 0.1 * draw(8, 8, seed=6), 4)[-1]) < 0.9


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="above takes 4 inputs, but below gives 3"):
        live_alignment(torch.eye(3), torch.eye(4), 1)
    with pytest.raises(ValueError, match="below must be finite"):
        live_alignment(torch.full((2, 2), math.nan), torch.eye(2), 1)
