"""Printed statements of imbalanced2026 beside what holds: thresholds, Theorem 2's zero block, averages over pairs."""

import math
from collections.abc import Sequence

import pytest
import torch

from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.theory.collapse.minority_collapse import collapse_threshold
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry
from oracles import collapse_oracle
from oracles.collapse_oracle import condition_18_by_counts
from oracles.number_checks import assert_numbers
from reproductions.imbalanced2026.stated_thresholds import corollary_6, corollary_7

SHARES = (0.5, 0.25, 0.25)


@pytest.mark.parametrize(("num_classes", "k"), [(3, 1), (3, 2), (3, 6), (4, 4), (5, 3)])
@pytest.mark.parametrize("share", [0.4, 0.7, 0.9292, 0.97])
def test_condition_18_is_what_all_labels_give(num_classes: int, k: int, share: float) -> None:
    expected = collapse_oracle.condition_18(share, num_classes, k)
    assert condition_18_by_counts(share, num_classes, k) == pytest.approx(expected, rel=1e-12)


def test_the_stated_thresholds() -> None:
    assert corollary_6(3) == pytest.approx(0.9292, abs=5e-5)
    assert corollary_7(3) == pytest.approx(0.9438, abs=5e-5)
    beta = 1 / (1 + 1 / (4 * 4 * (1 + 3 * math.exp(2))))  # main text
    assert corollary_6(3) == pytest.approx((1 - math.sqrt(1 - beta**2)) / beta, rel=1e-12)
    printed_in_appendix = 1 / (1 + 2 / (4 * 4 * (1 + 3 * math.exp(2))))
    assert (1 - math.sqrt(1 - printed_in_appendix**2)) / printed_in_appendix == pytest.approx(0.9014, abs=5e-5)
    assert all(corollary_6(c) < corollary_6(c - 1) for c in range(4, 20))  # "tau_C <= tau_3"


@pytest.mark.parametrize(("k", "expected"), [(1, 0.9438), (2, 0.9668), (5, 0.9842), (64, 0.9986), (512, 0.9998)])
def test_condition_18_first_holds_above_the_stated_threshold(k: int, expected: float) -> None:
    """Found on a grid of 2e-4; the condition holds at no share below, and at every share above."""
    first = expected - 2e-4
    assert corollary_6(3) < first
    above = [expected + 5e-5 + (1 - expected) * x for x in (0.0, 0.01, 0.3)]
    below = [first * x for x in (0.05, 0.5, 0.9, 1.0)]
    assert all(condition_18_by_counts(share, 3, k) < share for share in above)
    assert all(condition_18_by_counts(share, 3, k) > share for share in [*below, corollary_6(3)])


def test_the_true_threshold_is_below_what_corollary_6_states() -> None:
    for num_classes in (3, 10, 100):
        assert collapse_threshold(num_classes).share < corollary_6(num_classes)


def test_the_steps_of_corollary_6_lead_to_a_false_statement_at_another_temperature() -> None:
    """They give a share, at temperature 0.5, at which the risk along Lemma 8's curve still falls away from a = -1."""
    share, shares = corollary_6(3, temperature=0.5), None
    assert share == pytest.approx(0.9728, abs=5e-5)
    assert collapse_threshold(3, loss=GeneralizedContrastive(temperature=0.5)).share > share + 0.01
    shares = collapse_oracle.one_majority(share, 3)
    merged, apart = (
        collapse_oracle.risk(collapse_oracle.curve(a, 3), shares, math.inf, False, temperature=0.5)
        for a in (-1.0, -0.99)
    )
    assert apart < merged


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.2])
def test_the_supervised_condition_is_sufficient(temperature: float) -> None:
    loss = GeneralizedContrastive(temperature=temperature)
    assert collapse_threshold(3, loss=loss, supervised=True).share < corollary_7(3, temperature=temperature)


@pytest.mark.parametrize("k", [2, 4])
def test_equation_52_and_the_bound_on_it_in_the_proof_of_corollary_6(k: int) -> None:
    share = 0.9292
    probability = collapse_oracle.probability_of_event_1(share, 3, k)
    assert probability == pytest.approx(share * (1 - share**k) + (1 - share) * share**k, rel=1e-12)
    printed = share * (1 - share) ** k + (1 - share) * share**k
    assert abs(printed - probability) > 0.05
    assert probability > 2 * share * (1 - share)  # the proof needs the opposite


def test_the_other_step_in_the_proof_of_corollary_6() -> None:
    """It takes Pr(Bin(k, 1 - lambda_1) >= k/2) to be at least 1/2."""
    share, k = 0.9292, 64
    tail = sum(math.comb(k, n) * (1 - share) ** n * share ** (k - n) for n in range(k // 2, k + 1))
    assert tail < 1e-18


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_lipschitz_constant_of_infonce(k: int) -> None:
    """Delta_2 = 1 / (2 sqrt k), reached where all gaps are 0; the proof of Corollary 7 prints 1 / (2 sqrt 2)."""
    largest = math.hypot(*collapse_oracle.infonce_slope([0.0] * k))
    assert largest == pytest.approx(1 / (2 * math.sqrt(k)), rel=1e-14)
    assert math.hypot(*collapse_oracle.infonce_slope([-2.0] + [0.0] * (k - 1))) < largest


@pytest.mark.parametrize("dimension", [2, 3, 7])
def test_the_zero_block_of_theorem_2_fills_up_to_d(dimension: int) -> None:
    """M* is d x C: beside r columns stand d - r of zeros, none where d = r; the printed d - r + 1 is one too many."""
    geometry = optimal_geometry(list(SHARES), dimension=dimension)
    values_C, vectors_CC = torch.linalg.eigh(geometry.gram)
    rank = geometry.rank
    factor_CR = vectors_CC[:, -rank:] * values_C[-rank:].sqrt()
    right_CD, printed_CD = (
        torch.cat([factor_CR, torch.zeros(3, num_zeros).double()], dim=1)
        for num_zeros in (dimension - rank, dimension - rank + 1)
    )
    assert right_CD.T.shape == geometry.means.shape == (dimension, 3)
    assert float((right_CD @ right_CD.T - geometry.gram).abs().max()) < 1e-7
    assert len(printed_CD.T) == dimension + 1


def along_the_curve(weights: Sequence[float]) -> float:
    """Cosine of majority and minority that is best, k infinite, where class i has the weight w_i as an anchor."""

    def risk(a: float) -> float:
        gram = collapse_oracle.curve(a, 3)
        terms = [math.fsum(s * math.exp(x - 1) for s, x in zip(SHARES, row, strict=True)) for row in gram]
        return math.fsum(w * math.log(1 + term) for w, term in zip(weights, terms, strict=True))

    return collapse_oracle.least(risk, -0.99, -0.3)


def test_averaging_over_pairs_instead_of_anchors_moves_the_optimum() -> None:
    """Eq. 20 averages positives anchor by anchor; the code it descends from averages all pairs, n_c^2 of a class."""
    assert along_the_curve(SHARES) == pytest.approx(-0.6264, abs=5e-5)
    square = math.fsum(share**2 for share in SHARES)
    assert along_the_curve([share**2 / square for share in SHARES]) == pytest.approx(-0.7025, abs=5e-5)


def test_the_loss_of_eq_20_weighs_classes_by_their_anchors() -> None:
    """Twelve collapsed samples, 6 + 3 + 3: the mean over anchors, and not over the 36 + 9 + 9 pairs."""
    gram = torch.tensor(collapse_oracle.curve(-0.6, 3), dtype=torch.float64)
    values_C, vectors_CC = torch.linalg.eigh(gram)
    means_CD = vectors_CC * values_C.clamp(min=0).sqrt()
    labels = torch.tensor([0] * 6 + [1] * 3 + [2] * 3)
    z = means_CD[labels]
    own = [
        math.log(1 + math.fsum(s * math.exp(x - 1) for s, x in zip(SHARES, row, strict=True))) for row in gram.tolist()
    ]
    by_anchors = math.fsum(share * term for share, term in zip(SHARES, own, strict=True))
    by_pairs = math.fsum(n * term for n, term in zip((36, 9, 9), own, strict=True)) / 54
    assert_numbers(GeneralizedContrastive()(z, z, labels), by_anchors)
    assert abs(by_pairs - by_anchors) > 0.01
