"""The linear probe: standardisation, errors, scikit-learn's optimum; the same bits for any number of threads."""

# N training samples, Q queries, D features, C classes

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from counterpoint.core.stored_rows import load
from counterpoint.evaluation import linear_probe as solver
from counterpoint.evaluation.linear_probe import (
    OPTIMALITY,
    Fit,
    SoftmaxRegression,
    fit,
    fit_probe,
    fit_scaling,
    probe_score,
)
from counterpoint.evaluation.metric_types import Labelled
from oracles import penalised_logistic as oracle
from tolerances import assert_close


def probe_predict(bank_ND: Tensor, labels_N: Tensor, queries_QD: Tensor, **penalty: float) -> Tensor:
    return fit_probe(bank_ND, labels_N, **penalty).predict(queries_QD)


def clusters(num_classes: int = 3) -> tuple[Tensor, Tensor]:
    """Classes along axes of their own, well apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_classes).repeat_interleave(12)
    centres = 6 * torch.eye(num_classes, 4)
    return centres[labels] + torch.randn(len(labels), 4, generator=generator), labels


def overlapping() -> tuple[Tensor, Tensor]:
    """Two classes that no line separates."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(40) % 2
    return torch.randn(40, 3, generator=generator) + labels[:, None] * torch.tensor([1.0, -0.5, 0.0]), labels


@pytest.mark.parametrize("inverse_penalty", [0.001, 0.1, 10.0])
def test_predictions_are_those_of_an_independent_solver(inverse_penalty: float) -> None:
    train, labels = overlapping()
    queries = 3 * torch.randn(200, 3, generator=torch.Generator().manual_seed(4))
    x, q = oracle.standardised(train.double().numpy(), queries.double().numpy())
    weights, intercept = oracle.fit(x, labels.double().numpy(), inverse_penalty)
    score = q @ weights + intercept
    is_clear = np.abs(score) > 1e-3 * np.abs(score).max()  # on the line itself rounding decides
    predicted = probe_predict(train, labels, queries, inverse_penalty=inverse_penalty).numpy()
    assert is_clear.sum() > 190
    assert np.array_equal(predicted[is_clear], (score > 0).astype(int)[is_clear])


def test_the_penalty_is_a_tenth_by_default_and_matters() -> None:
    """An unbalanced problem, where a strong penalty falls back to the commoner class."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.tensor([0] * 30 + [1] * 6)
    train = torch.randn(36, 3, generator=generator) + 4.0 * labels[:, None]
    default = probe_predict(train, labels, train)
    assert torch.equal(probe_predict(train, labels, train, inverse_penalty=0.1), default)
    assert not probe_predict(train, labels, train, inverse_penalty=1e-6).any()
    assert default.any()


def test_class_numbers_are_kept_as_they_are() -> None:
    train, labels = clusters(2)
    assert set(probe_predict(train, 5 * labels + 2, train).tolist()) == {2, 7}


def test_nothing_is_random() -> None:
    train, labels = overlapping()
    state = torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].tolist()
    first = probe_predict(train, labels, train)
    assert torch.equal(probe_predict(train, labels, train), first)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.random.get_state(legacy=False)["state"]["key"].tolist() == state[1]


@pytest.mark.parametrize("value", [7.0, 7.1, 1e-3, -1e6])
def test_a_constant_becomes_zero_although_its_mean_is_rounded(value: float) -> None:
    train = torch.full((50_000, 1), value)
    assert not fit_scaling(train)(train).any()
    assert not fit_scaling(train.double())(train[:3].double()).any()


def test_features_are_standardised_as_scikit_learn_does() -> None:
    train = torch.randn(5000, 4, generator=torch.Generator().manual_seed(7)) * torch.tensor([1e-2, 1.0, 1e3, 5.0]) + 3
    ours, peer = fit_scaling(train), StandardScaler().fit(train.double().numpy())
    assert_close(ours(train), torch.from_numpy(peer.transform(train.double().numpy())), dtype=torch.float32)
    assert_close(
        ours(2 * train[:9]), torch.from_numpy(peer.transform(2 * train[:9].double().numpy())), dtype=torch.float32
    )


def labelled(features: Tensor, labels: Tensor) -> Labelled:
    return Labelled(features, labels, features, labels, k=1, temperature=0.1)


def test_perfect_random_and_constant_features() -> None:
    labels = torch.arange(400) % 4
    noise = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    assert probe_score(labelled(torch.eye(4)[labels], labels)).outcome.value == 1.0
    assert probe_score(labelled(torch.ones(400, 2), labels)).outcome.value == 0.25
    assert probe_score(labelled(noise, labels)).outcome.value < 0.35


def test_the_score_says_how_it_was_fitted() -> None:
    train, labels = clusters()
    stated = {"model": "logistic regression", "C": 0.5, "features": "standardised"}
    score = probe_score(replace(labelled(train, labels), inverse_penalty=0.5))
    assert score.settings == {**stated, "optimality": "gradient norm at most 1e-05"}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"labels_N": torch.zeros(4).long()}, r"a linear probe needs samples of at least 2 classes, got only class 0"),
    ({"labels_N": torch.tensor([0, 1])}, r"labels .*\(4,\), got \(2,\)"),
    ({"inverse_penalty": 0.0}, r"inverse_penalty must be > 0, got 0\.0"),
    ({"bank_ND": torch.tensor([[0.0], [1.0], [math.nan], [1.0]])}, r"bank .*row 2"),
    ({"queries_QD": torch.ones(2, 3)}, r"queries .*1, got 3"),
    ({"queries_QD": torch.ones(2, 1, 1)}, r"queries .*\(2, 1, 1\)"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"bank_ND": torch.eye(4)[:, :1], "labels_N": torch.tensor([0, 1, 0, 1])}
    with pytest.raises(ValueError, match=sentence):
        probe_predict(**{**good, "queries_QD": torch.ones(2, 1), **wrong})


# --- the solver


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
    return oracle.mean_loss(load(problem.x_ND).double().numpy(), problem.class_N.numpy(), rows, problem.inverse_penalty)


@pytest.mark.parametrize(("n", "num_features", "num_classes"), [(400, 6, 3), (60, 8, 4), (30, 40, 3), (500, 5, 2)])
@pytest.mark.parametrize("inverse_penalty", [0.01, 1.0])
def test_the_optimum_is_scikit_learns(n: int, num_features: int, num_classes: int, inverse_penalty: float) -> None:
    """With and without the second moments as first curvature, and with one weight vector for two classes."""
    drawn = correlated(n, num_features, num_classes)
    problem = SoftmaxRegression(drawn.x_ND, drawn.class_N, inverse_penalty)
    peer = LogisticRegression(C=inverse_penalty, tol=1e-10, max_iter=10_000)
    peer.fit(load(problem.x_ND).double().numpy(), problem.class_N.numpy())
    rows = np.column_stack([peer.coef_, peer.intercept_])
    if num_classes == 2:
        rows = np.concatenate([-rows / 2, rows / 2])
    ours = fit(problem)
    best = loss(problem, rows)
    assert abs(ours.loss - loss(problem, coefficients(ours))) < 1e-6
    assert best - 1e-9 <= loss(problem, coefficients(ours)) <= best + SAMPLE_LOSS
    assert np.array_equal(ours.predict(load(problem.x_ND)).numpy(), peer.predict(load(problem.x_ND).double().numpy()))


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
    found = fit(SoftmaxRegression(load(problem.x_ND)[order][by_class], problem.class_N[order][by_class], 0.1))
    assert abs(found.loss - fit(problem).loss) < 1e-6
