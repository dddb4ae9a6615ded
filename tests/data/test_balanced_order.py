"""Balanced sampling: every class equally often in every batch, and no sample twice where that can be avoided."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.data.order import BalancedOrder, EpochOrder, build_order


def balanced(sizes: list[int], batch_size: int, seed: int = 0) -> tuple[BalancedOrder, Tensor]:
    """An order over shuffled classes and the labels of the whole source, whose odd positions are not trained on."""
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    of_source = labels.repeat_interleave(2)
    order = build_order(2 * torch.arange(len(labels)), of_source, batch_size, seed, "balanced")
    assert isinstance(order, BalancedOrder)
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
def test_a_class_is_run_through_before_it_begins_again(case: tuple[list[int], int], epoch: int) -> None:
    sizes, batch_size = case
    order, labels = balanced(sizes, batch_size)
    drawn = order.batches(epoch).flatten()
    for number, size in enumerate(sizes):
        rounds = drawn[labels[drawn] == number].split(size)
        assert all(len(part.unique()) == len(part) for part in rounds)


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


@pytest.mark.thorough
def test_over_the_epochs_every_sample_of_a_large_class_comes_equally_often() -> None:
    order, labels = balanced([120, 6], 12)
    uses = torch.zeros(len(labels))
    for epoch in range(400):
        uses += torch.bincount(order.batches(epoch).flatten(), minlength=len(labels))
    large = uses[(labels == 0) & (torch.arange(len(labels)) % 2 == 0)]
    assert float(large.sum()) == 400 * 60
    # Each is drawn in an epoch with probability 1/2: 200 times, standard deviation 10.
    assert float((large - 200).abs().max()) < 5 * 10


def test_which_class_gets_the_odd_place_is_drawn_anew_each_epoch() -> None:
    order, labels = balanced([30, 30, 30], 89)  # one batch: two classes of 30, one of 29
    fewer = [int(torch.bincount(labels[order.batches(epoch)[0]]).argmin()) for epoch in range(60)]
    assert set(fewer) == {0, 1, 2}


def test_samples_without_a_label_are_not_drawn() -> None:
    labels = torch.tensor([-1, 0, 0, 1, 1, -1, 1])
    order = build_order(torch.arange(7), labels, 2, 0, "balanced")
    assert order.batches_per_epoch == 2
    assert set(torch.cat([order.batches(epoch).flatten() for epoch in range(20)]).tolist()) == {1, 2, 3, 4, 6}


def test_natural_sampling_is_the_plain_order() -> None:
    order = build_order(torch.arange(3, 20), torch.arange(20) % 3, 5, 1)
    assert isinstance(order, EpochOrder)
    assert torch.equal(order.batches(2), EpochOrder(torch.arange(3, 20), 5, 1).batches(2))
    assert order.repeats(2).shape == order.batches(2).shape
    assert not order.repeats(2).any()


def test_what_cannot_be_balanced_is_refused() -> None:
    with pytest.raises(UsageError, match=r"source\.sampling balanced needs labels"):
        build_order(torch.arange(9), None, 3, 0, "balanced")
    with pytest.raises(UsageError, match="at most the number of training samples, 4, got 5"):
        build_order(torch.arange(9), torch.tensor([0, 1, 1, 0, -1, -1, -1, -1, -1]), 5, 0, "balanced")
