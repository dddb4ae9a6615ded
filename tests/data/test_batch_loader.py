"""Batches: the same bits from any number of workers, shares of ranks that make up the step, errors of one line."""

import multiprocessing
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import DataError
from counterpoint.data.loader import Batch, BatchLoader, Destination
from counterpoint.data.order import Order
from counterpoint.data.stores import MemoryStore

NUM_SAMPLES = 50
ORDER = Order(torch.arange(NUM_SAMPLES), 12, 3)


@dataclass(frozen=True)
class SquareStore:
    """A store that workers fetch from: the sample of a position is its square."""

    broken: int = -1
    error: type[Exception] = DataError

    def __len__(self) -> int:
        return NUM_SAMPLES

    def fetch(self, positions: Sequence[int]) -> Tensor:
        if self.broken in positions:
            raise self.error(f"sample {self.broken} is broken")
        return torch.tensor([[position**2] for position in positions], dtype=torch.float32)


def tensors(batch: Batch) -> list[Tensor]:
    return [each for each in (batch.ids, batch.streams, batch.samples, batch.labels, batch.second) if each is not None]


def two_epochs(loader: BatchLoader) -> list[list[Tensor]]:
    batches = [tensors(batch) for epoch, first in ((0, 1), (1, 0)) for batch in loader.epoch(epoch, first_batch=first)]
    loader.close()
    return batches


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.thorough
def test_workers_change_no_bit(num_workers: int) -> None:
    labels, second = torch.arange(NUM_SAMPLES) % 7, torch.randn(NUM_SAMPLES, 5)

    def batches(num_workers: int) -> list[list[Tensor]]:
        store = MemoryStore(second)
        return two_epochs(BatchLoader(SquareStore(), ORDER, labels=labels, second=store, num_workers=num_workers))

    here = batches(0)
    assert len(here) == 3 + 4
    for mine, theirs in zip(here, batches(num_workers), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    ids, streams, samples, some_labels, seconds = here[0]
    assert torch.equal(ids, ORDER.batches(0)[1])
    assert torch.equal(streams, ids)
    assert torch.equal(samples[:, 0], ids.float() ** 2)
    assert torch.equal(some_labels, ids % 7)
    assert torch.equal(seconds, second[ids])


def test_samples_in_memory_need_no_workers_and_the_loader_says_so() -> None:
    samples = torch.randint(0, 256, (NUM_SAMPLES, 3, 4, 4), dtype=torch.uint8)
    loader = BatchLoader(MemoryStore(samples), ORDER, num_workers=3)
    before = {process.pid for process in multiprocessing.active_children()}
    batch = next(loader.epoch(0))
    assert torch.equal(batch.samples, samples[batch.ids])
    assert {process.pid for process in multiprocessing.active_children()} == before
    assert "in memory" in loader.notes["engine.workers"]
    assert BatchLoader(MemoryStore(samples), ORDER).notes == {}
    assert (batch.labels, batch.second) == (None, None)


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_share_each_batch(world_size: int) -> None:
    shares = [
        [batch.ids for batch in BatchLoader(SquareStore(), ORDER, destination=to).epoch(2)]
        for to in (Destination(rank=rank, world_size=world_size) for rank in range(world_size))
    ]
    for step, whole in enumerate(ORDER.batches(2)):
        assert torch.equal(torch.cat([share[step] for share in shares]), whole)


def test_repeats_of_a_sample_get_streams_of_their_own() -> None:
    labels = torch.tensor([0] * 3 + [1] * 47)
    order = Order(torch.arange(NUM_SAMPLES), 10, 0, labels)
    batches = list(BatchLoader(SquareStore(), order).epoch(0))
    ids, streams = torch.cat([batch.ids for batch in batches]), torch.cat([batch.streams for batch in batches])
    assert torch.equal(streams & ((1 << 40) - 1), ids)
    assert torch.equal(streams >> 40, order.repeats(0).flatten())
    assert len(streams.unique()) == len(streams) > len(ids.unique())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_comes_as_itself_in_one_line(num_workers: int) -> None:
    loader = BatchLoader(SquareStore(broken=17), ORDER, num_workers=num_workers)
    with pytest.raises(DataError) as caught:
        [batch for epoch in range(2) for batch in loader.epoch(epoch)]
    assert str(caught.value) == "sample 17 is broken"
    loader.close()


def test_an_epoch_left_halfway_does_not_disturb_the_next() -> None:
    loader = BatchLoader(SquareStore(), ORDER, num_workers=2)
    next(loader.epoch(0))
    ids = [batch.ids for batch in loader.epoch(1)]
    assert torch.equal(torch.stack(ids), ORDER.batches(1))
    loader.close()


def test_threads_end_with_the_loader() -> None:
    before = set(threading.enumerate())
    loader = BatchLoader(SquareStore(), ORDER, num_workers=2)
    next(loader.epoch(0))
    assert len(set(threading.enumerate()) - before) == 2
    loader.close()
    assert set(threading.enumerate()) == before
