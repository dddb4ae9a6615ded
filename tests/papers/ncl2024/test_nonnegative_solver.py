"""The non-negative solver finds the sources up to what theory leaves open, and says when it has a certificate."""

import pytest
import torch
from hypothesis import given, settings

from counterpoint.core.errors import UsageError
from counterpoint.papers.ncl2024.factorisation import constant, source_features
from counterpoint.papers.ncl2024.identifiability import match_features, nonnegative_features
from counterpoint.papers.ncl2024.latent_classes import Cooccurrence, cooccurrence, paired_cooccurrence
from papers.finite_models import Drawn, any_models, draw, identifiable_models, paired_models


@given(identifiable_models)
@settings(max_examples=15)
def test_sources_are_recovered_up_to_their_order(drawn: Drawn) -> None:
    model = drawn.model
    answer = nonnegative_features(cooccurrence(model), model.num_sources)
    assert answer.is_certified, answer.status
    assert bool((answer.features.first_XK >= 0).all())
    assert match_features(source_features(model), answer.features.first_XK).error < 1e-5  # the error is its square


@given(any_models)
@settings(max_examples=15)
def test_as_many_features_as_sources_reach_the_bound(drawn: Drawn) -> None:
    """Theorem 3: whether or not the features are unique, the least loss is minus the constant."""
    pairs = cooccurrence(drawn.model)
    answer = nonnegative_features(pairs, drawn.model.num_sources)
    assert answer.is_certified, answer.status
    assert abs(answer.features.loss + constant(pairs)) < 1e-9


@given(paired_models(unique=True))
@settings(max_examples=15)
def test_two_encoders_find_the_sources_up_to_order_and_scale(both: tuple[Drawn, Drawn]) -> None:
    """With views of their own in both kinds a turn T and its inverse are both non-negative: a scaled permutation.

    One encoder's scale is the inverse of the other's, and nothing else fixes it.
    """
    first, second = (drawn.model for drawn in both)
    answer = nonnegative_features(paired_cooccurrence(first, second), first.num_sources)
    assert answer.is_certified, answer.status
    match = match_features(source_features(first), answer.features.first_XK, scaled=True)
    other = match_features(source_features(second), answer.features.second_YK, scaled=True)
    assert match.order_K.tolist() == other.order_K.tolist()
    assert max(match.error, other.error) < 1e-4
    assert float((match.scale_K * other.scale_K - 1).abs().max()) < 1e-4


def test_more_features_than_sources_still_reach_the_bound() -> None:
    model = draw(3, 6, 4, unique=True).model
    assert nonnegative_features(cooccurrence(model), 5).is_certified


def test_without_a_certificate_it_says_what_could_be() -> None:
    """Two features for three equal sources without overlap: signed ones leave 1, and so do two of the sources."""
    third = torch.full((3,), 1 / 3).double()
    pairs = Cooccurrence(torch.diag(third), third, third, is_symmetric=True)
    assert nonnegative_features(pairs, 2).is_certified
    pairs = cooccurrence(draw(5, 8, 0, unique=True).model)
    answer = nonnegative_features(pairs, 3, num_starts=3)
    assert not answer.is_certified
    assert answer.num_starts == 3
    assert answer.features.gap > 1e-6
    assert str(answer).startswith("no certificate: error")


def test_a_negative_eigenvalue_does_not_hide_the_optimum() -> None:
    """Views 0 and 1 only ever occur together with the other: F F^T of any width leaves the eigenvalue -1, error 1."""
    half = torch.full((2,), 0.5).double()
    pairs = Cooccurrence(torch.eye(2).double().flip(0) / 2, half, half, is_symmetric=True)
    answer = nonnegative_features(pairs, 2)
    assert answer.is_certified, answer.status
    assert answer.features.error == pytest.approx(1.0, abs=1e-9)


def test_a_seed_fixes_the_answer() -> None:
    pairs = cooccurrence(draw(4, 8, 0, unique=True).model)
    first, second = (nonnegative_features(pairs, 3, num_starts=2, seed=5) for _ in range(2))
    assert torch.equal(first.features.first_XK, second.features.first_XK)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"num_features": 0}, "num_features must be >= 1, got 0"),
        ({"num_features": 2, "num_starts": 0}, "num_starts must be >= 1, got 0; 8 is common"),
        ({"num_features": 2, "tolerance": 0.0}, "tolerance must be > 0, got 0.0"),
    ],
)
def test_sizes_out_of_range(settings_: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nonnegative_features(cooccurrence(draw(2, 3, 0, unique=True).model), **settings_)


def test_refusals_are_usage_errors() -> None:
    with pytest.raises(UsageError):
        nonnegative_features(cooccurrence(draw(2, 3, 0, unique=True).model), 2, num_starts=0)
