"""The solver: scikit-learn's optimum, the stated norm of the gradient, the same bits with any number of threads."""

# N samples, D features, C classes

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from counterpoint.core.stored_rows import whole
from counterpoint.evaluation import linear_probe as solver
from counterpoint.evaluation.linear_probe import OPTIMALITY, Fit, SoftmaxRegression, fit
from oracles import penalised_logistic as oracle

SAMPLE_LOSS = 1e-5  # by which an optimum may differ from scikit-learn's


def correlated(n: int, num_features: int, num_classes: int, *, dtype: torch.dtype = torch.float32) -> SoftmaxRegression:
    """Overlapping classes in features of which each shares most of its variance with the others."""
    generator = torch.Generator().manual_seed(n)
    class_N = torch.arange(n) % num_classes
    mixing = torch.randn(num_features, num_features, generator=generator) + 2
    centres = 0.3 * torch.randn(num_classes, num_features, generator=generator)
    x_ND = (centres[class_N] + torch.randn(n, num_features, generator=generator)) @ mixing
    x_ND = ((x_ND - x_ND.mean(0)) / x_ND.std(0, correction=0)).to(dtype)
    return SoftmaxRegression(x_ND, class_N, 0.1)


def coefficients(found: Fit) -> NDArray[np.float64]:
    return np.column_stack([found.weight_CD.numpy(), found.intercept_C.numpy()])


def loss(problem: SoftmaxRegression, rows: NDArray[np.float64]) -> float:
    return oracle.mean_loss(
        whole(problem.x_ND).double().numpy(), problem.class_N.numpy(), rows, problem.inverse_penalty
    )


@pytest.mark.parametrize(("n", "num_features", "num_classes"), [(400, 6, 3), (60, 8, 4), (30, 40, 3), (500, 5, 2)])
@pytest.mark.parametrize("inverse_penalty", [0.01, 1.0])
def test_the_optimum_is_scikit_learns(n: int, num_features: int, num_classes: int, inverse_penalty: float) -> None:
    """With and without the second moments as first curvature, and with one weight vector for two classes."""
    drawn = correlated(n, num_features, num_classes)
    problem = SoftmaxRegression(drawn.x_ND, drawn.class_N, inverse_penalty)
    peer = LogisticRegression(C=inverse_penalty, tol=1e-10, max_iter=10_000)
    peer.fit(whole(problem.x_ND).double().numpy(), problem.class_N.numpy())
    rows = np.column_stack([peer.coef_, peer.intercept_])
    if num_classes == 2:
        rows = np.concatenate([-rows / 2, rows / 2])
    ours = fit(problem)
    best = loss(problem, rows)
    assert abs(ours.loss - loss(problem, coefficients(ours))) < 1e-6
    assert best - 1e-9 <= loss(problem, coefficients(ours)) <= best + SAMPLE_LOSS
    assert np.array_equal(ours.predict(whole(problem.x_ND)).numpy(), peer.predict(whole(problem.x_ND).double().numpy()))


@pytest.mark.parametrize(("n", "num_features", "num_classes"), [(400, 6, 3), (30, 40, 3), (500, 5, 2)])
def test_the_norm_of_the_gradient_is_as_stated(n: int, num_features: int, num_classes: int) -> None:
    """By finite differences of the oracle's loss along the gradient that was found."""
    problem = correlated(n, num_features, num_classes, dtype=torch.float64)
    found = fit(problem)
    assert found.slope <= OPTIMALITY
    assert found.optimality == "gradient norm at most 1e-05"
    rows = coefficients(found)
    steps = 1e-4 * np.eye(rows.size).reshape(rows.size, *rows.shape)
    slope = [(loss(problem, rows + step) - loss(problem, rows - step)) / 2e-4 for step in steps]
    assert float(np.linalg.norm(slope)) == pytest.approx(found.slope, abs=1e-9)


def test_the_second_moments_save_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = correlated(3000, 30, 4)
    with_moments = fit(problem)
    monkeypatch.setattr(solver, "WIDEST", 0)
    without = fit(problem)
    assert 3 * with_moments.steps < without.steps
    assert abs(with_moments.loss - without.loss) < 1e-6


def test_a_search_that_is_broken_off_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_STEPS", 2)
    found = fit(correlated(400, 6, 3))
    assert found.steps == 2
    assert found.optimality == f"gradient norm {found.slope:.1e} after 2 steps"


def test_any_number_of_threads_gives_the_same_bits() -> None:
    problem, usual, found = correlated(5000, 6, 3), torch.get_num_threads(), []
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            found.append(fit(problem))
    finally:
        torch.set_num_threads(usual)
    assert all(torch.equal(other.weight_CD, found[0].weight_CD) for other in found[1:])


@pytest.mark.parametrize("order", [torch.arange(4000), torch.arange(4000).flip(0)])
def test_samples_sorted_by_class_are_no_obstacle(order: Tensor) -> None:
    problem = correlated(4000, 6, 4)
    by_class = torch.argsort(problem.class_N[order], stable=True)
    found = fit(SoftmaxRegression(whole(problem.x_ND)[order][by_class], problem.class_N[order][by_class], 0.1))
    assert abs(found.loss - fit(problem).loss) < 1e-6
