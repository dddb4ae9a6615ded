"""Corollary 3 and Remark 2 of imbalanced2026 need positives that are independent of the anchor given its class.

Lemma 1 bounds L(f) by G at the means of f itself, which may be shorter than 1; Eq. 11 minimises G over unit means only.
Where every sample is its own positive, features that spread over a simplex of all samples therefore beat S(A*).
"""

import math

import pytest
import torch

from counterpoint.theory.geometry.class_risk import class_risk
from oracles import collapse_oracle

LEAST = math.log(1 + (1 + math.exp(-2)) / 2)  # S(A*) of two equal classes at opposite vectors, k infinite


def test_the_least_class_level_risk_of_two_equal_classes() -> None:
    risk = class_risk(torch.full((2,), 0.5, dtype=torch.float64))
    assert risk.value(torch.tensor([[1.0, -1.0], [-1.0, 1.0]])) == pytest.approx(LEAST, rel=1e-14)
    assert pytest.approx(0.4496, abs=5e-5) == LEAST


@pytest.mark.parametrize("per_class", [4, 16, 64])
def test_spread_classes_beat_the_collapsed_ones_where_samples_are_their_own_positives(per_class: int) -> None:
    features = collapse_oracle.simplex(2 * per_class)
    spread = collapse_oracle.same_view_risk(features)
    n = 2 * per_class
    assert spread == pytest.approx(math.log(1 + 1 / n + (n - 1) / n * math.exp(-1 - 1 / (n - 1))), rel=1e-12)
    assert spread < LEAST - 0.07
    collapsed = [[1.0]] * per_class + [[-1.0]] * per_class
    assert collapse_oracle.same_view_risk(collapsed) == pytest.approx(LEAST, rel=1e-12)


def test_spreading_nears_the_logarithm_of_one_and_an_inverse_e() -> None:
    limit = math.log(1 + math.exp(-1))
    assert limit == pytest.approx(0.3133, abs=5e-5)
    gaps = [collapse_oracle.same_view_risk(collapse_oracle.simplex(n)) - limit for n in (32, 128)]
    assert 0 < gaps[1] < gaps[0] / 3.5


def test_lemma_one_itself_holds_at_the_spread_classes_own_short_means() -> None:
    """G(M) of Eq. 10 at the two class means, each of squared length 1/m - (m-1)/(m (2m-1)) = 1/(2m-1)."""
    per_class = 16
    square = 1 / (2 * per_class - 1)
    bound = math.log(1 + (math.exp(square - 1) + math.exp(-square - 1)) / 2)
    assert bound < collapse_oracle.same_view_risk(collapse_oracle.simplex(2 * per_class)) < LEAST


@pytest.mark.parametrize("per_class", [2, 8, 16])
def test_independent_positives_make_spreading_worse(per_class: int) -> None:
    labels = [0] * per_class + [1] * per_class
    spread = collapse_oracle.independent_view_risk(collapse_oracle.simplex(2 * per_class), labels)
    collapsed = collapse_oracle.independent_view_risk([[1.0]] * per_class + [[-1.0]] * per_class, labels)
    assert collapsed == pytest.approx(LEAST, rel=1e-12)
    assert spread > LEAST + 0.1


def test_with_independent_positives_a_class_gains_length_and_risks_less() -> None:
    """The bound then has -|mu_i|^2 for -1: a component orthogonal to all means lowers it, so unit means are optimal."""

    def bound(length: float) -> float:  # two opposite means of squared length a: gaps 0 and -2a
        return math.log(1 + (1 + math.exp(-2 * length)) / 2)

    assert bound(0.5) > bound(0.9) > bound(1.0) == pytest.approx(LEAST, rel=1e-14)
    risk = class_risk(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    assert float(risk.at(torch.eye(3, dtype=torch.float64)).own_slope_C.max()) < 0
