"""Finite models of augmentation: co-occurrence against enumeration, and a linear classifier of ideal features."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from oracles import ncl_theory_oracle as oracle
from reproductions.ncl2024.factorisation import second_moment, source_features, spectral_features
from reproductions.ncl2024.latent_classes import (
    LatentModel,
    bayes_weights,
    classify,
    cooccurrence,
    group_members,
    label_posterior,
    paired_cooccurrence,
)
from reproductions.tests.finite_models import Drawn, any_models, draw, paired_models
from tolerances import assert_close

HALF = torch.tensor([0.5, 0.5])
EXACT = 1e-12


def as_tensor(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(any_models)
@settings(max_examples=40)
def test_probabilities_are_those_of_the_paper(drawn: Drawn) -> None:
    pairs = cooccurrence(drawn.model)
    assert_close(pairs.joint_XY, as_tensor(oracle.joint(drawn.prior, drawn.emission, drawn.emission)))
    assert_close(drawn.model.marginal, as_tensor(oracle.marginal(drawn.prior, drawn.emission)))
    assert_close(drawn.model.posterior, as_tensor(oracle.posterior(drawn.prior, drawn.emission)))


@given(any_models)
@settings(max_examples=40)
def test_the_normalised_matrix_is_a_positive_semidefinite_contraction(drawn: Drawn) -> None:
    pairs = cooccurrence(drawn.model)
    assert torch.equal(pairs.joint_XY, pairs.joint_XY.T)
    assert_close(pairs.joint_XY.sum(dim=1), pairs.first_X)
    lambda_X = torch.linalg.eigvalsh(pairs.normalised)
    assert float(lambda_X[0]) > -1e-12
    assert abs(float(lambda_X[-1]) - 1) < 1e-12  # its eigenvector is the root of P(x)
    assert_close(pairs.normalised @ pairs.first_X.sqrt(), pairs.first_X.sqrt())


@given(paired_models())
@settings(max_examples=40)
def test_two_kinds_of_views(both: tuple[Drawn, Drawn]) -> None:
    first, second = both
    pairs = paired_cooccurrence(first.model, second.model)
    assert_close(pairs.joint_XY, as_tensor(oracle.joint(first.prior, first.emission, second.emission)))
    assert_close(pairs.joint_XY.sum(dim=1), pairs.first_X)
    assert_close(pairs.joint_XY.sum(dim=0), pairs.second_Y)
    assert_close(paired_cooccurrence(second.model, first.model).joint_XY, pairs.joint_XY.T)
    assert_close(paired_cooccurrence(first.model, first.model).joint_XY, cooccurrence(first.model).joint_XY)


@given(any_models)
@settings(max_examples=40)
def test_overlap_bounds_how_features_go_together(drawn: Drawn) -> None:
    """Eq. 9, and its sum over sources: what a view does not share it has alone."""
    model = drawn.model
    moment_MM = second_moment(source_features(model), model.marginal)
    beside_MM = moment_MM - torch.diag(moment_MM.diagonal())
    assert float(beside_MM.max()) <= model.largest_overlap / float(model.prior_M.min()) + 1e-12
    assert_close(model.overlap.sum(dim=1), model.prior_M)


def test_grouped_sources_pair_views_of_all_their_members() -> None:
    """P(x, x' | g) = sum over ordered pairs of members of P(c|g) P(c'|g) P(x|c) P(x'|c')."""
    drawn, group = draw(4, 5, 3, unique=False), [1, 0, 1, 1]
    grouped = drawn.model.grouped(torch.tensor(group))
    expected_XX = torch.zeros(5, 5).double()
    for g in (0, 1):
        members = [c for c in range(4) if group[c] == g]
        share = sum(drawn.prior[c] for c in members)
        for c in members:
            for d in members:
                row_X, other_X = as_tensor(drawn.emission[c]), as_tensor(drawn.emission[d])
                expected_XX += drawn.prior[c] * drawn.prior[d] / share * torch.outer(row_X, other_X)
    assert_close(cooccurrence(grouped).joint_XY, expected_XX)
    assert_close(grouped.marginal, drawn.model.marginal)


@pytest.mark.parametrize(
    ("prior", "views", "message"),
    [
        (torch.tensor([0.5, 0.6]), torch.eye(2), "prior must sum to 1, got 1.1; divide by the sum"),
        (torch.tensor([1.0, 0.0]), torch.eye(2), "prior must be > 0, got 0 at source 1; leave that source out"),
        (HALF, torch.tensor([[1.0, 0.0], [0.5, 0.4]]), "views of source 1 must sum to 1, got 0.9"),
        (HALF, torch.eye(3), r"must have shapes \(m,\) and \(m, x\), got \(2,\) and \(3, 3\)"),
    ],
)
def test_no_model(prior: Tensor, views: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LatentModel(prior, views)


@pytest.mark.parametrize("groups", [[0, 2], [-1, 0], [0], [0.0, 1.0]])
def test_groups_are_whole_numbers_without_a_gap(groups: list) -> None:
    with pytest.raises(UsageError, match="groups must be"):
        group_members(torch.tensor(groups), 2)


def labels_of(num_sources: int) -> Tensor:
    """Two labels, or one for a single source."""
    return torch.arange(num_sources) % 2


@given(any_models)
@settings(max_examples=40)
def test_scores_are_the_posterior_and_no_classifier_errs_less(drawn: Drawn) -> None:
    model, label_M = drawn.model, labels_of(len(drawn.prior))
    judged = classify(model, label_M, source_features(model), bayes_weights(model, label_M))
    assert_close(judged.scores_XC, label_posterior(model, label_M))
    assert_close(judged.scores_XC.sum(dim=1), torch.ones(drawn.num_views).double())
    least = oracle.least_error_of_any_classifier(drawn.prior, drawn.emission, label_M.tolist())
    assert abs(judged.bayes_error - least) < EXACT
    assert judged.is_bayes_optimal


def test_weights_name_the_sources_of_a_label() -> None:
    """Eq. 10; the proof's indicator under the root comes to the same, as 0 and 1 are their own roots."""
    model, label_M = draw(4, 5, 1, unique=True).model, torch.tensor([1, 0, 1, 2])
    weights_MC = bayes_weights(model, label_M)
    assert (weights_MC > 0).nonzero().tolist() == [[0, 1], [1, 0], [2, 1], [3, 2]]
    under_root_MC = (model.prior_M[:, None] * (weights_MC > 0)).sqrt()
    assert_close(weights_MC, under_root_MC)


@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 1000))
@settings(max_examples=30)
def test_signed_features_of_full_rank_do_as_well(num_sources: int, num_views: int, seed: int) -> None:
    """The theorem needs the span of the features only: a rotation moves into the weights, and makes them unreadable."""
    model = draw(num_sources, num_views, seed, unique=True).model
    label_M, phi_XM = labels_of(num_sources), source_features(model)
    signed_XK = spectral_features(cooccurrence(model), num_sources).first_XK
    turn_KM = torch.linalg.lstsq(signed_XK, phi_XM).solution
    weights_KC = turn_KM @ bayes_weights(model, label_M)
    judged = classify(model, label_M, signed_XK, weights_KC)
    assert_close(judged.scores_XC, label_posterior(model, label_M))
    assert judged.is_bayes_optimal or abs(judged.error - judged.bayes_error) < 1e-9  # a tie may fall either way


def test_one_feature_is_not_enough() -> None:
    """Three labels that no view shares: with the first eigenvector alone, constant for every view, two are missed."""
    model, label_M = LatentModel(torch.full((3,), 1 / 3), torch.eye(3)), torch.arange(3)
    judged = classify(model, label_M, torch.ones(3, 1), torch.tensor([[1.0, 0.5, 0.2]]))
    assert judged.bayes_error < EXACT
    assert abs(judged.error - 2 / 3) < EXACT
    assert not judged.is_bayes_optimal
