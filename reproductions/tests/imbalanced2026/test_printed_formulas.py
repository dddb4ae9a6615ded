"""The zero block of Theorem 2 of imbalanced2026, and what averages over pairs would make of its Eq. 20."""

import math
from collections.abc import Sequence

import pytest
import torch

from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry
from oracles import collapse_oracle
from oracles.number_checks import assert_numbers

SHARES = (0.5, 0.25, 0.25)


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
