"""Who is held out, in which order the others come, and in which batches they are fetched."""

from collections.abc import Generator

import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.data.loader import BatchLoader
from counterpoint.data.order import EpochOrder, build_order, split_source
from counterpoint.data.stores import MemoryStore

# --- the split


def class_sizes(labels: Tensor, positions: Tensor) -> list[int]:
    return torch.bincount(labels[positions], minlength=int(labels.max()) + 1).tolist()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("num_samples", [4, 37, 500])
def test_a_split_has_the_share_asked_for_and_loses_no_one(num_samples: int, share: float) -> None:
    split = split_source(num_samples, None, share)
    both = torch.cat([split.train, split.held_out])
    assert torch.equal(both.sort().values, torch.arange(num_samples))
    assert abs(len(split.held_out) - share * num_samples) <= 1
    assert torch.equal(split.train, split.train.sort().values)
    assert torch.equal(split.held_out, split.held_out.sort().values)


def test_every_class_is_divided_alike() -> None:
    labels = torch.tensor([0] * 100 + [1] * 50 + [2] * 10 + [3] * 2 + [4])[torch.randperm(163)]
    split = split_source(len(labels), labels, 0.2)
    assert class_sizes(labels, split.held_out) == [20, 10, 2, 1, 0]
    assert class_sizes(labels, split.train) == [80, 40, 8, 1, 1]


def test_samples_without_a_label_stay_in_training() -> None:
    labels = torch.tensor([-1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, -1])
    split = split_source(len(labels), labels, 0.4)
    assert bool((labels[split.held_out] >= 0).all())
    assert class_sizes(labels, split.held_out) == [2, 2]


def test_the_split_is_a_fixed_mixture_of_the_samples() -> None:
    first, second = split_source(1000, None, 0.2), split_source(1000, None, 0.2)
    assert torch.equal(first.held_out, second.held_out)
    # 200 of 1000 drawn without replacement: mean position 499.5, standard error sqrt(1000^2/12 / 200 * 0.8)
    assert abs(float(first.held_out.double().mean()) - 499.5) < 5 * 18.3
    assert not torch.equal(first.held_out, torch.arange(200))
    torch.manual_seed(1)  # the global generator and a run's seed have no say
    assert torch.equal(split_source(1000, None, 0.2).held_out, first.held_out)


def test_a_larger_share_holds_out_those_of_a_smaller_one_too() -> None:
    small, large = (set(split_source(200, None, share).held_out.tolist()) for share in (0.1, 0.3))
    assert small < large


# --- the order


@pytest.mark.parametrize(("num_samples", "batch_size"), [(10, 2), (10, 3), (10, 10), (97, 32)])
def test_each_sample_comes_at_most_once_per_epoch_in_whole_batches(num_samples: int, batch_size: int) -> None:
    positions = 5 * torch.arange(num_samples) + 3
    order = EpochOrder(positions, batch_size, seed=0)
    for epoch in range(3):
        batches = order.batches(epoch)
        assert batches.shape == (num_samples // batch_size, batch_size) == (order.batches_per_epoch, batch_size)
        used = batches.flatten().tolist()
        assert len(set(used)) == len(used)
        assert set(used) <= set(positions.tolist())


def test_the_order_is_a_function_of_seed_and_epoch_only() -> None:
    def batches(seed: int, epoch: int) -> Tensor:
        return EpochOrder(torch.arange(50), 7, seed).batches(epoch)

    before = batches(3, 4)
    torch.manual_seed(9)
    batches(3, 0)
    assert torch.equal(batches(3, 4), before)
    others = [batches(3, 5), batches(4, 4), batches(3 + 2**32, 4), batches(4, 3)]
    assert all(not torch.equal(other, before) for other in others)


def test_a_fixed_order_is_that_of_the_data_in_every_epoch() -> None:
    order = build_order(torch.tensor([2, 3, 5, 7, 11]), None, 2, seed=4, sampling="fixed")
    assert order.batches(0).tolist() == order.batches(1).tolist() == [[2, 3], [5, 7]]


def test_every_sample_is_left_out_at_times_when_batches_do_not_divide_the_data() -> None:
    order = EpochOrder(torch.arange(10), 4, seed=0)
    left_out = [set(range(10)) - set(order.batches(epoch).flatten().tolist()) for epoch in range(60)]
    assert all(len(one) == 2 for one in left_out)
    assert set().union(*left_out) == set(range(10))


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UsageError, match="batch_size must be at most the number of training samples, 10, got 11"):
        EpochOrder(torch.arange(10), 11, seed=0)


# --- the loader


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(torch.arange(40)[:, None] * torch.tensor([1.0, 100.0]))


def epoch_of(loader: BatchLoader, epoch: int, first_batch: int = 0) -> list[tuple[list[int], Tensor]]:
    return [(batch.ids.tolist(), batch.samples) for batch in loader.epoch(epoch, first_batch=first_batch)]


def assert_same_batches(actual: list[tuple[list[int], Tensor]], expected: list[tuple[list[int], Tensor]]) -> None:
    assert [ids for ids, _ in actual] == [ids for ids, _ in expected]
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(actual, expected, strict=True))


def test_a_batch_holds_the_samples_of_its_ids(store: MemoryStore) -> None:
    order = EpochOrder(torch.arange(3, 40), 6, seed=1)
    batches = epoch_of(BatchLoader(store, order), 2)
    assert [ids for ids, _ in batches] == order.batches(2).tolist()
    for ids, samples in batches:
        assert torch.equal(samples, store.samples[ids])


def test_any_number_of_workers_and_any_start_give_the_same_batches(store: MemoryStore) -> None:
    order = EpochOrder(torch.arange(40), 6, seed=1)
    alone, helped = BatchLoader(store, order), BatchLoader(store, order, num_workers=2)
    for epoch in (0, 3):
        whole = epoch_of(alone, epoch)
        assert_same_batches(epoch_of(helped, epoch), whole)
        assert_same_batches(epoch_of(alone, epoch, first_batch=4), whole[4:])
    assert_same_batches(epoch_of(helped, 5, first_batch=2), epoch_of(alone, 5)[2:])
    assert epoch_of(alone, 0, first_batch=order.batches_per_epoch) == []


def test_an_epoch_that_was_left_midway_does_not_disturb_the_next(store: MemoryStore) -> None:
    loader = BatchLoader(store, EpochOrder(torch.arange(40), 6, seed=1))
    expected = epoch_of(loader, 1)
    half = loader.epoch(0)
    assert isinstance(half, Generator)
    next(half)
    half.close()
    assert_same_batches(epoch_of(loader, 1), expected)
