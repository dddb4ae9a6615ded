"""Whom a loss looks at: loops, uniform and one-hot weights, the loss's own values at every temperature."""

# N samples, D features

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpoint.diagnostics.pair_attention import (
    PairBatch,
    batch_attention,
    drawn_batches,
    num_negatives,
    over_batches,
)
from counterpoint.losses import (
    CATALOGUE,
    InfoNCE,
    SupCon,
    Triplet,
)
from counterpoint.losses.build import build_loss, parameters_of
from oracles import pair_oracle as oracle
from oracles.number_checks import assert_numbers

LABELS = torch.tensor([0, 0, 1, 1, 2, -1])


def batch(z0: Tensor, z1: Tensor, labels: Tensor | None = None, is_copy: Tensor | None = None) -> PairBatch:
    n = len(z0)
    return PairBatch(
        z0.double(), z1.double(), labels, torch.zeros(n, n, dtype=torch.bool) if is_copy is None else is_copy
    )


def drawn(n: int = 6, width: int = 4, seed: int = 0, **others: Any) -> PairBatch:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, width, generator=generator, dtype=torch.float64)
    return batch(z, z + 0.3 * torch.randn(n, width, generator=generator, dtype=torch.float64), **others)


@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
def test_figures_are_those_of_the_loops(temperature: float) -> None:
    is_copy = torch.zeros(6, 6, dtype=torch.bool)
    is_copy[0, 1] = is_copy[1, 0] = True
    given = drawn(labels=LABELS, is_copy=is_copy)
    found = batch_attention(InfoNCE(temperature), given)
    first, second = given.z0_ND.tolist(), given.z1_ND.tolist()
    rows = oracle.infonce_shares(first, second, temperature)
    entropies = [oracle.entropy(row) for row in rows]
    assert found.num_negatives == 10
    assert_numbers(found.effective_negatives, sum(math.exp(h) for h in entropies) / 12)
    hardest = [oracle.hardest(row, 1)[0] for row in rows]  # one in a hundred of ten, and at least one
    assert_numbers(found.hardest_share, sum(row[j] for row, j in zip(rows, hardest, strict=True)) / 12)
    assert_numbers(found.copy_mass, oracle.mass(rows, lambda i, j: {i, j} == {0, 1}))
    assert_numbers(found.copy_chance, 2 / 30)
    assert_numbers(found.class_mass, oracle.mass(rows, lambda i, j: {i, j} in ({0, 1}, {2, 3})))
    assert_numbers(found.class_chance, 4 / 30)


def test_uniform_weights_count_every_negative_and_one_hot_weights_one() -> None:
    simplex = batch(torch.eye(8), torch.eye(8))
    uniform = batch_attention(InfoNCE(0.2), simplex)
    assert_numbers(uniform.effective_negatives, 14.0)
    assert_numbers(uniform.hardest_share, 1 / 14)
    # Of each sample's negatives one view of one sample is nearer than all others.
    pairs = torch.tensor([[1.0, 0.0, 0.0], [0.99, 0.1, 0.0], [0.0, 0.0, 1.0], [0.0, 0.1, 0.99]]).double()
    sharp = batch_attention(InfoNCE(1e-3, negatives="same-view"), batch(pairs, pairs))
    assert_numbers([sharp.effective_negatives, sharp.hardest_share], [1.0, 1.0])


def test_no_class_is_known_without_labels_or_where_the_loss_uses_them() -> None:
    for loss, labels in ((InfoNCE(), None), (InfoNCE(), torch.full((6,), -1)), (SupCon(), LABELS)):
        found = batch_attention(loss, drawn(labels=labels))
        assert found.class_mass is None
        assert found.class_chance is None


def test_labels_reach_a_loss_that_uses_them() -> None:
    """Six samples, one of which has no class: the two of a class do not repel each other."""
    assert num_negatives(SupCon(), drawn(labels=LABELS)) == 10
    assert num_negatives(SupCon(), drawn(labels=torch.tensor([0, 0, 0, 1, 1, 1]))) == 6


@pytest.mark.parametrize("loss", [InfoNCE(0.1), InfoNCE(0.5, negatives="cross-view")])
def test_effective_negatives_are_those_that_the_loss_itself_streams(loss: Any) -> None:
    given = drawn(n=20)
    attention = loss.attention(given.z0_ND, given.z1_ND)
    found = batch_attention(loss, given)
    assert found.num_negatives == attention.num_negatives
    assert_numbers(found.effective_negatives, float(attention.effective_negatives_A.mean()))


def test_anchors_that_weigh_nothing_are_left_out() -> None:
    """A triplet loss whose margin is kept by all but one pair of samples."""
    z = torch.eye(4).double()
    z[1] = z[0] + 0.1 * z[1]
    found = batch_attention(Triplet(margin=0.2), batch(z, z))
    assert_numbers(found.effective_negatives, 2.0)  # both views of the one sample that is near


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_loss_that_weighs_pairs_is_looked_at(name: str) -> None:
    needed = {"cross-entropy": 3, "nonnegative-cross-entropy": 3}
    sizes = {"num_classes": 3, "num_features": 4} if name in needed else {}
    options = {key: "infonce" for key, each in parameters_of(name).items() if key == "loss" and not sizes}
    loss: Any = build_loss(name, {}, {**options, **sizes})
    if not hasattr(loss, "importance"):
        return
    found: Any = batch_attention(loss, drawn(labels=LABELS))
    assert 1.0 <= found.effective_negatives <= found.num_negatives + 1e-9


def test_batches_are_distinct_and_the_interval_is_students() -> None:
    generator = torch.Generator().manual_seed(1)
    found = drawn_batches(100, 8, at_most=5, generator=generator)
    assert len(torch.cat(found).unique()) == 40
    assert [len(each) for each in drawn_batches(5, 8, at_most=5, generator=generator)] == [5]
    spread = over_batches([1.0, 2.0, 3.0, math.nan])
    # t of 2 degrees of freedom at 97.5 %, in the tables 4.303; standard error 1 / sqrt(3).
    assert spread.value == 2.0
    assert spread.low == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-4)
    assert spread.high == pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-4)
