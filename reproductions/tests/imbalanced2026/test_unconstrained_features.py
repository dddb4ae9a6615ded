"""Free features trained with our losses end where theory says, for every loss that theory covers.

Known answers: imbalanced2026's two settings at k = 512 (checked against its Eq. 14 apart from this package), the energy
of the uniform distribution on a circle, and geometries that symmetry fixes.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

from counterpoint.core.errors import UsageError
from counterpoint.losses import CrossModalSpectral, GeneralizedContrastive, InfoNCE, MIOv1, SpectralContrastive, Triplet
from counterpoint.losses.loss import Loss
from reproductions.imbalanced2026.feature_training import (
    FeatureTraining,
    Lengths,
    class_partners,
    epoch_batches,
    whole_samples,
)
from reproductions.imbalanced2026.unconstrained_features import (
    FeatureSimulation,
    class_means,
    simulate_features,
    within_class_variance,
)

PAPER = (0.5, 0.25, 0.25)
SMALL = FeatureTraining(num_samples=40, epochs=200)
# imbalanced2026 at k = 512: cosines (majority, minority) and (minority, minority)
UCL, SCL = (-0.6265, -0.2151), (-0.6860, -0.0588)
TOLERANCE = 0.01


def corner(made: FeatureSimulation) -> list[float]:
    return [float(made.gram[0, 1]), float(made.gram[0, 2]), float(made.gram[1, 2])]


# --- the optimum is reached


@pytest.mark.parametrize(("supervised", "known"), [(False, UCL), (True, SCL)], ids=["UCL", "SCL"])
@pytest.mark.thorough
def test_the_papers_loss_collapses_classes_onto_the_optimal_geometry(
    supervised: bool, known: tuple[float, float]
) -> None:
    made = simulate_features(PAPER, num_negatives=512, supervised=supervised, training=SMALL)
    majority, minorities = known
    assert corner(made) == pytest.approx([majority, majority, minorities], abs=TOLERANCE)
    assert made.deviation < TOLERANCE
    assert made.variance < 1e-4
    assert made.cosines.diagonal().tolist() == pytest.approx([1.0] * 3, abs=1e-12)


@pytest.mark.parametrize("lengths", ["sphere", "ball"])
@pytest.mark.thorough
def test_with_all_negatives_the_loss_ends_at_the_risk_of_the_optimum(lengths) -> None:
    made = simulate_features(PAPER, training=FeatureTraining(num_samples=40, lengths=lengths))
    assert made.deviation < 1e-3
    assert made.loss == pytest.approx(made.optimum.risk, abs=1e-6)
    assert made.excess_risk == pytest.approx(0.0, abs=1e-6)


@pytest.mark.thorough
def test_balanced_classes_form_a_simplex() -> None:
    made = simulate_features([0.2] * 5, supervised=True, training=SMALL)
    off_diagonal = made.gram[~torch.eye(5, dtype=torch.bool)]
    assert float((off_diagonal + 0.25).abs().max()) < 1e-3  # -1 / (C - 1)


@pytest.mark.thorough
def test_heavy_imbalance_merges_the_minorities_opposite_the_majority() -> None:
    made = simulate_features([0.9, 0.05, 0.05], supervised=True, training=SMALL)
    assert corner(made) == pytest.approx([-1.0, -1.0, 1.0], abs=1e-3)
    assert torch.bincount(made.labels).tolist() == [36, 2, 2]


@pytest.mark.thorough
def test_stratified_batches_are_as_good_as_all_samples_at_once() -> None:
    made = simulate_features(PAPER, training=FeatureTraining(num_samples=40, epochs=60, batch_size=16))
    assert made.deviation < TOLERANCE
    assert made.variance < 1e-3
    assert [record.step for record in made.history[:3]] == [0, 3, 6]
    assert made.history[-1].step == 180  # 3 batches of 13 or 14


# --- other losses


@pytest.mark.thorough
def test_infonce_as_it_trains_agrees_with_its_own_geometry() -> None:
    training = FeatureTraining(num_samples=120, epochs=400)
    made = simulate_features(PAPER, loss=InfoNCE(temperature=0.5), num_negatives=119, dimension=2, training=training)
    assert made.deviation < TOLERANCE
    assert abs(float(made.optimum.gram[1, 2]) - UCL[1]) > 0.1  # another geometry than the paper's loss has
    assert made.variance < 0.01


@pytest.mark.parametrize(
    ("make", "mu", "lengths"),
    [(SpectralContrastive, 0.5, "ball"), (SpectralContrastive, 1.5, "sphere"), (CrossModalSpectral, 1.5, "ball")],
)
@pytest.mark.thorough
def test_spectral_losses_train_at_their_own_radius(make: type[Loss], mu: float, lengths: Lengths) -> None:
    training = FeatureTraining(num_samples=40, epochs=400, lengths=lengths)
    made = simulate_features(PAPER, loss=make(mu=mu), training=training)
    assert float((made.gram - torch.eye(3)).abs().max()) < 1e-3  # orthogonal, of length sqrt(mu)
    alike = (20 * 19 + 2 * 10 * 9) / (40 * 39)  # negatives of the own class, the anchor not among them
    assert made.loss == pytest.approx(-2 * mu + mu**2 * alike, abs=1e-4)
    assert made.risk == pytest.approx(-2 * mu + mu**2 * 0.375, abs=1e-4)


@pytest.mark.thorough
def test_a_large_radius_makes_a_class_spread_below_its_own_risk() -> None:
    made = simulate_features(PAPER, loss=SpectralContrastive(mu=4.0), training=SMALL)
    assert not made.optimum.is_collapse_optimal
    assert made.optimum.risk == pytest.approx(-2.0, abs=1e-6)  # -2 mu + mu^2 sum p^2
    assert made.loss < made.optimum.risk - 0.1


def test_where_theory_denies_collapse_classes_spread_below_the_class_level_risk() -> None:
    spread = simulate_features(PAPER, loss=MIOv1(temperature=0.5), training=SMALL)
    assert not spread.optimum.is_collapse_optimal
    assert spread.variance > 0.1
    # The risk of these features, positives and negatives being drawn independently from them: softplus at 1 / tau = 2.
    scores = 2.0 * spread.features @ spread.features.T
    is_same = (spread.labels[:, None] == spread.labels).double()
    attraction = (softplus(-scores) * is_same).sum(1) / is_same.sum(1)
    risk = float(attraction.mean() + softplus(scores).mean())
    assert risk < spread.optimum.lower_bound - 0.01
    assert "stay apart" in str(spread)


@pytest.mark.thorough
def test_where_theory_expects_collapse_of_the_same_loss_classes_collapse() -> None:
    collapsed = simulate_features(PAPER, loss=MIOv1(temperature=2.0), training=SMALL)
    assert collapsed.optimum.is_collapse_optimal
    assert collapsed.variance < 1e-6
    assert collapsed.deviation < 1e-3


@pytest.mark.thorough
def test_a_hinge_has_many_optima_and_training_finds_one_of_them() -> None:
    made = simulate_features(PAPER, loss=Triplet(), num_negatives=39, training=SMALL)
    assert made.excess_risk == pytest.approx(0.0, abs=1e-3 * abs(made.optimum.risk))


@pytest.mark.thorough
def test_positives_that_depend_on_the_anchor_undercut_the_class_level_minimum() -> None:
    # Instance discrimination: uniform on the circle, E e^cos = I0(1). Lemma 1 bounds it by means inside the ball only.
    training = FeatureTraining(num_samples=80, positives="itself")
    made = simulate_features(PAPER, dimension=2, training=training)
    bessel = sum(0.25**m / math.factorial(m) ** 2 for m in range(12))
    assert made.loss == pytest.approx(math.log1p(bessel / math.e), abs=1e-4)
    assert made.loss < made.optimum.lower_bound - 0.02
    assert made.variance > 0.5
    assert "no class-level theory applies" in str(made)


# --- what the record says


def test_history_runs_from_random_vectors_to_the_end() -> None:
    made = simulate_features(PAPER, training=SMALL)
    first, last = made.history[0], made.history[-1]
    assert first.step == 0
    assert first.variance > 0.5
    assert (last.step, last.variance, last.deviation) == (200, made.variance, made.deviation)
    assert first.loss > last.loss
    assert made.deviation == pytest.approx(float((made.gram - made.optimum.gram).abs().max()), abs=1e-12)


def test_features_are_a_function_of_the_seed_alone() -> None:
    training = FeatureTraining(num_samples=12, epochs=5)
    before = torch.random.get_rng_state()
    first, again = (simulate_features(PAPER, num_negatives=8, training=training) for _ in range(2))
    other = simulate_features(PAPER, num_negatives=8, training=FeatureTraining(num_samples=12, epochs=5, seed=1))
    assert torch.equal(first.features, again.features)
    assert not torch.equal(first.features, other.features)
    assert torch.equal(before, torch.random.get_rng_state())


# --- parts


def loop_means(features: Tensor, labels: Tensor) -> list[list[float]]:
    means = []
    for label in sorted(set(labels.tolist())):
        rows = [features[i].tolist() for i in range(len(labels)) if labels[i] == label]
        means.append([sum(column) / len(rows) for column in zip(*rows, strict=True)])
    return means


def test_means_and_variance_are_those_of_loops() -> None:
    features = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 2, 1, 0, 0, 2, 1, 2, 2])
    means = loop_means(features, labels)
    squares = [
        sum((a - b) ** 2 for a, b in zip(features[i].tolist(), means[int(labels[i])], strict=True)) for i in range(9)
    ]
    assert class_means(features, labels).flatten().tolist() == pytest.approx(
        [value for mean in means for value in mean], abs=1e-12
    )
    assert within_class_variance(features, labels) == pytest.approx(sum(squares) / 9, abs=1e-12)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=8), st.integers(4, 500))
def test_whole_samples_sum_up_and_are_nearest(weights: list[int], num_samples: int) -> None:
    shares = [weight / sum(weights) for weight in weights]
    counts = whole_samples(shares, num_samples)
    assert sum(counts) == num_samples
    assert all(abs(count - share * num_samples) < 1 for count, share in zip(counts, shares, strict=True))


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.integers(0, 99))
def test_partners_are_a_permutation_within_classes(labels: list[int], seed: int) -> None:
    labels_B = torch.tensor(labels)
    partner_B = class_partners(labels_B, torch.Generator().manual_seed(seed))
    assert sorted(partner_B.tolist()) == list(range(len(labels)))
    assert labels_B[partner_B].tolist() == labels


def test_every_member_of_a_class_is_as_often_a_partner() -> None:
    labels_B, generator = torch.tensor([1, 0, 1, 1, 0]), torch.Generator().manual_seed(0)
    draws = torch.stack([class_partners(labels_B, generator) for _ in range(3000)])
    share = [(draws[:, 0] == place).double().mean().item() for place in (0, 2, 3)]
    assert share == pytest.approx([1 / 3] * 3, abs=5 * math.sqrt(2 / 9 / 3000))


@pytest.mark.parametrize("is_stratified", [True, False])
def test_batches_hold_every_sample_once_and_differ_between_epochs(is_stratified: bool) -> None:
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([20, 10, 10]))
    training = FeatureTraining(num_samples=40, batch_size=12, is_stratified=is_stratified)
    first, again, second = (epoch_batches(labels, training, epoch) for epoch in (0, 0, 1))
    assert sorted(torch.cat(first).tolist()) == list(range(40))
    assert [len(batch) for batch in first] == [10] * 4
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(torch.cat(first), torch.cat(second))
    shares = [torch.bincount(labels[batch], minlength=3).tolist() for batch in first]
    is_even = all(abs(n - 10 * p) <= 1 for row in shares for n, p in zip(row, PAPER, strict=True))
    assert is_even == is_stratified


def test_no_batch_has_a_single_sample() -> None:
    training = FeatureTraining(num_samples=5, batch_size=2)
    sizes = [len(batch) for batch in epoch_batches(torch.tensor([0, 0, 0, 1, 1]), training, 0)]
    assert sizes == [3, 2]


# --- refusals


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"proportions": [0.5, 0.6]}, "proportions must sum to 1"),
        ({"dimension": "wide"}, "dimension must be a whole number >= 2, got 'wide'"),
        ({"proportions": [0.99, 0.01]}, r"num_samples must leave every class a sample, got 40, .* use 100 or more"),
        ({"loss": InfoNCE(), "supervised": True}, "supervised goes with loss=None, got InfoNCE"),
    ],
)
def test_refuses_what_cannot_be_simulated(named: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        simulate_features(**{"proportions": PAPER, "training": SMALL, **named})


def test_supervised_needs_positives_of_the_class() -> None:
    with pytest.raises(UsageError, match="supervised needs labels"):
        simulate_features(PAPER, supervised=True, training=FeatureTraining(positives="itself"))


def test_a_given_loss_brings_its_own_setting() -> None:
    training = FeatureTraining(num_samples=12, epochs=3)
    given_loss = simulate_features(PAPER, loss=GeneralizedContrastive(supervised=True), training=training)
    asked = simulate_features(PAPER, supervised=True, training=training)
    assert torch.equal(given_loss.features, asked.features)
    assert float((given_loss.optimum.gram - asked.optimum.gram).abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"epochs": 1.5}, "epochs must be a whole number >= 1, got 1.5; 300 is common"),
        ({"batch_size": 1}, "batch_size must be a whole number from 2 to num_samples, 200, got 1"),
        ({"learning_rate": 0}, "learning_rate must be > 0, got 0"),
        ({"lengths": "cube"}, "lengths must be one of sphere, ball, got 'cube'"),
    ],
)
def test_refuses_training_that_makes_no_sense(named: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureTraining(**named)
