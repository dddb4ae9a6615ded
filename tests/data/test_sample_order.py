"""Who is held out, in which order the others come, and in which batches they are fetched."""

import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.data.order import Order, build_order, split_source

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


def test_samples_without_a_label_stay_in_training() -> None:
    labels = torch.tensor([-1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, -1])
    split = split_source(len(labels), labels, 0.4)
    assert bool((labels[split.held_out] >= 0).all())
    assert class_sizes(labels, split.held_out) == [2, 2]


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


def test_the_order_is_a_function_of_seed_and_epoch_only() -> None:
    def batches(seed: int, epoch: int) -> Tensor:
        return Order(torch.arange(50), 7, seed).batches(epoch)

    before = batches(3, 4)
    torch.manual_seed(9)
    batches(3, 0)
    assert torch.equal(batches(3, 4), before)
    others = [batches(3, 5), batches(4, 4), batches(3 + 2**32, 4), batches(4, 3)]
    assert all(not torch.equal(other, before) for other in others)


def test_a_fixed_order_is_that_of_the_data_in_every_epoch() -> None:
    order = build_order(torch.tensor([2, 3, 5, 7, 11]), None, 2, seed=4, sampling="fixed")
    assert order.batches(0).tolist() == order.batches(1).tolist() == [[2, 3], [5, 7]]


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(UsageError, match="batch_size must be at most the number of training samples, 10, got 11"):
        Order(torch.arange(10), 11, seed=0)


# --- the loader
