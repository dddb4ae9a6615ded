"""Balanced sampling: every class equally often in every batch, and no sample twice where that can be avoided."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.data.order import Order, build_order


def balanced(sizes: list[int], batch_size: int, seed: int = 0) -> tuple[Order, Tensor]:
    """An order over shuffled classes and the labels of the whole source, whose odd positions are not trained on."""
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    of_source = labels.repeat_interleave(2)
    order = build_order(2 * torch.arange(len(labels)), of_source, batch_size, seed, "balanced")
    assert isinstance(order, Order)
    return order, of_source


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], int]:
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    return sizes, draw(st.integers(1, sum(sizes)))


@given(cases(), st.integers(0, 3))
@pytest.mark.thorough
def test_every_batch_draws_the_classes_evenly(case: tuple[list[int], int], epoch: int) -> None:
    sizes, batch_size = case
    order, labels = balanced(sizes, batch_size)
    batches = order.batches(epoch)
    assert batches.shape == (sum(sizes) // batch_size, batch_size) == (order.batches_per_epoch, batch_size)
    assert set(batches.flatten().tolist()) <= set(order.positions.tolist())
    for places in (*batches, batches.flatten()):
        counts = torch.bincount(labels[places], minlength=len(sizes))
        assert int(counts.max() - counts.min()) <= 1


@given(cases(), st.integers(0, 3))
@pytest.mark.thorough
def test_a_sample_is_repeated_in_a_batch_only_where_its_class_is_too_small(
    case: tuple[list[int], int], epoch: int
) -> None:
    sizes, batch_size = case
    order, labels = balanced(sizes, batch_size)
    for batch in order.batches(epoch):
        uses = Counter(batch.tolist())
        for number, places in Counter(labels[batch].tolist()).items():
            most = max(uses[position] for position in batch.tolist() if labels[position] == number)
            assert most == -(-places // sizes[number])


@given(cases(), st.integers(0, 3))
@pytest.mark.thorough
def test_repeats_count_the_earlier_places_of_a_sample(case: tuple[list[int], int], epoch: int) -> None:
    order, _ = balanced(*case)
    batches, seen, expected = order.batches(epoch), Counter[int](), []
    for position in batches.flatten().tolist():
        expected.append(seen[position])
        seen[position] += 1
    assert order.repeats(epoch).flatten().tolist() == expected
    assert order.repeats(epoch).shape == batches.shape


def test_the_order_is_a_function_of_seed_and_epoch_only() -> None:
    sizes, batch_size = [40, 9, 3], 12
    before = balanced(sizes, batch_size, seed=3)[0].batches(4)
    torch.manual_seed(9)
    again = balanced(sizes, batch_size, seed=3)[0]
    again.batches(0)
    assert torch.equal(again.batches(4), before)
    for seed, epoch in ((3, 5), (4, 4), (3 + 2**32, 4), (4, 3)):
        assert not torch.equal(balanced(sizes, batch_size, seed)[0].batches(epoch), before)


def test_samples_without_a_label_are_not_drawn() -> None:
    labels = torch.tensor([-1, 0, 0, 1, 1, -1, 1])
    order = build_order(torch.arange(7), labels, 2, 0, "balanced")
    assert order.batches_per_epoch == 2
    assert set(torch.cat([order.batches(epoch).flatten() for epoch in range(20)]).tolist()) == {1, 2, 3, 4, 6}


def test_what_cannot_be_balanced_is_refused() -> None:
    with pytest.raises(UsageError, match=r"source\.sampling balanced needs labels"):
        build_order(torch.arange(9), None, 3, 0, "balanced")
    with pytest.raises(UsageError, match="at most the number of training samples, 4, got 5"):
        build_order(torch.arange(9), torch.tensor([0, 1, 1, 0, -1, -1, -1, -1, -1]), 5, 0, "balanced")
