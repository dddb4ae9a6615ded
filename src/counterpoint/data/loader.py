"""Batches of raw samples in a fixed order, fetched here or by worker processes; its whole state is (epoch, batch)."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from counterpoint.data.order import EpochOrder
from counterpoint.data.stores import Store


@dataclass(frozen=True)
class Batch:
    """Raw samples (b, ...) and their ids (b,), which are positions in the source."""

    ids: Tensor
    samples: Tensor


class BatchLoader:
    """Iterates over an epoch's batches.

    Args:
        store: the samples.
        order: which samples come when.
        num_workers: processes that fetch ahead; 0 fetches in this process. The batches are the same.
    """

    def __init__(self, store: Store, order: EpochOrder, *, num_workers: int = 0) -> None:
        self.order = order
        self._positions = _PositionSampler(order)
        self._loader = DataLoader(
            _StoreDataset(store),
            batch_sampler=self._positions,
            collate_fn=_as_is,  # pyright: ignore[reportArgumentType]
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
        )

    def epoch(self, epoch: int, *, first_batch: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, from ``first_batch`` on."""
        self._positions.start(epoch, first_batch)
        yield from self._loader


class _PositionSampler(Sampler[list[int]]):
    """Hands lists of positions to the workers."""

    def __init__(self, order: EpochOrder) -> None:
        self._order = order
        self._epoch = self._first = 0

    def start(self, epoch: int, first_batch: int) -> None:
        """Choose where iteration begins."""
        self._epoch, self._first = epoch, first_batch

    def __len__(self) -> int:
        return self._order.batches_per_epoch - self._first

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._order.batches(self._epoch)[self._first :].tolist()


class _StoreDataset(Dataset[Batch]):
    """Fetches a whole batch at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    def __getitems__(self, positions: list[int]) -> Batch:
        return Batch(torch.tensor(positions, dtype=torch.int64), self._store.fetch(positions))


def _as_is(batch: Batch) -> Batch:
    """No collation: a batch is fetched whole."""
    return batch
