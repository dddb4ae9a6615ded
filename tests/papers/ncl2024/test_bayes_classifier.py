"""Theorem 6: a linear classifier of ideal features is the Bayes classifier, checked against every other one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.papers.ncl2024.factorisation import source_features, spectral_features
from counterpoint.papers.ncl2024.identifiability import match_features, nonnegative_features
from counterpoint.papers.ncl2024.latent_classes import (
    LatentModel,
    bayes_weights,
    classify,
    cooccurrence,
    label_posterior,
)
from oracles import ncl_theory_oracle as oracle
from papers.finite_models import Drawn, any_models, draw
from tolerances import assert_close

EXACT = 1e-12


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


def test_features_found_from_pairs_alone_carry_the_weights_over() -> None:
    model, label_M = draw(4, 7, 3, unique=True).model, torch.tensor([0, 0, 1, 1])
    found_XK = nonnegative_features(cooccurrence(model), 4).features.first_XK
    order_K = match_features(source_features(model), found_XK).order_K
    judged = classify(model, label_M, found_XK[:, order_K], bayes_weights(model, label_M))
    assert judged.is_bayes_optimal


def test_one_feature_is_not_enough() -> None:
    """Three labels that no view shares: with the first eigenvector alone, constant for every view, two are missed."""
    model, label_M = LatentModel(torch.full((3,), 1 / 3), torch.eye(3)), torch.arange(3)
    judged = classify(model, label_M, torch.ones(3, 1), torch.tensor([[1.0, 0.5, 0.2]]))
    assert judged.bayes_error < EXACT
    assert abs(judged.error - 2 / 3) < EXACT
    assert not judged.is_bayes_optimal


def test_what_does_not_fit() -> None:
    model = LatentModel(torch.tensor([0.5, 0.5]), torch.eye(2))
    with pytest.raises(UsageError, match="groups must be one whole number per source"):
        bayes_weights(model, torch.tensor([0]))
    with pytest.raises(UsageError, match=r"must have shapes \(2, k\) and \(k, 2\), got \(2, 2\) and \(3, 2\)"):
        classify(model, torch.arange(2), torch.eye(2), torch.ones(3, 2))
