"""The linear probe: separable data, an independent solver, standardisation, errors."""

# N training samples, Q queries, D features

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from counterpoint.evaluation.linear_probe import fit_probe, fit_scaling, probe_score
from counterpoint.evaluation.metric_types import Labelled
from oracles import penalised_logistic as oracle
from tolerances import assert_close


def probe_predict(bank_ND: Tensor, labels_N: Tensor, queries_QD: Tensor, **penalty: float) -> Tensor:
    return fit_probe(bank_ND, labels_N, **penalty).predict(queries_QD)


def clusters(num_classes: int = 3, per_class: int = 12, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes along axes of their own, well apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_classes).repeat_interleave(per_class)
    centres = 6 * torch.eye(num_classes, 4)
    return centres[labels] + torch.randn(len(labels), 4, generator=generator), labels


def overlapping(seed: int = 3) -> tuple[Tensor, Tensor]:
    """Two classes that no line separates."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(40) % 2
    return torch.randn(40, 3, generator=generator) + labels[:, None] * torch.tensor([1.0, -0.5, 0.0]), labels


def test_separable_classes_are_told_apart() -> None:
    train, labels = clusters()
    queries, truth = clusters(seed=1)
    predicted = probe_predict(train, labels, queries)
    assert torch.equal(predicted, truth)
    assert predicted.dtype == torch.int64


def test_what_is_not_linear_stays_unseen() -> None:
    """Exclusive-or: no plane does better than three of the four corners."""
    corners = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).repeat(5, 1)
    labels = torch.tensor([0, 1, 1, 0]).repeat(5)
    assert int((probe_predict(corners, labels, corners) == labels).sum()) <= 15


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


def test_units_and_origins_of_features_do_not_matter() -> None:
    train, labels = overlapping()
    queries, _ = overlapping(seed=6)
    units, origin = torch.tensor([1e-4, 1.0, 1e3]), torch.tensor([5.0, -2.0, 100.0])
    assert torch.equal(
        probe_predict(train * units + origin, labels, queries * units + origin), probe_predict(train, labels, queries)
    )


def test_a_constant_feature_is_harmless() -> None:
    train, labels = clusters()
    with_constant = torch.cat([train, torch.full((len(train), 1), 7.0)], dim=1)
    assert torch.equal(probe_predict(with_constant, labels, with_constant), probe_predict(train, labels, train))


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
    ({"labels_N": torch.tensor([0, 1])}, r"labels must be one per sample, shape \(4,\), got \(2,\)"),
    ({"inverse_penalty": 0.0}, r"inverse_penalty must be > 0, got 0\.0"),
    ({"bank_ND": torch.tensor([[0.0], [1.0], [math.nan], [1.0]])}, r"bank must be finite, but row 2"),
    ({"queries_QD": torch.ones(2, 3)}, r"queries must have as many features as the bank, 1, got 3"),
    ({"queries_QD": torch.ones(2, 1, 1)}, r"queries must have shape \(samples, features\), got \(2, 1, 1\)"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"bank_ND": torch.eye(4)[:, :1], "labels_N": torch.tensor([0, 1, 0, 1])}
    with pytest.raises(ValueError, match=sentence):
        probe_predict(**{**good, "queries_QD": torch.ones(2, 1), **wrong})
