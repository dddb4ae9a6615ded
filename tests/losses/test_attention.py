"""Streaming attention against the entropy of the dense importance, and what the numbers mean."""

# N samples per view, A anchors

import math

import pytest
import torch
from loss_checks import draw_views, on_kernel
from torch import Tensor

from counterpoint.losses import Attention, InfoNCE, LiftedStructured, LinearTriplet, MIOv1, Triplet
from counterpoint.losses.family import CATALOGUE
from counterpoint.losses.pair_loss import PairLoss
from oracles.number_checks import assert_numbers
from tolerances import assert_close

each_member = pytest.mark.parametrize("name", CATALOGUE)


def entropies(alpha: Tensor) -> list[float]:
    """-sum p log p per row with p = alpha / row sum, in plain loops; NaN for a row without weight."""
    results = []
    for row in alpha.tolist():
        total = math.fsum(row)
        shares = [a / total for a in row if a > 0] if total else []
        results.append(-math.fsum(p * math.log(p) for p in shares) if shares else math.nan)
    return results


@each_member
@pytest.mark.parametrize("kernel", ["dense", "tiled"])
@pytest.mark.parametrize("negatives", ["two-view", "cross-view", "same-view"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.sampled(3)
def test_it_is_the_entropy_of_the_importance(name: str, kernel: str, negatives: str, normalize: bool) -> None:
    loss = CATALOGUE[name](negatives=negatives, normalize=normalize)
    z0, z1 = draw_views(6)
    with on_kernel(kernel):
        attention = loss.attention(z0, z1)
    expected = entropies(loss.importance(z0, z1))
    assert len(attention.entropy_A) == 12
    for actual, wanted in zip(attention.entropy_A.tolist(), expected, strict=True):
        assert math.isnan(wanted) == math.isnan(actual)
        assert math.isnan(wanted) or abs(actual - wanted) < 1e-10
    assert_close(attention.effective_negatives_A.nan_to_num(), attention.entropy_A.exp().nan_to_num())


def test_pairs_that_weigh_alike_count_in_full() -> None:
    z0, z1 = draw_views(5)
    attention = LinearTriplet()(z0, z1), LinearTriplet().attention(z0, z1)
    assert attention[1].num_negatives == 8
    assert_numbers(attention[1].effective_negatives_A, [8.0] * 10)
    assert attention[1].mean_effective_negatives == pytest.approx(8.0)


def test_a_cold_loss_looks_at_one_negative_and_a_hot_one_at_all() -> None:
    z0, z1 = draw_views(8, 4)
    cold, hot = (InfoNCE(tau).attention(z0, z1).mean_effective_negatives for tau in (1e-3, 1e3))
    assert 1 <= cold < 1.2
    assert 13.99 < hot <= 14


@pytest.mark.parametrize("loss", [Triplet(margin=0.5), LiftedStructured(-9.0)])
def test_an_anchor_whose_hinge_is_satisfied_has_no_attention(loss: PairLoss) -> None:
    z = 5 * torch.eye(3, dtype=torch.float64)
    attention = loss.attention(z, z)
    assert bool(attention.entropy_A.isnan().all())
    assert math.isnan(attention.mean_effective_negatives)


def test_weights_that_a_loss_has_told_answer_for_any_loss() -> None:
    z0, z1 = draw_views(6)
    told = Attention.of_importance(InfoNCE(0.3).importance(z0, z1))
    streamed = InfoNCE(0.3).attention(z0, z1)
    assert_close(told.entropy_A, streamed.entropy_A)
    assert told.num_negatives == streamed.num_negatives == 10
    assert 1 < Attention.of_importance(MIOv1().importance(z0, z1)).mean_effective_negatives < 10


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="row 1 holds NaN"):
        InfoNCE().attention(torch.tensor([[1.0], [math.nan]]), torch.ones(2, 1))
    with pytest.raises(ValueError, match=r"alpha_AM must be >= 0 and finite, got -1\.0"):
        Attention.of_importance(torch.tensor([[2.0, -1.0]]))
