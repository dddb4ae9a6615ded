"""Batches of raw samples in a fixed order, fetched here or by threads ahead; its whole state is (epoch, batch)."""

# B samples in a step, b of them on this rank

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from counterpoint.data.order import Order
from counterpoint.data.stores import MemoryStore, Store

BATCHES_AHEAD = 2  # per worker
REPEAT_BIT = 40
DEVICE_SHARE = 0.5  # of the GPU's free memory that samples may take; the rest is for the model


@dataclass(frozen=True)
class Batch:
    """Raw samples with facts about them; the numbers of the samples are on the CPU, all else on the device.

    Attributes:
        ids: positions in the source (b,).
        streams: keys of the views' random numbers (b,): the ids, and in the bits above 40 the number of times that the
            sample came before in this epoch.
        samples: raw samples (b, ...).
        labels: class numbers (b,), -1 if unknown, or None.
        second: the other half of paired data (b, ...), or None.
    """

    ids: Tensor
    streams: Tensor
    samples: Tensor
    labels: Tensor | None = None
    second: Tensor | None = None


@dataclass(frozen=True)
class Destination:
    """The device and the rank that batches go to.

    Attributes:
        device: device that they are computed on.
        rank: this process among those that share a step.
        world_size: number of these processes.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rank: int = 0
    world_size: int = 1

    def share(self, ids_SB: Tensor) -> Tensor:
        """This rank's consecutive samples of each of S steps.

        >>> Destination(rank=1, world_size=2).share(torch.arange(8)[None])
        tensor([[4, 5, 6, 7]])
        """
        return ids_SB.reshape(len(ids_SB), self.world_size, -1)[:, self.rank]


HERE = Destination()


class BatchLoader:
    """A loader of an epoch's batches; neither workers nor ranks change which samples a step has.

    Args:
        store: the samples.
        order: the order of the samples.
        labels: class numbers of all samples in the source (n,), or None.
        second: the other half of paired data, by the same positions, or None.
        num_workers: threads that fetch ahead; 0 fetches in the calling thread. The batches are the same.
        destination: device and rank; each rank gets as many samples of a batch.
    """

    def __init__(
        self,
        store: Store,
        order: Order,
        *,
        labels: Tensor | None = None,
        second: Store | None = None,
        num_workers: int = 0,
        destination: Destination = HERE,
    ) -> None:
        self.order = order
        self.notes: dict[str, str] = {}
        self._destination = destination
        self._labels = None if labels is None else labels.to(destination.device)
        stores = [store] if second is None else [store, second]
        if all(isinstance(each, MemoryStore) for each in stores):
            if destination.device.type == "cuda":
                stores = self._near([each for each in stores if isinstance(each, MemoryStore)])
            if num_workers:
                self.notes["engine.workers"] = "none started: the samples are in memory"
            num_workers = 0
        self._stores = stores
        self._is_resident = all(isinstance(each, MemoryStore) and not each.samples.is_cpu for each in stores)
        self._num_workers = num_workers
        # Pillow decodes outside of the interpreter's lock.
        self._pool = ThreadPoolExecutor(num_workers) if num_workers else None

    def epoch(self, epoch: int, *, first_batch: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, from ``first_batch`` on.

        Raises:
            DataError: a sample cannot be read or is not what was indexed.
        """
        batches, repeats = self.order.batches(epoch)[first_batch:], self.order.repeats(epoch)[first_batch:]
        return self._batches(self._destination.share(batches), self._destination.share(repeats))

    def one_batch(self, batch_size: int, epoch: int) -> Batch:
        """The first batch that an epoch would have with another batch size, drawn as in training; this rank has all.

        Raises:
            UsageError: a batch larger than the data.
        """
        order = replace(self.order, batch_size=batch_size)
        return next(self._batches(order.batches(epoch)[:1], order.repeats(epoch)[:1]))

    def _batches(self, ids_SB: Tensor, repeats_SB: Tensor) -> Iterator[Batch]:
        # The random numbers' counter takes ids of two 32-bit words: room for the position and, above it, the repeat.
        streams_SB = ids_SB | repeats_SB << REPEAT_BIT
        # Once for the whole epoch: a copy for each batch would wait for the device each time.
        near_SB = ids_SB.to(self._destination.device)
        for number, tensors in enumerate(self._fetched(near_SB if self._is_resident else ids_SB)):
            samples, *second = map(self._moved, tensors)
            labels = None if self._labels is None else self._labels.index_select(0, near_SB[number])
            yield Batch(ids_SB[number], streams_SB[number], samples, labels, second[0] if second else None)

    def _fetched(self, ids_SB: Tensor) -> Iterator[tuple[Tensor, ...]]:
        if self._pool is None:
            yield from map(self._fetch, ids_SB)
            return
        waiting: deque[Future[tuple[Tensor, ...]]] = deque()
        try:
            for ids_B in ids_SB:
                waiting.append(self._pool.submit(self._fetch, ids_B))
                if len(waiting) > BATCHES_AHEAD * self._num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # an epoch may be left halfway
            for future in waiting:
                future.cancel()

    def _fetch(self, ids_B: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            # A tensor may lie on the GPU, where a list of its numbers would have to be waited for.
            store.fetch(ids_B) if isinstance(store, MemoryStore) else store.fetch(ids_B.tolist())
            for store in self._stores
        )

    def _moved(self, tensor: Tensor) -> Tensor:
        """A tensor on the device; a copy to a GPU goes from pinned memory and does not wait."""
        device = self._destination.device
        if tensor.device == device or tensor.device.type == device.type == "cpu":
            return tensor
        # From memory that is not pinned the process would wait for the copy, whatever non_blocking says.
        is_ready = tensor.device.type == "cuda" or tensor.is_pinned()
        return (tensor if is_ready else tensor.pin_memory()).to(device, non_blocking=tensor.device.type != "cuda")

    def _near(self, stores: Sequence[MemoryStore]) -> list[Store | MemoryStore]:
        """Samples on a GPU if its free memory holds them easily: there a batch is one operation."""
        device = self._destination.device
        needed = sum(store.samples.nbytes for store in stores)
        # The driver's figure: what other processes hold is not free.
        free = torch.cuda.mem_get_info(device)[0]
        is_fitting = needed <= DEVICE_SHARE * free
        place = "live on the GPU" if is_fitting else "stay in main memory and are copied batch by batch"
        self.notes["engine.device"] = (
            f"samples {place}: {needed / 2**30:.2f} GiB; {free / 2**30:.1f} GiB are free, of which samples may take "
            f"{DEVICE_SHARE:.0%}"
        )
        return [MemoryStore(store.samples.to(device)) for store in stores] if is_fitting else list(stores)

    def close(self) -> None:
        """End the threads; the loader then fetches in its own thread."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = None
