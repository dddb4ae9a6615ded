"""Uniqueness of non-negative features, and a solver that finds them with a certificate."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.core.errors import UsageError
from reproductions.ncl2024.factorisation import constant, evaluate_features, source_features, spectral_features
from reproductions.ncl2024.identifiability import identifiability, match_features, nonnegative_features
from reproductions.ncl2024.latent_classes import Cooccurrence, LatentModel, cooccurrence, paired_cooccurrence
from reproductions.tests.finite_models import Drawn, any_models, draw, identifiable_models, paired_models
from tolerances import assert_close

EXACT = 1e-12


@given(identifiable_models)
@settings(max_examples=40)
def test_turning_eigenvectors_onto_unique_views_recovers_the_sources(drawn: Drawn) -> None:
    """Theorem 5: with k = m and a view of its own for each source, the non-negative features are Eq. 8."""
    model, judged = drawn.model, identifiability(drawn.model)
    assert judged.is_unique
    assert judged.rank == model.num_sources
    spectral_XK = spectral_features(cooccurrence(model), model.num_sources).first_XK
    # Features of views of their own are orthogonal: T = [f(x_c) / |f(x_c)|] is a rotation, and takes them to the axes.
    turn_MK = torch.nn.functional.normalize(spectral_XK[judged.unique_view_M], dim=1)
    assert_close(turn_MK @ turn_MK.T, torch.eye(model.num_sources).double())
    phi_XM = source_features(model)
    assert float((spectral_XK @ turn_MK.T - phi_XM).abs().max()) < 1e-10 * float(phi_XM.max())


def test_more_features_than_sources_are_not_unique() -> None:
    """A dimension splits into cos and sin of itself: as good, non-negative, and no permutation of the first answer.

    Lemma 1 needs k = rank; the paper fills up with zeros and calls the answer unique.
    """
    model = draw(3, 5, 7, unique=True).model
    pairs, phi_XM = cooccurrence(model), source_features(model)
    filled_XK = torch.nn.functional.pad(phi_XM, (0, 1))
    first_X = phi_XM[:, :1]
    split_XK = torch.cat([first_X * math.cos(0.7), phi_XM[:, 1:], first_X * math.sin(0.7)], dim=1)
    for features_XK in (filled_XK, split_XK):
        assert evaluate_features(pairs, features_XK).error < EXACT
        assert bool((features_XK >= 0).all())
    assert match_features(filled_XK, split_XK).error > 0.1
    assert match_features(split_XK, filled_XK, scaled=True).error > 0.1
    judged = identifiability(model, 4)
    assert judged.is_unique is False
    assert str(judged).startswith("not unique: 4 features for 3 sources")


def test_without_views_of_their_own_sources_may_be_turned() -> None:
    """Two sources whose views all belong to both: a small rotation keeps every entry positive."""
    model = LatentModel(torch.tensor([0.5, 0.5]), torch.tensor([[0.7, 0.3], [0.3, 0.7]]))
    pairs, phi_XM = cooccurrence(model), source_features(model)
    turn_MM = torch.tensor([[math.cos(0.2), -math.sin(0.2)], [math.sin(0.2), math.cos(0.2)]]).double()
    turned_XM = phi_XM @ turn_MM
    assert bool((turned_XM > 0).all())
    assert evaluate_features(pairs, turned_XM).error < EXACT
    assert match_features(phi_XM, turned_XM, scaled=True).error > 0.05
    judged = identifiability(model)
    assert judged.is_unique is None
    assert "sources [0, 1] have no view of their own" in judged.reason


@given(st.permutations(range(4)), st.lists(st.floats(0.2, 5.0), min_size=4, max_size=4))
@settings(max_examples=30)
def test_order_and_scales_are_found(order: list[int], scales: list[float]) -> None:
    features_XK = draw(4, 6, 9, unique=True).features(4)
    changed_XK = features_XK[:, order] * torch.tensor(scales, dtype=torch.float64)
    match = match_features(features_XK, changed_XK, scaled=True)
    assert match.error < EXACT
    assert [order[place] for place in match.order_K.tolist()] == [0, 1, 2, 3]
    assert_close(match.scale_K, 1 / torch.tensor(scales, dtype=torch.float64)[match.order_K])
    assert match_features(features_XK, features_XK[:, order]).error == 0.0


def test_what_cannot_be_matched_or_judged() -> None:
    own = LatentModel(torch.tensor([0.5, 0.5]), torch.eye(2))
    with pytest.raises(UsageError, match="must have one shape"):
        match_features(torch.eye(2), torch.eye(3))
    with pytest.raises(UsageError, match="num_features"):
        identifiability(own, 0)
    judged = identifiability(draw(3, 5, 7, unique=True).model, 2)
    assert judged.is_unique is None
    assert "2 features cannot hold 3 sources" in judged.reason


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
    """A turn T and its inverse are both non-negative if sources have own views in both kinds: a scaled permutation.

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


def test_a_seed_fixes_the_answer() -> None:
    pairs = cooccurrence(draw(4, 8, 0, unique=True).model)
    first, second = (nonnegative_features(pairs, 3, num_starts=2, seed=5) for _ in range(2))
    assert torch.equal(first.features.first_XK, second.features.first_XK)
