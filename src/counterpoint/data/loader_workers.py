"""What runs in the loader's worker processes; an error comes back as itself, in one line."""

import atexit
import contextlib
import gc
import signal
import traceback
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from counterpoint.core.errors import CounterpointError, DataError, first_line
from counterpoint.data.stores import MemoryStore, Store

BATCHES_AHEAD = 2  # per worker
_RUNNING: weakref.WeakSet[Any] = weakref.WeakSet()  # iterators that have workers


@dataclass(frozen=True)
class Failure:
    """An error on its way from a worker: its kind if it is one for the user, its text, and where it arose."""

    kind: type[CounterpointError] | None
    text: str
    trace: str


class Positions(Sampler[list[int]]):
    """The lists of positions that are handed to the workers next."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []

    def __len__(self) -> int:
        return len(self.lists)

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.lists


class FetchedBatches(Dataset[tuple[Tensor, ...]]):
    """Whole batches from one store, or from two that go together."""

    def __init__(self, stores: tuple[Store, ...]) -> None:
        self._stores = stores

    def __len__(self) -> int:
        return len(self._stores[0])

    def fetch(self, ids_B: Tensor) -> tuple[Tensor, ...]:
        """The samples at some positions, from each store."""
        return tuple(
            store.fetch(ids_B) if isinstance(store, MemoryStore) else store.fetch(ids_B.tolist())
            for store in self._stores
        )

    def __getitems__(self, positions: list[int]) -> tuple[Tensor, ...] | Failure:
        try:
            return self.fetch(torch.tensor(positions, dtype=torch.int64))
        except CounterpointError as error:
            return Failure(type(error), str(error), "")
        except Exception as error:
            return Failure(None, f"{type(error).__name__}: {first_line(error)}", traceback.format_exc())


def start_workers(batches: FetchedBatches, positions: Positions, num_workers: int, *, is_pinned: bool) -> DataLoader:
    """A loader of torch's whose workers live on from epoch to epoch."""
    with _own_number_of_workers():
        loader = DataLoader(
            batches,
            batch_sampler=positions,
            collate_fn=_as_is,  # pyright: ignore[reportArgumentType]
            num_workers=num_workers,
            worker_init_fn=_calm_worker,
            prefetch_factor=BATCHES_AHEAD,
            persistent_workers=True,
            pin_memory=is_pinned,
        )
    return loader


def end_workers(loader: DataLoader | None) -> None:
    """Tell a loader's workers to stop, and wait for them."""
    _end(getattr(loader, "_iterator", None))


@atexit.register
def _end_all() -> None:
    """Before the process ends, else multiprocessing would signal the workers, which do not listen, and wait."""
    for batches in list(_RUNNING):
        _end(batches)


def _end(batches: Any) -> None:
    """End the workers behind an iterator of torch's loader."""
    if batches is not None:
        with contextlib.suppress(RuntimeError):  # one of them died before
            batches._shutdown_workers()


def fetched_by_workers(loader: DataLoader) -> Iterator[tuple[Tensor, ...]]:
    """What the workers fetch, in order.

    Raises:
        DataError: a sample cannot be read (or another error for the user), or a worker died.
        RuntimeError: any other error in a worker, with the place where it arose as a note.
    """
    with _own_number_of_workers():
        batches = iter(loader)
    _RUNNING.add(batches)
    while True:
        try:
            fetched = next(batches)
        except StopIteration:
            return
        except RuntimeError as error:  # torch says so when a worker is killed
            raise DataError(
                f"a loader process died ({first_line(error)}); memory may be short: try fewer --engine.workers"
            ) from None
        if isinstance(fetched, Failure):
            _raise(fetched)
        yield fetched


@contextlib.contextmanager
def _own_number_of_workers() -> Iterator[None]:
    """Keep torch from advising fewer workers: the user chose their number."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


def _raise(failure: Failure) -> NoReturn:
    """Raise a worker's error here."""
    if failure.kind is not None:
        raise failure.kind(failure.text)
    error = RuntimeError(f"in a loader process: {failure.text}")
    error.add_note(failure.trace)
    raise error


def _calm_worker(number: int) -> None:
    """Leave signals to the process that trains: it saves and then ends its workers."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(name, signal.SIG_IGN)
    gc.freeze()  # what came with the fork is not walked again, so that its pages stay shared


def _as_is(fetched: Sequence[Tensor] | Failure) -> Sequence[Tensor] | Failure:
    """No collation: a batch is fetched whole."""
    return fetched
