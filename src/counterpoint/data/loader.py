"""Batches of raw samples in a fixed order, fetched here or by worker processes; its whole state is (epoch, batch)."""

# B samples in a step, b of them on this rank

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.data.loader_workers import (
    FetchedBatches,
    Positions,
    end_workers,
    fetched_by_workers,
    start_workers,
)
from counterpoint.data.order import Order
from counterpoint.data.stores import MemoryStore, Store

REPEAT_BIT = 40
DEVICE_SHARE = 0.5  # of the GPU's free memory that samples may take; the rest is for the model


@dataclass(frozen=True)
class Batch:
    """Raw samples with what is known of them; the numbers of the samples are on the CPU, all else on the device.

    Attributes:
        ids: positions in the source (b,).
        streams: what the views are drawn by (b,): the ids, and in the bits above 40 how often the sample came before in
            this epoch.
        samples: raw samples (b, ...).
        labels: class numbers (b,), -1 where unknown, or None.
        second: the other half of paired data (b, ...), or None.
    """

    ids: Tensor
    streams: Tensor
    samples: Tensor
    labels: Tensor | None = None
    second: Tensor | None = None


@dataclass(frozen=True)
class Destination:
    """Where batches go.

    Attributes:
        device: what they are computed on.
        rank: this process among those that share a step.
        world_size: how many there are.
        parts: sub-batches into which each step is divided (gradient accumulation).
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rank: int = 0
    world_size: int = 1
    parts: int = 1

    def share(self, ids_SB: Tensor) -> Tensor:
        """This rank's samples of each of S steps: from every sub-batch its consecutive share.

        The ranks' sub-batches of number p make up ``ids_SB[:, p * B / parts : (p + 1) * B / parts]`` in order.

        >>> Destination(rank=1, world_size=2, parts=2).share(torch.arange(8)[None])
        tensor([[2, 3, 6, 7]])
        """
        num_steps = len(ids_SB)
        width = ids_SB.shape[1] // (self.parts * self.world_size)
        shared = ids_SB.reshape(num_steps, self.parts, self.world_size, width)[:, :, self.rank]
        return shared.reshape(num_steps, self.parts * width)


HERE = Destination()


class BatchLoader:
    """Iterates over an epoch's batches. Neither workers nor ranks change which samples a step has.

    Args:
        store: the samples.
        order: which samples come when.
        labels: class numbers of all samples in the source (n,), or None.
        second: the other half of paired data, by the same positions, or None.
        num_workers: processes that fetch ahead; 0 fetches in this process. The batches are the same.
        destination: device, rank and division of the batches.

    Raises:
        UsageError: ranks and sub-batches do not divide the batch.
    """

    def __init__(
        self,
        store: Store,
        order: Order,
        *,
        labels: Tensor | None = None,
        second: Store | Tensor | None = None,
        num_workers: int = 0,
        destination: Destination = HERE,
    ) -> None:
        _check_division(order.batch_size, destination)
        self.order = order
        self.notes: Mapping[str, str] = {}
        self._destination = destination
        self._labels = None if labels is None else labels.to(destination.device)
        stores = [store] if second is None else [store, MemoryStore(second) if isinstance(second, Tensor) else second]
        if all(isinstance(each, MemoryStore) for each in stores):
            nearby = _bring_near([each for each in stores if isinstance(each, MemoryStore)], destination.device)
            stores, self.notes = nearby.stores, {**nearby.notes, **_without_workers(num_workers)}
            num_workers = 0
        self._stores = FetchedBatches(tuple(stores))
        self._is_resident = all(isinstance(each, MemoryStore) and not each.samples.is_cpu for each in stores)
        self._positions = Positions()
        self._workers = None
        if num_workers:
            is_pinned = destination.device.type == "cuda"
            self._workers = start_workers(self._stores, self._positions, num_workers, is_pinned=is_pinned)

    def epoch(self, epoch: int, *, first_batch: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, from ``first_batch`` on.

        Raises:
            DataError: a sample cannot be read or is not what was indexed; from a worker as from here.
        """
        ids_SB = self._destination.share(self.order.batches(epoch)[first_batch:])
        streams_SB = ids_SB | self._destination.share(self.order.repeats(epoch)[first_batch:]) << REPEAT_BIT
        near_SB = ids_SB.to(self._destination.device)
        if self._workers is None:
            fetched = (self._stores.fetch(ids_B) for ids_B in (near_SB if self._is_resident else ids_SB))
        else:
            self._positions.lists = ids_SB.tolist()
            fetched = fetched_by_workers(self._workers)
        for number, tensors in enumerate(fetched):
            samples, *second = (_moved(tensor, self._destination.device) for tensor in tensors)
            labels = None if self._labels is None else self._labels.index_select(0, near_SB[number])
            yield Batch(ids_SB[number], streams_SB[number], samples, labels, second[0] if second else None)

    def close(self) -> None:
        """End the workers; the loader then fetches by itself."""
        end_workers(self._workers)
        self._workers = None


@dataclass(frozen=True)
class _Nearby:
    """Stores in memory, on the device where they fit."""

    stores: list[Store]
    notes: Mapping[str, str]


def _bring_near(stores: list[MemoryStore], device: torch.device) -> _Nearby:
    """Move samples to a GPU whose free memory holds them easily; a batch is then one operation there."""
    if device.type != "cuda":
        return _Nearby(list(stores), {})
    needed = sum(store.samples.nbytes for store in stores)
    free = torch.cuda.mem_get_info(device)[0]
    room = f"{free / 2**30:.1f} GiB are free, of which samples may take {DEVICE_SHARE:.0%}"
    if needed > DEVICE_SHARE * free:
        note = f"samples stay in main memory and are copied batch by batch: {needed / 2**30:.2f} GiB; {room}"
        return _Nearby(list(stores), {"engine.device": note})
    note = f"samples live on the GPU: {needed / 2**30:.2f} GiB; {room}"
    return _Nearby([MemoryStore(store.samples.to(device)) for store in stores], {"engine.device": note})


def _without_workers(num_workers: int) -> Mapping[str, str]:
    """Why asking for workers starts none."""
    if not num_workers:
        return {}
    return {"engine.workers": "none started: the samples are in memory, where other processes would only copy them"}


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device; a copy to a GPU goes from pinned memory and does not wait."""
    if tensor.device == device or (tensor.device.type == device.type == "cpu"):
        return tensor
    if tensor.device.type == "cuda":
        return tensor.to(device)
    pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
    return pinned.to(device, non_blocking=True)


def _check_division(batch_size: int, destination: Destination) -> None:
    """Refuse a step that cannot be divided evenly."""
    num_shares = destination.world_size * destination.parts
    if batch_size % num_shares:
        raise UsageError(
            f"batch_size must be a multiple of {num_shares} ({destination.world_size} ranks x {destination.parts} "
            f"sub-batches), got {batch_size}"
        )
