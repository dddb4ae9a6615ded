"""Finite models of augmentation: co-occurrence against enumeration, and a linear classifier of ideal features."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from oracles import ncl_theory_oracle as oracle
from reproductions.ncl2024.factorisation import source_features, spectral_features
from reproductions.ncl2024.latent_classes import LatentModel, cooccurrence, paired_cooccurrence
from reproductions.tests.finite_models import Drawn, any_models, draw, paired_models
from tolerances import assert_close

HALF = torch.tensor([0.5, 0.5])
EXACT = 1e-12


def as_tensor(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(paired_models())
@settings(max_examples=40)
def test_probabilities_are_those_of_the_paper_for_one_and_two_kinds_of_views(both: tuple[Drawn, Drawn]) -> None:
    first, second = both
    assert_close(first.model.marginal, as_tensor(oracle.marginal(first.prior, first.emission)))
    assert_close(first.model.posterior, as_tensor(oracle.posterior(first.prior, first.emission)))
    for pairs, other in (
        (cooccurrence(first.model), first),
        (paired_cooccurrence(first.model, second.model), second),
    ):
        assert_close(pairs.joint_XY, as_tensor(oracle.joint(first.prior, first.emission, other.emission)))
        assert_close(pairs.joint_XY.sum(dim=1), pairs.first_X)
        assert_close(pairs.joint_XY.sum(dim=0), pairs.second_Y)


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


def labels_of(num_sources: int) -> Tensor:
    """Two labels, or one for a single source."""
    return torch.arange(num_sources) % 2


def members(label_M: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(label_M).double()


def bayes_weights(model: LatentModel, label_M: Tensor) -> Tensor:
    """Eq. 10 (Theorem 6), a column per label: the root of P(c) for the label's sources, else 0."""
    return model.prior_M.sqrt()[:, None] * members(label_M)


def error_of(model: LatentModel, label_M: Tensor, scores_XC: Tensor) -> float:
    """Probability that the label of the largest score is wrong, over views and their labels."""
    posterior_XC = model.posterior @ members(label_M)
    right_X = posterior_XC.gather(1, scores_XC.argmax(dim=1, keepdim=True))[:, 0]
    return 1 - float(model.marginal @ right_X)


@given(any_models)
@settings(max_examples=40)
def test_scores_are_the_posterior_and_no_classifier_errs_less(drawn: Drawn) -> None:
    model, label_M = drawn.model, labels_of(len(drawn.prior))
    scores_XC = source_features(model) @ bayes_weights(model, label_M)
    assert_close(scores_XC, model.posterior @ members(label_M))
    least = oracle.least_error_of_any_classifier(drawn.prior, drawn.emission, label_M.tolist())
    assert abs(error_of(model, label_M, scores_XC) - least) < EXACT


def test_weights_name_the_sources_of_a_label() -> None:
    """Eq. 10; the proof's indicator under the root comes to the same, as 0 and 1 are their own roots."""
    model, label_M = draw(4, 5, 1, unique=True).model, torch.tensor([1, 0, 1, 2])
    weights_MC = bayes_weights(model, label_M)
    assert (weights_MC > 0).nonzero().tolist() == [[0, 1], [1, 0], [2, 1], [3, 2]]
    assert_close(weights_MC, (model.prior_M[:, None] * members(label_M)).sqrt())


@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 1000))
@settings(max_examples=30)
def test_signed_features_of_full_rank_do_as_well(num_sources: int, num_views: int, seed: int) -> None:
    """The theorem needs the span of the features only: a rotation moves into the weights, and makes them unreadable."""
    drawn = draw(num_sources, num_views, seed, unique=True)
    model, label_M = drawn.model, labels_of(num_sources)
    signed_XK = spectral_features(cooccurrence(model), num_sources).first_XK
    turn_KM = torch.linalg.lstsq(signed_XK, source_features(model)).solution
    scores_XC = signed_XK @ (turn_KM @ bayes_weights(model, label_M))
    posterior_XC = model.posterior @ members(label_M)
    assert_close(scores_XC, posterior_XC)
    least = 1 - float(model.marginal @ posterior_XC.amax(dim=1))
    assert abs(error_of(model, label_M, scores_XC) - least) < 1e-9  # a tie may fall either way
