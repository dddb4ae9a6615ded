"""Contrast is matrix factorisation: identities, closed forms, least errors, and what the paper misprints."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses.spectral import CrossModalSpectral, SpectralContrastive
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
from reproductions.tests.finite_models import Drawn, any_models, draw, paired_models
from tolerances import assert_close

EXACT = 1e-12  # identities, relative to the size of their terms
widths = st.integers(1, 6)


def assert_identity(left: Tensor | float, right: Tensor | float) -> None:
    assert abs(float(left) - float(right)) <= EXACT * max(1.0, abs(float(left)), abs(float(right)))


# --- the two losses are one


@given(any_models, widths, st.booleans())
@settings(max_examples=60)
def test_factorisation_is_the_spectral_loss_and_a_constant(drawn: Drawn, width: int, nonnegative: bool) -> None:
    """Eq. 3 and 4, Theorem 2: signed and non-negative features."""
    pairs, f_XK = cooccurrence(drawn.model), drawn.features(width, nonnegative=nonnegative)
    error, loss = factorisation_error(pairs, f_XK), spectral_loss(pairs, f_XK)
    assert_identity(error, loss + constant(pairs))
    px = oracle.marginal(drawn.prior, drawn.emission)
    joint, f = oracle.joint(drawn.prior, drawn.emission, drawn.emission), f_XK.tolist()
    assert_identity(loss, oracle.spectral_loss(joint, px, px, f, f))
    assert_identity(error, oracle.factorisation_error(joint, px, px, f, f))
    assert_identity(constant(pairs), oracle.constant(joint, px, px))


@given(paired_models(), widths, st.booleans())
@settings(max_examples=60)
def test_asymmetric_factorisation_is_the_loss_of_two_encoders(
    both: tuple[Drawn, Drawn], width: int, nonnegative: bool
) -> None:
    """Appendix C, Eq. 11 to 13."""
    first, second = both
    pairs = paired_cooccurrence(first.model, second.model)
    f_XK, g_YK = (drawn.features(width, nonnegative=nonnegative) for drawn in both)
    error, loss = factorisation_error(pairs, f_XK, g_YK), spectral_loss(pairs, f_XK, g_YK)
    assert_identity(error, loss + constant(pairs))
    px, py = (oracle.marginal(drawn.prior, drawn.emission) for drawn in both)
    joint = oracle.joint(first.prior, first.emission, second.emission)
    assert_identity(loss, oracle.spectral_loss(joint, px, py, f_XK.tolist(), g_YK.tolist()))
    assert_identity(error, oracle.factorisation_error(joint, px, py, f_XK.tolist(), g_YK.tolist()))


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


@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_loss_that_trains_two_encoders_has_theirs(nonnegative: bool) -> None:
    """The same for Eq. 11, and for Eq. 12, whose features are those after the ReLU."""
    first, second = draw(2, 3, 5, unique=False), draw(2, 2, 6, unique=False, prior=draw(2, 3, 5, unique=False).prior)
    pairs, f_XK, g_YK = paired_cooccurrence(first.model, second.model), first.features(2), second.features(2)
    loss = CrossModalSpectral(nonnegative=nonnegative, mu=None)
    expected = 0.0
    for a, b, c, d in product(range(3), range(2), range(3), range(2)):
        chance = float(pairs.joint_XY[a, b] * pairs.joint_XY[c, d])
        expected += chance * float(loss(f_XK[[a, c]], g_YK[[b, d]]))
    f_XK, g_YK = (z.relu() if nonnegative else z for z in (f_XK, g_YK))
    assert_identity(spectral_loss(pairs, f_XK, g_YK), expected)


# --- signed features


@given(any_models, widths)
@settings(max_examples=40)
def test_eigenvectors_reach_the_least_error(drawn: Drawn, width: int) -> None:
    pairs = cooccurrence(drawn.model)
    lambda_X = torch.linalg.eigvalsh(pairs.normalised).flip(0)
    found = spectral_features(pairs, width)
    assert abs(found.gap) < EXACT
    assert abs(found.loss + float(lambda_X[:width].square().sum())) < EXACT  # -2 lambda^2 + lambda^2 each
    slightly_XK = found.first_XK + 1e-3 * drawn.features(width)
    assert evaluate_features(pairs, slightly_XK).gap >= -EXACT
    assert evaluate_features(pairs, drawn.features(width)).gap >= -EXACT


@given(paired_models(), widths)
@settings(max_examples=40)
def test_singular_vectors_reach_the_least_error_of_two_encoders(both: tuple[Drawn, Drawn], width: int) -> None:
    pairs = paired_cooccurrence(both[0].model, both[1].model)
    assert abs(spectral_features(pairs, width).gap) < EXACT
    assert evaluate_features(pairs, both[0].features(width), both[1].features(width)).gap >= -EXACT


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
    found = spectral_features(pairs, width)
    assert abs(found.gap) < EXACT
    lambda_X = torch.linalg.eigvalsh(pairs.normalised)
    kept = sum(value**2 for value in lambda_X.flip(0).tolist()[:width] if value > 0)
    assert_identity(found.lower_bound, float(lambda_X.square().sum()) - kept)
    generator = torch.Generator().manual_seed(seed + 1)
    near_XK = found.first_XK + 1e-2 * torch.randn(5, width, generator=generator, dtype=torch.float64)
    assert evaluate_features(pairs, near_XK).gap >= -EXACT


# --- non-negative features


@given(any_models)
@settings(max_examples=40)
def test_the_closed_form_reproduces_the_matrix(drawn: Drawn) -> None:
    """Eq. 8, Theorem 3: both losses are at the least value that any features of any number can have."""
    pairs, phi_XM = cooccurrence(drawn.model), source_features(drawn.model)
    assert_close(phi_XM, torch.tensor(oracle.closed_form(drawn.prior, drawn.emission), dtype=torch.float64))
    judged = evaluate_features(pairs, phi_XM)
    assert bool((phi_XM >= 0).all())
    assert 0 <= judged.error < EXACT
    assert abs(judged.loss + constant(pairs)) < EXACT


@given(paired_models())
@settings(max_examples=40)
def test_the_closed_form_of_two_kinds_reproduces_the_matrix(both: tuple[Drawn, Drawn]) -> None:
    pairs = paired_cooccurrence(both[0].model, both[1].model)
    phi_XM, phi_YM = (source_features(drawn.model) for drawn in both)
    assert float(factorisation_error(pairs, phi_XM, phi_YM)) < EXACT


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


def test_least_losses_of_a_known_model() -> None:
    """Three sources without overlap: A-bar is a projection of rank 3, and each feature is worth 1."""
    pairs = cooccurrence(one_hot_model())
    assert [round(least_error(pairs, k), 12) for k in (1, 2, 3, 4)] == [2.0, 1.0, 0.0, 0.0]
    assert abs(constant(pairs) - 3.0) < EXACT


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
