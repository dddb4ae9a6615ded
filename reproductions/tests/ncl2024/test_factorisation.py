"""Contrast is matrix factorisation: identities, closed forms, least errors, and what the paper misprints."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses.spectral import SpectralContrastive
from oracles import ncl_theory_oracle as oracle
from reproductions.ncl2024.factorisation import (
    constant,
    evaluate_features,
    factorisation_error,
    least_error,
    source_features,
    spectral_features,
    spectral_loss,
)
from reproductions.ncl2024.latent_classes import Cooccurrence, LatentModel, cooccurrence, paired_cooccurrence
from reproductions.tests.finite_models import Drawn, draw, paired_models
from tolerances import assert_close

EXACT = 1e-12  # identities, relative to the size of their terms
widths = st.integers(1, 6)


def assert_identity(left: Tensor | float, right: Tensor | float) -> None:
    assert abs(float(left) - float(right)) <= EXACT * max(1.0, abs(float(left)), abs(float(right)))


# --- the two losses are one


@given(paired_models(), widths, st.booleans())
@settings(max_examples=60)
def test_factorisation_is_the_spectral_loss_and_a_constant(
    both: tuple[Drawn, Drawn], width: int, nonnegative: bool
) -> None:
    """Eq. 3 and 4, Theorem 2: one encoder with signed and non-negative features; appendix C, Eq. 11 to 13: two."""
    first, second = both
    f_XK, g_YK = (drawn.features(width, nonnegative=nonnegative) for drawn in both)
    for pairs, other, features in (
        (cooccurrence(first.model), first, [f_XK]),
        (paired_cooccurrence(first.model, second.model), second, [f_XK, g_YK]),
    ):
        error, loss = factorisation_error(pairs, *features), spectral_loss(pairs, *features)
        assert_identity(error, loss + constant(pairs))
        px, py = (oracle.marginal(drawn.prior, drawn.emission) for drawn in (first, other))
        joint = oracle.joint(first.prior, first.emission, other.emission)
        f, g = features[0].tolist(), features[-1].tolist()
        assert_identity(loss, oracle.spectral_loss(joint, px, py, f, g))
        assert_identity(error, oracle.factorisation_error(joint, px, py, f, g))
        assert_identity(constant(pairs), oracle.constant(joint, px, py))


def test_the_loss_that_trains_has_the_population_loss_as_its_expectation() -> None:
    """All batches of two pairs, weighed by their probability."""
    drawn = draw(2, 3, 11, unique=False)
    pairs, f_XK = cooccurrence(drawn.model), drawn.features(2)
    loss, views = SpectralContrastive(mu=None), range(3)
    expected = 0.0
    for a, b, c, d in product(views, repeat=4):
        chance = float(pairs.joint_XY[a, b] * pairs.joint_XY[c, d])
        expected += chance * float(loss(f_XK[[a, c]], f_XK[[b, d]]))
    assert_identity(spectral_loss(pairs, f_XK), expected)


# --- signed features


@given(paired_models(), widths)
@settings(max_examples=40)
def test_singular_vectors_reach_the_least_error_of_one_and_of_two_encoders(
    both: tuple[Drawn, Drawn], width: int
) -> None:
    first, second = both
    f_XK, g_YK = (drawn.features(width) for drawn in both)
    for pairs, features in (
        (cooccurrence(first.model), [f_XK]),
        (paired_cooccurrence(first.model, second.model), [f_XK, g_YK]),
    ):
        spectral = spectral_features(pairs, width)
        assert abs(spectral.gap) < EXACT
        sigma_K = torch.linalg.svdvals(pairs.normalised)[:width]
        assert abs(spectral.loss + float(sigma_K.square().sum())) < EXACT  # -2 sigma^2 + sigma^2 each
        assert evaluate_features(pairs, *features).gap >= -EXACT


def signed_pairs(seed: int) -> Cooccurrence:
    """Symmetric pairs that no source explains: A-bar has eigenvalues of both signs."""
    drawn_XX = torch.rand(5, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).pow(4)
    joint_XX = (drawn_XX + drawn_XX.T) / (2 * drawn_XX.sum())
    return Cooccurrence(joint_XX, joint_XX.sum(1), joint_XX.sum(0), is_symmetric=True)


@given(st.integers(0, 10**6), widths)
@settings(max_examples=40)
def test_one_encoder_cannot_make_a_negative_eigenvalue(seed: int, width: int) -> None:
    """The bound of F F^T is attained, and is above that of F G^T by the negative eigenvalues which k would reach."""
    pairs = signed_pairs(seed)
    spectral = spectral_features(pairs, width)
    assert abs(spectral.gap) < EXACT
    lambda_X = torch.linalg.eigvalsh(pairs.normalised)
    reached = sum(value**2 for value in lambda_X.flip(0).tolist()[:width] if value > 0)
    assert_identity(spectral.lower_bound, float(lambda_X.square().sum()) - reached)
    generator = torch.Generator().manual_seed(seed + 1)
    near_XK = spectral.first_XK + 1e-2 * torch.randn(5, width, generator=generator, dtype=torch.float64)
    assert evaluate_features(pairs, near_XK).gap >= -EXACT


# --- non-negative features


@given(paired_models())
@settings(max_examples=40)
def test_the_closed_form_reproduces_the_matrix(both: tuple[Drawn, Drawn]) -> None:
    """Eq. 8, Theorem 3: both losses are at the least value that any features of any number can have."""
    drawn, other = both
    pairs, phi_XM = cooccurrence(drawn.model), source_features(drawn.model)
    assert_close(phi_XM, torch.tensor(oracle.closed_form(drawn.prior, drawn.emission), dtype=torch.float64))
    judged = evaluate_features(pairs, phi_XM)
    assert bool((phi_XM >= 0).all())
    assert 0 <= judged.error < EXACT
    assert abs(judged.loss + constant(pairs)) < EXACT
    two_kinds = paired_cooccurrence(drawn.model, other.model)
    assert float(factorisation_error(two_kinds, phi_XM, source_features(other.model))) < EXACT


def one_hot_model() -> LatentModel:
    """Three sources of unequal probability; each view belongs to one."""
    views_MX = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    return LatentModel(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), views_MX)


def test_one_hot_features_carry_the_root_of_the_class_probability() -> None:
    """Theorem 4 as printed, phi = 1_mu(x), is neither orthonormal nor optimal; with the proof's factor it is both."""
    model = one_hot_model()
    pairs, phi_XM = cooccurrence(model), source_features(model)
    printed_XM = (phi_XM > 0).double()
    assert_close(phi_XM, printed_XM / model.prior_M.sqrt())
    assert_close(phi_XM.T @ (model.marginal[:, None] * phi_XM), torch.eye(3).double())
    assert evaluate_features(pairs, phi_XM).error < EXACT
    assert_close(printed_XM.T @ (model.marginal[:, None] * printed_XM), torch.diag(model.prior_M))
    assert evaluate_features(pairs, printed_XM).error > 1.0


# --- what is refused


@pytest.mark.parametrize(("is_symmetric", "num_encoders"), [(False, 1), (True, 3), (True, 0)])
def test_one_encoder_needs_one_kind_of_views(is_symmetric: bool, num_encoders: int) -> None:
    model = one_hot_model()
    pairs = cooccurrence(model) if is_symmetric else paired_cooccurrence(model, model)
    with pytest.raises(UsageError, match=f"num_encoders must be 2, or 1 .*, got {num_encoders}"):
        least_error(pairs, 1, num_encoders=num_encoders)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (torch.ones(3, 2), None, "one row per view"),
        (torch.ones(4, 2), torch.ones(4, 3), "one width"),
    ],
)
def test_features_fit_the_views(first: Tensor, second: Tensor | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spectral_loss(cooccurrence(one_hot_model()), first, second)
