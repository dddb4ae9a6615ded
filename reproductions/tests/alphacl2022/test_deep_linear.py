"""Deep linear networks: Lemma 1 by loops, ascent to the largest eigenvalue, rank one, uniform filters, and errata."""

import math
from collections.abc import Sequence
from functools import reduce

import pytest
import torch
from torch import Tensor

from oracles import alphacl_theory_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.alphacl2022.contrastive_covariance import contrastive_covariance
from reproductions.alphacl2022.deep_linear import alignment, ascend, draw_layers, layer_velocities
from tolerances import assert_close


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw_batch(seed: int, n: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights with rows of sum 1, and two views: C_alpha[x] has negative and positive eigenvalues."""
    generator = seeded(seed)
    alpha = torch.rand(n, n, generator=generator, dtype=torch.float64).fill_diagonal_(0)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return alpha / alpha.sum(1, keepdim=True), x, x + 0.5 * torch.randn(n, d, generator=generator, dtype=torch.float64)


def draw_covariance(seed: int, d: int) -> Tensor:
    return contrastive_covariance(*draw_batch(seed, 2 * d + 2, d))


def twice_energy(x_alpha: Tensor, layers: Sequence[Tensor]) -> float:
    """tr(W X W^T) of the product of all layers."""
    full = reduce(lambda below, above: above @ below, layers)
    return float((full @ x_alpha @ full.T).trace())


@pytest.mark.parametrize("widths", [[3, 2], [3, 4, 2], [2, 3, 1, 3]])
def test_lemma_1_and_the_objective_are_those_of_the_paper_by_loops(widths: list[int]) -> None:
    alpha, x, x_other = draw_batch(1, 5, widths[0])
    x_alpha = contrastive_covariance(alpha, x, x_other)
    layers = draw_layers(widths, generator=seeded(2))
    rows = (alpha.numpy(), x.numpy(), x_other.numpy())
    arrays = [layer.numpy() for layer in layers]
    assert_numbers(twice_energy(x_alpha, layers), 2 * complex(oracle.deep_energy(arrays, *rows)).real)
    for index, velocity in enumerate(layer_velocities(x_alpha, layers)):
        around = (arrays[:index], arrays[index + 1 :])
        expected = oracle.gradient(
            lambda w, parts=around: oracle.deep_energy([*parts[0], w, *parts[1]], *rows), arrays[index]
        )
        assert_numbers(velocity, expected)


def test_theorem_3_the_end_is_aligned_and_of_rank_one() -> None:
    x_alpha_SDD = torch.stack([draw_covariance(3, 6), draw_covariance(5, 6)])  # of two starts at once
    starts = [draw_layers([6, 5, 4, 7], generator=seeded(seed)) for seed in (4, 6)]
    made = ascend(x_alpha_SDD, [torch.stack(layer) for layer in zip(*starts, strict=True)], num_steps=4000)
    for x_alpha, largest, *weights in zip(x_alpha_SDD, made.largest_eigenvalue, *made.weights, strict=True):
        end = alignment(weights)
        assert end.residual < 1e-8
        assert twice_energy(x_alpha, weights) == pytest.approx(float(largest), rel=1e-10)
        assert abs(float(torch.linalg.eigh(x_alpha)[1][:, -1] @ end.vectors[0])) == pytest.approx(1, abs=1e-10)
        assert end.unevenness > 0.05  # nothing asks for even filters


def test_erratum_rows_of_norm_1_overshoot_and_rows_of_1_over_root_n_do_not() -> None:
    """The remark before Definition 5 says |w_lk| = 1; Corollary 3 needs 1 / sqrt(n_l), which makes |W_l|_F = 1."""
    x_alpha = draw_covariance(7, 5)
    layers = ascend(x_alpha, draw_layers([5, 4, 3], generator=seeded(8)), num_steps=3000, per_filter=True).weights
    largest = float(torch.linalg.eigvalsh(x_alpha)[-1])
    assert_close(layers[0].norm(dim=1), torch.full((4,), 0.5, dtype=torch.float64))
    assert float(layers[0].norm()) == pytest.approx(1, rel=1e-12)
    end = alignment(layers)
    assert end.residual < 1e-8
    assert end.unevenness < 1e-8  # Corollary 3: filters of one norm end even
    assert float((end.vectors[-1].abs() - 1 / math.sqrt(3)).abs().max()) > 0.05  # the last layer is free
    printed = [layers[0] / layers[0].norm(dim=1, keepdim=True), layers[1]]
    assert twice_energy(x_alpha, printed) == pytest.approx(4 * largest, rel=1e-6)  # n_1 = 4 times Theorem 3's maximum


def test_erratum_the_eigenvalue_in_lemma_12_is_a_squared_norm() -> None:
    """The proof takes 0 and 1 as the eigenvalues of v v^T; at the critical point W v v^T = |v|^2 W."""
    v = torch.tensor([0.3, -0.4, 0.2], dtype=torch.float64)
    w = torch.outer(v.new_tensor([1.0, -1.0]), v / v.norm()) / math.sqrt(2)  # rows of norm 1 / sqrt(2), all along v
    assert_close(w @ torch.outer(v, v), v.square().sum() * w)
    assert float((w @ torch.outer(v, v) - w).norm()) > 0.1


def test_bad_input_is_refused_in_words() -> None:
    x_alpha, layers = torch.eye(3), draw_layers([3, 2], generator=seeded(9))
    with pytest.raises(ValueError, match="must have a positive eigenvalue, got -1"):
        ascend(-x_alpha, layers)
    with pytest.raises(ValueError, match="X_alpha must be symmetric"):
        layer_velocities(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), [torch.eye(2)])
    with pytest.raises(ValueError, match="layer 2 takes 3 inputs, but layer 1 gives 2"):
        layer_velocities(x_alpha, [*layers, torch.ones(1, 3)])
    with pytest.raises(ValueError, match="layer 1 has nothing but zeros"):
        ascend(x_alpha, [torch.zeros(2, 3)])
