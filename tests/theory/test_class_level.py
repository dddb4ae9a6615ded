"""What each loss says of whole classes, against the loss itself on batches of collapsed classes."""

# N samples, C classes, D features

import itertools
import math
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint import losses
from counterpoint.core.errors import UsageError
from counterpoint.kernels.contract import EXPONENTIAL, HINGE, IDENTITY, SOFTPLUS, SQUARE, PairFunction
from counterpoint.losses import CATALOGUE
from counterpoint.losses.build import build_loss
from counterpoint.losses.class_level import COVERED, LogOfSum, Separable
from counterpoint.losses.loss import Loss
from counterpoint.losses.pairs import LINEAR, Phi, Psi, log_plus
from counterpoint.theory.geometry.class_risk import class_risk
from oracles import class_risk_oracle as oracle
from oracles.number_checks import assert_numbers

PROPORTIONS = [0.5, 0.3, 0.2]
SHARES = torch.tensor(PROPORTIONS, dtype=torch.float64)
OPTIONS: dict[str, dict[str, Any]] = {
    "hard-negatives": {"loss": losses.InfoNCE()},
    "sparsity-penalty": {"loss": losses.InfoNCE()},
    "cross-entropy": {"num_classes": 3, "num_features": 4},
    "nonnegative-cross-entropy": {"num_classes": 3, "num_features": 4},
}
NOT_COVERED = {
    "alpha-cl": "its gradient, with alpha held fixed, is that of no function",
    "dclw": "the weights of its positives depend on the whole batch",
    "lifted-structured": r"phi = \[log x\]_\+\^2 is neither a sum nor the logarithm of one of exponentials",
    "modified-triplet": r"psi = sigmoid\(1 x\) is not convex",
    "multi-positive": "positives are summed inside its logarithm",
    "barlow-twins": "it compares features over the batch",
    "vicreg": "it compares features over the batch",
    "regression": "it has no negatives",
    "sigreg": "it compares the distribution of a batch",
    "visreg": "it compares the distribution of a batch",
    "rdmreg": "it compares the distribution of a batch",
    "cross-entropy": "it compares vectors with the weights of classes",
    "nonnegative-cross-entropy": "it compares vectors with the weights of classes",
    "sparsity-penalty": "its l1 norm depends on the axes",
}
AS_THEY_ARE = (
    losses.InfoNCE(normalize=False),
    losses.Triplet(normalize=False),
    losses.MIOv1(normalize=False),
    losses.SigmoidPair(normalize=False),
    losses.CrossModal(normalize=False),
    losses.SpectralContrastive(mu=None),
    losses.CrossModalSpectral(mu=None),
    losses.GeneralizedContrastive(normalize="none"),
)


def make(name: str) -> Loss:
    return build_loss(name, {}, OPTIONS.get(name, {}))


def means_of(num_classes: int = 3, dimension: int = 4) -> Tensor:
    """Unit class means."""
    generator = torch.Generator().manual_seed(5)
    return F.normalize(torch.randn(num_classes, dimension, generator=generator, dtype=torch.float64), dim=1)


def expected_over_batches(loss: Loss, n: int) -> float:
    """Mean of the loss over all batches of n collapsed samples, each labelled by the proportions; views agree."""
    means_CD, total = means_of(), 0.0
    for classes in itertools.product(range(3), repeat=n):
        z_ND = means_CD[list(classes)]
        labels = torch.tensor(classes) if loss.uses_labels else None
        probability = math.prod(PROPORTIONS[c] for c in classes)
        total += probability * float(loss(z_ND, z_ND.clone(), labels).detach())
    return total


@pytest.mark.parametrize(
    "loss",
    [
        losses.InfoNCE(0.3, negatives="cross-view"),
        losses.InfoNCE(0.3, 2.0, negatives="same-view"),
        losses.DCL(0.4, negatives="cross-view"),
        losses.MINE(negatives="cross-view"),
        losses.NPlusOneTuplet(negatives="cross-view"),
        losses.SoftTriplet(0.5, 0.3, negatives="cross-view"),
        losses.Triplet(1.2, negatives="cross-view"),
        losses.LinearTriplet(negatives="cross-view"),
        losses.PairLoss(torch.log1p, torch.exp, pairing=losses.Pairing("cross-view")),
        losses.HardNegatives(losses.InfoNCE(0.5, negatives="cross-view"), 1.5),
        losses.CrossModal(0.3, learnable_temperature=False),
        losses.SigmoidPair(4.0, -1.0, learnable=False),
        losses.MIOv1(0.4),
        losses.MIOv2(0.4),
        losses.MIOv3(0.4),
        losses.SpectralContrastive(),
        losses.SpectralContrastive(0.7),
        losses.CrossModalSpectral(),
    ],
    ids=lambda loss: loss.card.name,
)
@pytest.mark.sampled(2)
def test_the_expected_loss_of_a_batch_of_n_is_the_risk_with_n_less_one_negatives(loss: Loss) -> None:
    means_CD = means_of()
    for n in (2, 4):
        risk = class_risk(SHARES, loss=loss, num_negatives=n - 1)
        assert risk.value(means_CD @ means_CD.T) == pytest.approx(expected_over_batches(loss, n), rel=1e-10)


@pytest.mark.parametrize("loss", [losses.InfoNCE(0.3), losses.SupCon(0.3)], ids=["InfoNCE", "SupCon"])
def test_two_views_are_two_equal_negatives(loss: Loss) -> None:
    """A batch of n has 2n - 2 negatives in n - 1 pairs of one class: the risk of k = n - 1 with each term twice."""
    means_CD = means_of()
    twice = oracle.log_of_sum(0.3, margin=math.log(2))
    expected = oracle.risk(means_CD @ means_CD.T, PROPORTIONS, twice, 2, supervised=False)
    assert expected_over_batches(loss, 3) == pytest.approx(float(expected), rel=1e-10)
    same = class_risk(SHARES, loss=losses.SoftTriplet(0.3, math.log(2)), num_negatives=2)
    assert same.value(means_CD @ means_CD.T) / 0.3 == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize("supervised", [False, True], ids=["UCL", "SCL"])
@pytest.mark.parametrize("lengths", ["sphere", "ball"])
def test_the_generalised_loss_of_collapsed_classes_is_the_risk_itself(supervised: bool, lengths: Any) -> None:
    means_CD, labels = means_of(), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    loss = losses.GeneralizedContrastive(None, supervised, lengths, temperature=0.4)
    value = loss(means_CD[labels], means_CD[labels], labels)
    assert_numbers(class_risk(SHARES, loss=loss).value(means_CD @ means_CD.T), float(value))


def test_drawn_negatives_estimate_the_risk_of_their_number() -> None:
    means_CD, labels = means_of(), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    loss = losses.GeneralizedContrastive(3, temperature=0.4)
    z_ND = means_CD[labels]
    values = torch.stack([loss(z_ND, z_ND, labels, step=step) for step in range(400)])
    error = float(values.std()) / math.sqrt(len(values))
    risk = class_risk(SHARES, loss=loss)  # its own number of negatives
    assert abs(float(values.mean()) - risk.value(means_CD @ means_CD.T)) < 5 * error
    assert risk.value(means_CD @ means_CD.T) < class_risk(SHARES, loss=loss, num_negatives=math.inf).value(
        means_CD @ means_CD.T
    )


@pytest.mark.parametrize("loss", [losses.InfoNCE(0.4), losses.Triplet(0.8), losses.SoftTriplet()])
def test_lemma_1_no_spread_encoder_does_better_than_its_class_means(loss: Loss) -> None:
    """Random vectors in the ball, positives independent given the class: the bound of Lemma 1 with -|mu_i|^2 for -1."""
    generator = torch.Generator().manual_seed(2)
    z_CND = F.normalize(means_of()[:, None] + 0.5 * torch.randn(3, 4, 4, generator=generator).double(), dim=2)
    record, mean_CD = loss.class_level(), z_CND.mean(1)
    gap = z_CND.flatten(0, 1) @ z_CND.flatten(0, 1).T
    risk, bound = 0.0, 0.0
    for i, j in itertools.product(range(3), repeat=2):  # one negative
        weight = PROPORTIONS[i] * PROPORTIONS[j]
        product = (
            gap[4 * i : 4 * i + 4, 4 * j : 4 * j + 4][:, :, None] - gap[4 * i : 4 * i + 4, 4 * i : 4 * i + 4][:, None]
        )
        risk += weight * float(one_negative(record, product).mean())
        bound += weight * float(one_negative(record, mean_CD[i] @ mean_CD[j] - mean_CD[i] @ mean_CD[i]))
    longer = mean_CD @ mean_CD.T
    longer.fill_diagonal_(1.0)
    assert class_risk(SHARES, loss=loss, num_negatives=1).value(longer) <= bound <= risk


def one_negative(record: LogOfSum | Separable, gap: Tensor) -> Tensor:
    """The loss of one negative, from a record."""
    u = record.scale * gap + record.margin
    if isinstance(record, Separable):
        return record.factor * record.repel.value(u)
    return record.factor * torch.log(record.epsilon + torch.exp(u))


def test_orthogonal_classes_are_best_for_the_spectral_loss() -> None:
    at = class_risk(SHARES, loss=losses.SpectralContrastive()).at(torch.eye(3))
    assert_numbers(at.gradient_CC, torch.zeros(3, 3))
    assert at.value == pytest.approx(-2 + sum(p * p for p in PROPORTIONS), rel=1e-14)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_loss_is_covered_or_says_why_not(name: str) -> None:
    loss = make(name)
    if name not in NOT_COVERED:
        record = loss.class_level()
        assert isinstance(record, LogOfSum | Separable)
        assert record.name == loss.card.name
        assert loss.card.name.partition("(")[0] in COVERED
        assert math.isfinite(class_risk(SHARES, loss=loss, num_negatives=4).value(torch.eye(3)))
        return
    message = rf"^{name_of(loss)} has no class-level risk: {NOT_COVERED[name]}.*; covered are InfoNCE, DCL"
    with pytest.raises(UsageError, match=message):
        class_risk(SHARES, loss=loss)


def name_of(loss: Loss) -> str:
    """The card's name as a pattern."""
    return loss.card.name.replace("(", r"\(").replace(")", r"\)")


KNOWN = (EXPONENTIAL, SOFTPLUS, HINGE, IDENTITY)
SOFT, MINUS_LOG = Psi(SOFTPLUS, "softplus"), log_plus(1.0, factor=-2.0)
REFUSED = [
    (losses.CrossModal(nonnegative=True), "its ReLU allows no negative entry"),
    (losses.HardNegatives(losses.LiftedStructured()), ".*neither"),
    (losses.PairLoss(torch.sqrt, torch.exp), "phi = sqrt is neither a sum nor the logarithm"),
    (losses.PairLoss(LINEAR, torch.sigmoid), "psi = sigmoid is not convex, or not known to be"),
    # That the mean of a gap is at least a_ij - 1 bounds nothing from below where psi falls.
    (losses.PairLoss(LINEAR, Psi(SQUARE, "x^2")), r"psi = x\^2 is not increasing"),
    *(
        (losses.PairLoss(LINEAR, Psi(f, f.name, scale=-1.0)), f"psi = {f.name} is not increasing, or not known to be")
        for f in KNOWN
    ),
    (losses.PairLoss(Phi(torch.neg, "-x", is_linear=True), SOFT), "phi = -x is not increasing"),
    (losses.PairLoss(Phi(lambda x: 0 * x, "0 x", is_linear=True), SOFT), "phi = 0 x is not increasing"),
    (losses.PairLoss(MINUS_LOG, Psi(EXPONENTIAL, "exp(x)")), f"phi = {re.escape(MINUS_LOG.formula)} is not increasing"),
    *((loss, r"its vectors have no fixed length \(") for loss in AS_THEY_ARE),
]


@pytest.mark.parametrize(("loss", "words"), REFUSED)
def test_losses_without_a_bound_are_refused(loss: Loss, words: str) -> None:
    inner = loss.loss if isinstance(loss, losses.HardNegatives) else loss
    with pytest.raises(UsageError, match=f"{inner.card.name.partition('(')[0]}.* has no class-level risk: {words}"):
        loss.class_level()


@pytest.mark.parametrize("function", KNOWN, ids=lambda function: function.name)
def test_known_functions_are_known_to_increase(function: PairFunction) -> None:
    assert isinstance(losses.PairLoss(LINEAR, Psi(function, function.name)).class_level(), Separable)


def test_a_users_own_function_is_covered_where_it_is_said_to_be_convex_and_increasing() -> None:
    own = losses.PairLoss(LINEAR, torch.nn.functional.softplus)
    said = Psi(own.psi.function, "log(1 + e^x)", scale=2.0, is_convex=True, is_increasing=True)
    record = losses.PairLoss(LINEAR, said).class_level()
    assert isinstance(record, Separable)
    assert record.is_gap
    assert record.scale == 2.0
    assert not record.is_strictly_convex  # it may be: nobody said so
