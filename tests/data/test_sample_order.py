"""Who is held out, in which order the others come, and in which batches they are fetched, shuffled or balanced.

Balanced sampling has every class equally often in every batch, and no sample twice where that can be avoided.
"""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.data.order import Order, build_order, class_sizes, split_source

# --- the split


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("num_samples", [4, 37, 500])
def test_a_split_has_the_share_asked_for_and_loses_no_one(num_samples: int, share: float) -> None:
    split = split_source(num_samples, None, share)
    both = torch.cat([split.train, split.held_out])
    assert torch.equal(both.sort().values, torch.arange(num_samples))
    assert abs(len(split.held_out) - share * num_samples) <= 1
    assert torch.equal(split.train, split.train.sort().values)
    assert torch.equal(split.held_out, split.held_out.sort().values)


def test_samples_without_a_label_stay_in_training() -> None:
    labels = torch.tensor([-1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, -1])
    split = split_source(len(labels), labels, 0.4)
    assert bool((labels[split.held_out] >= 0).all())
    assert class_sizes(labels, split.held_out, 2) == (2, 2)


def test_a_larger_share_holds_out_those_of_a_smaller_one_too() -> None:
    small, large = (set(split_source(200, None, share).held_out.tolist()) for share in (0.1, 0.3))
    assert small < large


# --- the order


@pytest.mark.parametrize(("num_samples", "batch_size"), [(10, 2), (10, 3), (10, 10), (97, 32)])
def test_each_sample_comes_at_most_once_per_epoch_in_whole_batches(num_samples: int, batch_size: int) -> None:
    positions = 5 * torch.arange(num_samples) + 3
    order = Order(positions, batch_size, seed=0)
    for epoch in range(3):
        batches = order.batches(epoch)
        assert batches.shape == (num_samples // batch_size, batch_size) == (order.batches_per_epoch, batch_size)
        used = batches.flatten().tolist()
        assert len(set(used)) == len(used)
        assert set(used) <= set(positions.tolist())


@pytest.mark.parametrize("sizes", [None, [40, 9, 3]], ids=["shuffled", "balanced"])
def test_the_order_is_a_function_of_seed_and_epoch_only(sizes: list[int] | None) -> None:
    labels = None if sizes is None else torch.arange(3).repeat_interleave(torch.tensor(sizes))

    def batches(seed: int, epoch: int) -> Tensor:
        return Order(torch.arange(52), 12, seed, labels).batches(epoch)

    before = batches(3, 4)
    torch.manual_seed(9)
    batches(3, 0)
    assert torch.equal(batches(3, 4), before)
    others = [batches(3, 5), batches(4, 4), batches(3 + 2**32, 4), batches(4, 3)]
    assert all(not torch.equal(other, before) for other in others)


def test_a_fixed_order_is_that_of_the_data_in_every_epoch() -> None:
    order = build_order(torch.tensor([2, 3, 5, 7, 11]), None, 2, seed=4, sampling="fixed")
    assert order.batches(0).tolist() == order.batches(1).tolist() == [[2, 3], [5, 7]]


# --- balanced


def balanced(sizes: list[int], batch_size: int) -> tuple[Order, Tensor]:
    """An order over shuffled classes and the labels of the whole source, whose odd positions are not trained on."""
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    of_source = labels.repeat_interleave(2)
    order = build_order(2 * torch.arange(len(labels)), of_source, batch_size, 0, "balanced")
    assert isinstance(order, Order)
    return order, of_source


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], int]:
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    return sizes, draw(st.integers(1, sum(sizes)))


@given(cases(), st.integers(0, 3))
@pytest.mark.thorough
def test_every_batch_draws_the_classes_evenly_and_repeats_only_samples_of_too_small_ones(
    case: tuple[list[int], int], epoch: int
) -> None:
    sizes, batch_size = case
    order, labels = balanced(sizes, batch_size)
    batches = order.batches(epoch)
    assert batches.shape == (sum(sizes) // batch_size, batch_size) == (order.batches_per_epoch, batch_size)
    assert set(batches.flatten().tolist()) <= set(order.positions.tolist())
    for places in (*batches, batches.flatten()):
        counts = torch.bincount(labels[places], minlength=len(sizes))
        assert int(counts.max() - counts.min()) <= 1
    for batch in batches:
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


def test_samples_without_a_label_are_not_drawn() -> None:
    labels = torch.tensor([-1, 0, 0, 1, 1, -1, 1])
    order = build_order(torch.arange(7), labels, 2, 0, "balanced")
    assert order.batches_per_epoch == 2
    assert set(torch.cat([order.batches(epoch).flatten() for epoch in range(20)]).tolist()) == {1, 2, 3, 4, 6}


def test_what_cannot_be_balanced_or_fills_no_batch_is_refused() -> None:
    with pytest.raises(UsageError, match=r"source\.sampling balanced needs labels"):
        build_order(torch.arange(9), None, 3, 0, "balanced")
    with pytest.raises(UsageError, match="at most the number of training samples, 4, got 5"):
        build_order(torch.arange(9), torch.tensor([0, 1, 1, 0, -1, -1, -1, -1, -1]), 5, 0, "balanced")
