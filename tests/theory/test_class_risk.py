"""The class-level risk against all C^k terms of imbalanced2026, Eq. 14, with autograd through the same loops."""

# C classes

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor

from counterpoint import losses
from counterpoint.core.errors import NonFiniteError, UsageError
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.class_risk import class_risk, negative_weights, smooth_hinge
from counterpoint.theory.geometry.risk_rows import RiskAt
from oracles import class_risk_oracle as oracle
from oracles.number_checks import assert_numbers

PROPORTIONS = [0.5, 0.3, 0.2]
SHARES = torch.tensor(PROPORTIONS, dtype=torch.float64)
each_pool = pytest.mark.parametrize("supervised", [False, True], ids=["UCL", "SCL"])


@dataclass(frozen=True)
class Case:
    """A loss and what it does to an anchor and its negatives."""

    loss: Loss | None
    psi: oracle.Psi


def softplus(u: Tensor) -> Tensor:
    return F.softplus(u, threshold=40)


CASES = {
    "paper": Case(None, oracle.log_of_sum(1.0, mean=True)),
    "infonce": Case(losses.InfoNCE(0.5), oracle.log_of_sum(0.5)),
    "infonce, epsilon": Case(losses.InfoNCE(0.2, 2.5), oracle.log_of_sum(0.2, 2.5)),
    "dcl": Case(losses.DCL(0.1), oracle.log_of_sum(0.1, 0.0)),
    "mine": Case(losses.MINE(), oracle.log_of_sum(1.0, 0.0)),
    "n-plus-one-tuplet": Case(losses.NPlusOneTuplet(), oracle.log_of_sum(1.0)),
    "soft-triplet": Case(losses.SoftTriplet(0.3, 0.7), oracle.log_of_sum(0.3, factor=0.3, margin=0.7)),
    "triplet": Case(losses.Triplet(1.1), oracle.triplet(1.1)),
    "linear-triplet": Case(losses.LinearTriplet(), oracle.linear()),
    "own log1p, exp": Case(losses.PairLoss(torch.log1p, torch.exp), oracle.log_of_sum(1.0)),
    "own log, exp": Case(losses.PairLoss(torch.log, torch.exp), oracle.log_of_sum(1.0, 0.0)),
    "sum of exponentials": Case(
        losses.PairLoss(losses.Phi(lambda x: 2 * x, "2 x", is_linear=True), torch.exp),
        lambda gaps, _: 2 * torch.stack(gaps).exp().sum(),
    ),
    "mio-v1": Case(
        losses.MIOv1(0.3), oracle.by_pairs(lambda m: softplus(-m / 0.3), lambda a: softplus(a / 0.3), mean=True)
    ),
    "mio-v2": Case(losses.MIOv2(0.4), oracle.by_pairs(lambda m: -m / 0.4, lambda a: softplus(a / 0.4), mean=True)),
    "mio-v3": Case(losses.MIOv3(0.5), oracle.by_pairs(lambda m: -m / 0.5, lambda a: torch.exp(a / 0.5), mean=True)),
    "sigmoid": Case(
        losses.SigmoidPair(5.0, -2.0, learnable=False),
        oracle.by_pairs(lambda m: softplus(-5 * m + 2), lambda a: softplus(5 * a - 2)),
    ),
    "spectral": Case(losses.SpectralContrastive(), oracle.by_pairs(lambda m: -2 * m, torch.square, mean=True)),
    "spectral, mu": Case(
        losses.SpectralContrastive(0.6),
        oracle.by_pairs(lambda m: -2 * 0.6 * m, lambda a: (0.6 * a) ** 2, mean=True),
    ),
    "cross-modal": Case(losses.CrossModal(0.25, learnable_temperature=False), oracle.log_of_sum(0.25)),
    "cross-modal-spectral": Case(
        losses.CrossModalSpectral(nonnegative=True), oracle.by_pairs(lambda m: -2 * m, torch.square, mean=True)
    ),
    "supcon": Case(losses.SupCon(0.3), oracle.log_of_sum(0.3)),
    "generalized": Case(losses.GeneralizedContrastive(temperature=0.7), oracle.log_of_sum(0.7, mean=True)),
    "hard": Case(losses.HardNegatives(losses.InfoNCE(0.5), 1.5), oracle.hard(0.5, 1.5)),
    "hard, margin": Case(
        losses.HardNegatives(losses.SoftTriplet(0.5, 0.8), 1.5), oracle.hard(0.5, 1.5, factor=0.5, margin=0.8)
    ),
    "hard, dcl": Case(losses.HardNegatives(losses.DCL(0.4), 0.5), oracle.hard(0.4, 0.5, 0.0)),
}
each_case = pytest.mark.parametrize("name", CASES)


def gram_of(num_classes: int = 3, seed: int = 0, dimension: int = 4) -> Tensor:
    """Cosines of random vectors."""
    generator = torch.Generator().manual_seed(seed)
    z_CD = F.normalize(torch.randn(num_classes, dimension, generator=generator, dtype=torch.float64), dim=1)
    return (z_CD @ z_CD.T).fill_diagonal_(1.0)


def direction_of(num_classes: int = 3, seed: int = 1) -> Tensor:
    """A symmetric change with zero diagonal."""
    generator = torch.Generator().manual_seed(seed)
    change_CC = torch.randn(num_classes, num_classes, generator=generator, dtype=torch.float64)
    return (change_CC + change_CC.T).fill_diagonal_(0.0)


def between(matrix: Tensor) -> Tensor:
    """Symmetric part, off the diagonal."""
    return ((matrix + matrix.T) / 2).fill_diagonal_(0.0)


def assert_is(at: RiskAt, definition: Callable[[Tensor], Tensor], gram: Tensor) -> None:
    """Value and derivatives are those that autograd makes of a definition, for all entries as they stand."""
    change, entries = direction_of(), gram.clone().requires_grad_()
    value = definition(entries)
    (gradient,) = torch.autograd.grad(value, entries, create_graph=True)
    hessian = torch.zeros(*gram.shape, *gram.shape, dtype=gram.dtype)
    if gradient.requires_grad:  # else the risk is linear
        each = [torch.autograd.grad(g, entries, retain_graph=True, materialize_grads=True) for g in gradient.flatten()]
        hessian = torch.stack([row for (row,) in each]).view_as(hessian)
    assert_numbers(at.value, value.detach())
    assert_numbers(at.gradient_CC, between(gradient.detach()))
    assert_numbers(at.curvature(change), between(torch.einsum("ijkl,kl->ij", hessian, change)))
    assert_numbers(at.curvature_diagonal_CC, between(torch.einsum("ijij->ij", hessian)))


@each_pool
@each_case
@pytest.mark.sampled(10)
def test_value_and_derivatives_are_those_of_all_terms(name: str, supervised: bool) -> None:
    case, gram = CASES[name], gram_of()

    def definition(a: Tensor) -> Tensor:
        return oracle.risk(a, PROPORTIONS, case.psi, 2, supervised)

    at = class_risk(SHARES, loss=case.loss, num_negatives=2, supervised=supervised).at(gram)
    assert_is(at, definition, gram)


@each_pool
@each_case
@pytest.mark.sampled(2)
def test_the_slope_for_a_classs_length_counts_positives_and_collisions(name: str, supervised: bool) -> None:
    """|mu_i|^2 is the cosine of independent positives, and of colliding negatives; other products stay."""
    case, gram = CASES[name], gram_of()

    def definition(lengths: Tensor) -> Tensor:
        a = torch.where(torch.eye(3, dtype=torch.bool), lengths[:, None], gram)
        return oracle.risk(a, PROPORTIONS, case.psi, 2, supervised)

    at = class_risk(SHARES, loss=case.loss, num_negatives=2, supervised=supervised).at(gram)
    lengths = torch.ones(3, dtype=torch.float64, requires_grad=True)
    assert_numbers(at.own_slope_C, torch.autograd.grad(definition(lengths), lengths)[0])


@each_pool
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("tau", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.sampled(3)
def test_any_temperature_and_number_of_negatives(epsilon: float, tau: float, k: int, supervised: bool) -> None:
    gram = gram_of(seed=2)
    risk = class_risk(SHARES, loss=losses.InfoNCE(tau, epsilon), num_negatives=k, supervised=supervised)
    expected = float(oracle.risk(gram, PROPORTIONS, oracle.log_of_sum(tau, epsilon), k, supervised))
    assert risk.value(gram) == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(
    ("loss", "psi", "k"),
    [
        (losses.InfoNCE(0.01), oracle.log_of_sum(0.01), 1),  # a risk of 1e-49
        (losses.InfoNCE(0.05), oracle.log_of_sum(0.05), 2),
        (losses.SupCon(0.0472), oracle.log_of_sum(0.0472), 2),
        (losses.SoftTriplet(0.03, 0.7), oracle.log_of_sum(0.03, factor=0.03, margin=0.7), 2),
    ],
    ids=["InfoNCE(0.01)", "InfoNCE(0.05)", "SupCon", "SoftTriplet"],
)
@pytest.mark.sampled(3)
def test_risks_near_zero_keep_their_digits(loss: Loss, psi: oracle.Psi, k: int) -> None:
    """Ten classes, the j-th of a share like 1/j, at the corners of a simplex."""
    shares = 1 / torch.arange(1, 11, dtype=torch.float64)
    shares = shares / shares.sum()
    gram = torch.full((10, 10), -1 / 9, dtype=torch.float64).fill_diagonal_(1.0)
    at = class_risk(shares, loss=loss, num_negatives=k, supervised=True).at(gram)

    def definition(a: Tensor) -> Tensor:
        return oracle.risk(a, shares.tolist(), psi, k, supervised=True)

    gram.requires_grad_()
    value = definition(gram)
    gradient = between(torch.autograd.grad(value, gram)[0])
    assert at.value == pytest.approx(float(value.detach()), rel=1e-11, abs=0.0)
    assert at.gradient_CC.flatten().tolist() == pytest.approx(gradient.flatten().tolist(), rel=1e-11, abs=0.0)


@each_pool
@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_infinitely_many_negatives_are_eq_10(tau: float, supervised: bool) -> None:
    gram = gram_of(seed=4)
    loss = losses.GeneralizedContrastive(supervised=supervised, temperature=tau)

    def definition(a: Tensor) -> Tensor:
        full = torch.where(torch.eye(3, dtype=torch.bool), 1.0, a)
        return oracle.infinite(full, PROPORTIONS, tau, supervised)

    at = class_risk(SHARES, loss=loss).at(gram)
    assert_is(at, definition, gram)


@each_pool
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_the_limit_of_many_negatives_is_taken_less_a_logarithm(beta: float, epsilon: float, supervised: bool) -> None:
    """A sum over k negatives grows with log k; what is left tends to the closed form, with all derivatives."""
    loss = losses.HardNegatives(losses.InfoNCE(0.5, epsilon), beta)
    gram, change, k = gram_of(), direction_of(), 10**9
    limit = class_risk(SHARES, loss=loss, supervised=supervised).at(gram)
    finite = class_risk(SHARES, loss=loss, num_negatives=k, supervised=supervised).at(gram)
    assert finite.value - math.log(k) == pytest.approx(limit.value, abs=1e-6)
    for ours, theirs in (
        (finite.gradient_CC, limit.gradient_CC),
        (finite.curvature(change), limit.curvature(change)),
        (finite.curvature_diagonal_CC, limit.curvature_diagonal_CC),
        (finite.own_slope_C, limit.own_slope_C),
    ):
        assert torch.allclose(ours, theirs, atol=1e-6, rtol=0)


def test_a_plain_sum_of_infinitely_many_is_taken_per_negative() -> None:
    gram = gram_of()
    for loss in (losses.Triplet(), losses.SigmoidPair(5.0, -2.0)):
        finite = class_risk(SHARES, loss=loss, num_negatives=10**9).value(gram) / 1e9
        assert class_risk(SHARES, loss=loss).value(gram) == pytest.approx(finite, rel=1e-6)


@pytest.mark.parametrize(
    ("k", "supervised", "optimum"),
    [
        (1, False, -0.6578),
        (512, False, -0.6265),
        (math.inf, False, -0.6264),
        (1, True, -0.7092),
        (512, True, -0.6860),
        (math.inf, True, -0.6859),
    ],
)
def test_the_isosceles_triangle_of_section_7_1(k: float, supervised: bool, optimum: float) -> None:
    """One majority of one half and two equal minorities: the least S over the family of Lemma 8, b = 2 a^2 - 1."""
    risk = class_risk(torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64), num_negatives=k, supervised=supervised)

    def along(a: float) -> float:
        b = 2 * a * a - 1
        return risk.value(torch.tensor([[1.0, a, a], [a, 1.0, b], [a, b, 1.0]], dtype=torch.float64))

    best = minimize_scalar(along, bounds=(-0.99, -0.3), method="bounded", options={"xatol": 1e-10})
    assert best.x == pytest.approx(optimum, abs=6e-5)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**20), k=st.sampled_from([1, 3, 20, math.inf]), supervised=st.booleans())
def test_convex_risks_have_no_negative_curvature(seed: int, k: float, supervised: bool) -> None:
    size = 2 + seed % 4
    shares = torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.05
    gram, change = gram_of(size, seed), direction_of(size, seed + 1)
    for name in ("paper", "infonce", "dcl", "triplet", "mio-v1", "sigmoid", "spectral"):
        risk = class_risk(shares / shares.sum(), loss=CASES[name].loss, num_negatives=k, supervised=supervised)
        curvature = float((change * risk.at(gram).curvature(change)).sum())
        assert risk.is_convex
        assert curvature >= -1e-10
        assert curvature > 0 or not risk.is_strictly_convex


@given(seed=st.integers(0, 2**20), beta=st.floats(0.01, 4), k=st.sampled_from([1, 5, 300, math.inf]))
@pytest.mark.thorough
def test_hard_negatives_risk_at_least_what_the_plain_loss_does(seed: int, beta: float, k: float) -> None:
    gram = gram_of(3, seed)
    risk = class_risk(SHARES, loss=losses.HardNegatives(losses.InfoNCE(0.5), beta), num_negatives=k)
    assert not risk.is_convex
    assert risk.lower is not None
    assert risk.lower.is_convex
    assert risk.lower.value(gram) == class_risk(SHARES, loss=losses.InfoNCE(0.5), num_negatives=k).value(gram)
    assert risk.value(gram) >= risk.lower.value(gram) - 1e-12


@given(seed=st.integers(0, 2**20), width=st.floats(1e-4, 1.0), margin=st.floats(-0.5, 2.0))
def test_a_smoothed_triplet_is_above_by_at_most_its_slack(seed: int, width: float, margin: float) -> None:
    gram = gram_of(3, seed)
    risk = class_risk(SHARES, loss=losses.Triplet(margin), num_negatives=4)
    smooth, slack = risk.smoothed(width)
    assert not risk.is_smooth
    assert smooth.is_smooth
    assert risk.value(gram) - 1e-12 <= smooth.value(gram) <= risk.value(gram) + slack + 1e-12
    assert slack == pytest.approx(4 * 3 * width / 16, rel=1e-12)


def test_the_smooth_hinge_has_the_derivatives_it_says() -> None:
    u = torch.linspace(-1, 1, 41, dtype=torch.float64, requires_grad=True)
    hinge = smooth_hinge(0.4)
    (slope,) = torch.autograd.grad(hinge.value(u).sum(), u, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), u)
    assert_numbers(hinge.slope(u), slope)
    assert_numbers(hinge.curvature(u), curvature)


@pytest.mark.parametrize(
    ("name", "k", "supervised", "is_strict"),
    [
        ("paper", 1, True, True),
        ("dcl", 1, False, False),  # one gap alone: the logarithm is linear
        ("dcl", 2, False, True),
        ("dcl", 2, True, False),  # all gaps of an anchor may move together
        ("infonce", math.inf, True, False),  # epsilon is lost
        ("triplet", 3, False, False),
        ("linear-triplet", 3, False, False),
        ("mio-v2", 3, True, True),
    ],
)
def test_it_says_whether_the_minimiser_is_unique(name: str, k: float, supervised: bool, is_strict: bool) -> None:
    risk = class_risk(SHARES, loss=CASES[name].loss, num_negatives=k, supervised=supervised)
    assert risk.is_strictly_convex == is_strict
    change = torch.ones(3, 3, dtype=torch.float64).fill_diagonal_(0.0)
    flat = float((change * risk.at(gram_of()).curvature(change)).sum())
    assert is_strict == (flat > 1e-9)


@pytest.mark.parametrize("supervised", [False, True])
def test_weights_of_negatives(supervised: bool) -> None:
    assert_numbers(negative_weights(SHARES, supervised=supervised), oracle.negatives_of(PROPORTIONS, supervised))


@pytest.mark.parametrize(
    "k", [0, -1, 0.5, 2.5, math.nan, -math.inf, True, "8", 1e300, 2**70, 10**400], ids="{!r:.12}".format
)
def test_a_number_of_negatives_that_is_none(k: object) -> None:
    with pytest.raises(UsageError, match=r"num_negatives must be a whole number >= 1 and < 2\*\*63, or math\.inf, got"):
        class_risk(SHARES, num_negatives=k)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.5], r"anchor_weights must be one per class, shape \(3,\), got \(2,\)"),
        ([0.5, 0.6, -0.1], "anchor_weights must be >= 0, finite and not all 0"),
        ([0.0, 0.0, 0.0], "anchor_weights must be >= 0, finite and not all 0"),
    ],
)
def test_bad_anchor_weights(weights: list[float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        class_risk(SHARES, anchor_weights=torch.tensor(weights))


@pytest.mark.parametrize(
    ("gram", "error", "message"),
    [
        (torch.eye(2), UsageError, r"gram must have shape \(3, 3\), one row per class, got \(2, 2\)"),
        (torch.full((3, 3), math.nan), NonFiniteError, "gram must be finite"),
        (torch.tensor([[1.0, 0.1, 0.0], [0.2, 1.0, 0.0], [0.0, 0.0, 1.0]]), UsageError, "gram must be symmetric"),
    ],
)
def test_bad_gram_matrices(gram: Tensor, error: type[Exception], message: str) -> None:
    for ask in (class_risk(SHARES).value, class_risk(SHARES).at):
        with pytest.raises(error, match=message):
            ask(gram)


@pytest.mark.parametrize(
    ("proportions", "message"),
    [
        ([2, 1, 1], r"proportions must sum to 1, got 4; divided by their sum they are 0\.5, 0\.25, 0\.25"),
        ([1.5, -0.5], r"proportions must be > 0, got -0\.5; leave out classes that do not occur"),
        ([1.0], "proportions must be one per class for at least 2 classes, got 1"),
        ([0.5, math.nan], "proportions must be finite, got 0.5, nan"),
        (torch.tensor([0.5 + 0.1j, 0.5]), "proportions must be real numbers, one per class"),
        ([[0.5], [0.2, 0.3]], "proportions must be real numbers, one per class"),
    ],
)
def test_what_is_no_proportions(proportions: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        class_risk(proportions)


@pytest.mark.parametrize(
    "proportions",
    [
        PROPORTIONS,
        tuple(PROPORTIONS),
        [Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)],
        np.sort(PROPORTIONS)[::-1],
        np.array([PROPORTIONS, PROPORTIONS]).T[:, 0],
        SHARES.clone().requires_grad_(),
    ],
    ids=["list", "tuple", "fractions", "reversed", "strided", "leaf"],
)
def test_proportions_may_come_as_they_are(proportions: Any) -> None:
    risk = class_risk(proportions, num_negatives=2)
    assert risk.value(gram_of()) == pytest.approx(class_risk(SHARES, num_negatives=2).value(gram_of()), rel=1e-15)


def test_a_temperature_whose_terms_leave_float64() -> None:
    with pytest.raises(UsageError, match=r"temperature must be at least 0\.00294"):
        class_risk(SHARES, loss=losses.DCL(1e-3), num_negatives=4)
    assert math.isfinite(class_risk(SHARES, loss=losses.InfoNCE(1e-3), num_negatives=4).value(gram_of()))
    assert math.isfinite(class_risk(SHARES, loss=losses.DCL(1e-3)).value(gram_of()))
