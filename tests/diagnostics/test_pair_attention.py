"""Whom a loss looks at, and which samples are copies: loops, one-hot weights, the loss's own values, isotropic rows."""

# N samples, D features

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.pair_attention import (
    COPY,
    PairBatch,
    batch_attention,
    drawn_batches,
    near_samples,
    num_negatives,
)
from counterpoint.losses import CATALOGUE, InfoNCE, SupCon, Triplet
from counterpoint.losses.build import build_loss, parameters_of
from draws import draw
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


def test_batches_are_distinct() -> None:
    generator = torch.Generator().manual_seed(1)
    found = drawn_batches(100, 8, at_most=5, generator=generator)
    assert len(torch.cat(found).unique()) == 40
    assert [len(each) for each in drawn_batches(5, 8, at_most=5, generator=generator)] == [5]


# --- near samples


@given(n=st.integers(3, 9), width=st.integers(2, 4), seed=st.integers(0, 99), noise=st.sampled_from([0.1, 1.0]))
@settings(max_examples=30)
def test_near_pairs_are_those_of_the_loops(n: int, width: int, seed: int, noise: float) -> None:
    plain = draw(n, width, seed)
    plain[1] = plain[0] + 0.01 * plain[1]
    first, second = plain + noise * draw(n, width, seed + 100), plain + noise * draw(n, width, seed + 200)
    found = near_samples(first, second, plain, num_pairs=3)
    views = oracle.view_cosines(first.tolist(), second.tolist())
    own = [oracle.cosine(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    others = [(i, j) for i in range(n) for j in range(n) if i != j]
    limit = COPY * sorted(1 - c for c in own)[(n - 1) // 2]
    copies = {(i, j) for i, j in others if 1 - oracle.cosine(plain[i].tolist(), plain[j].tolist()) < limit}
    assert {tuple(pair) for pair in found.is_copy_NN.nonzero().tolist()} == copies
    best = sorted(((views[i][j], i, j) for i, j in others if i < j), reverse=True)[:3]
    assert found.pairs_P2.tolist() == [[i, j] for _, i, j in best]
    assert_numbers(found.cosine_P, [cosine for cosine, _, _ in best])
    assert_numbers(found.own_P, [(own[i] + own[j]) / 2 for _, i, j in best])


def test_each_sample_eight_times_is_found_and_isotropic_samples_have_no_copies() -> None:
    noise = 0.5 * draw(400, 32, 1), 0.5 * draw(400, 32, 2)
    copied = draw(50, 32).repeat_interleave(8, dim=0)
    near = copied + 1e-3 * draw(400, 32, 3)
    found = near_samples(near + noise[0], near + noise[1], near)
    assert found.copy_share == 1.0
    assert int(found.is_copy_NN.sum()) == 400 * 7
    apart = draw(400, 32)
    assert near_samples(apart + noise[0], apart + noise[1], apart).copy_share == 0.0


def test_exact_copies_are_counted_and_not_shown() -> None:
    plain = draw(10, 6)
    plain[7] = plain[2]
    found = near_samples(plain + 0.3 * draw(10, 6, 1), plain + 0.3 * draw(10, 6, 2), plain, num_pairs=45)
    assert found.is_copy_NN[2, 7]
    assert [2, 7] not in found.pairs_P2.tolist()
    assert len(found.pairs_P2) == 44


def test_equal_views_have_no_near_copies() -> None:
    plain = draw(10, 6)
    assert near_samples(plain, plain, plain).copy_share == 0.0


def test_near_samples_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape and at most 2048 rows"):
        near_samples(draw(4, 3), draw(4, 3), draw(4, 2))


def test_an_embedding_of_one_dimension_makes_no_copies_of_unlike_samples() -> None:
    raw = draw(300, 40)
    raw[1] = raw[0] + 0.01 * raw[1]
    plain = torch.cat([raw[:, :1], torch.ones(300, 1, dtype=torch.float64)], dim=1)
    first, second = plain + 0.5 * draw(300, 2, seed=1), plain + 0.5 * draw(300, 2, seed=2)
    assert near_samples(first, second, plain).copy_share > 0.9
    copies = near_samples(first, second, plain, raw).is_copy_NN.nonzero().tolist()
    assert copies == [[0, 1], [1, 0]]
