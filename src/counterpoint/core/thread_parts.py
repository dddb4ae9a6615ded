"""Work in parts, one thread each: many small operations run faster side by side than each split over all threads.

Split operations also wait for each other at their ends: beside another program, thousands of them wait for its threads,
and a linear probe took 12 times as long. Work that is not a sum of parts is done by one thread (``one_thread``).
"""

import itertools
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Barrier, Condition
from typing import Generic, TypeVar

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

BLOCK = 512  # most rows of a block; smaller ones cost more calls than a second thread gains
FOR_A_THREAD = 1 << 24  # multiplications below which waking another thread does not pay
LEAST_NUMBER = 5e-324  # the least subnormal of float64

Task = TypeVar("Task")
Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_writes(
    tasks: Sequence[Task],
    start: Callable[[], Callable[[Task], None]],
    touches: Callable[[Task], Sequence[Hashable]],
    *,
    most_threads: int | None = None,
) -> None:
    """Do each task once, by as many threads as torch has; tasks that write to the same write in the order of the tasks.

    Sums that tasks add to are therefore the same bits for any number of threads. Nothing is differentiated, and numbers
    too small to be normal count as zero, which spares the processor its slow path.

    Args:
        tasks: tasks to do.
        start: function that each thread calls; it returns the function that does a task, and may make its work space.
        touches: keys of what a task writes to.
        most_threads: largest number of threads that pays; None for no limit.

    >>> total = torch.zeros(3)
    >>> ordered_writes([0, 1, 2, 1], lambda: lambda place: total[place].add_(1), lambda place: [place])
    >>> total
    tensor([1., 2., 1.])
    """
    # 1 in the threads of the pool: work within work never waits for the pool that it occupies.
    num_threads = torch.get_num_threads()
    turns, is_inference = _Turns(tasks, touches), torch.is_inference_mode_enabled()

    def serve() -> None:
        # Both modes belong to a thread, and are not passed on to those of the pool.
        with torch.inference_mode(is_inference), only_values():
            turns.serve(start())

    # A mode that watches operations watches those of its own thread.
    if num_threads < 2 or torch._C._len_torch_dispatch_stack() > 0:
        serve()
        return
    num_servers = min(num_threads, len(tasks), most_threads or num_threads)
    pool = _pool(num_threads)
    helpers = [pool.submit(serve) for _ in range(num_servers - 1)]
    try:
        with single_threaded():  # this thread is awake already, others have to be woken
            serve()
    finally:
        # Without an error no task waits any more; after one, the others begin no further task.
        turns.stop()
        # Helpers that have not begun are not needed; those that have still use the caller's tensors.
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()  # raises what the helper raised


def ordered_map(
    items: Iterable[Item],
    compute: Callable[[Item], Result],
    add: Callable[[Item, Result], object],
    *,
    is_parallel: bool = True,
) -> None:
    """Compute a result of each item, side by side, and add the results in order; one more waits than there are threads.

    Args:
        items: items in their order.
        compute: function of one item, independent of other items.
        add: function that takes an item and its result, one at a time.
        is_parallel: False does everything in this thread, item after item: on other devices, and under transforms.

    >>> squares = []
    >>> ordered_map([3, 1, 2], lambda item: item**2, lambda item, square: squares.append(square))
    >>> squares
    [9, 1, 4]
    """
    if not is_parallel:
        for item in items:
            add(item, compute(item))
        return
    numbered, results = list(items), {}

    def work(task: tuple[int, str]) -> None:
        place, step = task
        if step == "compute":
            results[place] = compute(numbered[place])
        else:
            add(numbered[place], results.pop(place))

    def touches(task: tuple[int, str]) -> tuple[Hashable, ...]:
        place, step = task
        # Results are in slots, one more than threads, so that few are kept at a time. A task that uses a slot
        # writes to it (in the order of tasks); all `add` share a key of their own, so that one runs at a time,
        # in order.
        room = place % num_rooms  # free again when what stood there has been added
        return (room, step) if step == "add" else (room,)

    num_rooms = torch.get_num_threads() + 1
    ordered_writes(
        [(place, step) for place in range(len(numbered)) for step in ("compute", "add")], lambda: work, touches
    )


def blocks(num_rows: int, num_parts: int = 1, most: int = BLOCK) -> list[slice]:
    """Ranges of a limited number of rows, of which none lies in two of as many equal parts; everything, if that is one.

    They do not depend on the number of threads, so the bits of results computed by them do not either.

    >>> blocks(512, 2), blocks(1200, 2)
    ([slice(0, 512, None)], [slice(0, 300, None), slice(300, 600, None), slice(600, 900, None), slice(900, 1200, None)])
    """
    if num_rows <= most:
        return [slice(0, num_rows)]
    # A multiple of num_parts, so that every edge between parts is one between blocks.
    number = num_parts * -(-num_rows // (num_parts * most))
    edges = [num_rows * place // number for place in range(number + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(edges)]


def each_block(rows: list[slice], work: Callable[[slice], Result], num_multiplications: int) -> list[Result]:
    """Results of the work for each block, in order: one thread each if that pays, else all by the calling thread.

    Args:
        rows: blocks, as ``blocks`` gives them.
        work: function of a block, without automatic derivatives; it writes to no other block's rows, in one thread.
        num_multiplications: number of multiplications of all blocks.
    """
    if len(rows) > 1 and num_multiplications >= FOR_A_THREAD and torch.get_num_threads() > 1:
        # A dictionary by the first row: blocks end in any order.
        results: dict[int, Result] = {}
        ordered_writes(rows, lambda: lambda own: results.update({own.start: work(own)}), lambda own: [own.start])
        return [results[own.start] for own in rows]
    with single_threaded():
        return [work(own) for own in rows]


def own_rows(matrix: Tensor, rows: slice) -> Tensor:
    """Some rows of a matrix; if they are all its rows, the matrix itself, which takes no call."""
    return matrix if rows.stop - rows.start == matrix.shape[0] else matrix[rows]


def joined(parts: list[Tensor]) -> Tensor:
    """Blocks below each other."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class single_threaded:  # noqa: N801 (called like a function; no generator, as small batches come in and out of it several times)
    """Operations of this thread are not split over others: for small ones beside other work.

    Beside a busy process a product of two 128 x 128 matrices that is split over two cores took 8 ms, on one 0.05.
    """

    __slots__ = ("_num_threads",)

    def __enter__(self) -> None:
        self._num_threads = torch.get_num_threads()
        if self._num_threads > 1:
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self._num_threads > 1:
            torch.set_num_threads(self._num_threads)


@contextmanager
def one_thread(*, is_wanted: bool = True) -> Iterator[None]:
    """Compute with one thread, in torch and in NumPy's and SciPy's linear algebra.

    Args:
        is_wanted: False leaves everything as it is, for sizes at which more threads pay.
    """
    if not is_wanted:
        yield
        return
    with one_blas_thread(), single_threaded():
        yield


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute with one thread in NumPy's and SciPy's linear algebra; torch keeps its own."""
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Results of ``work`` for all items, in order; as many at a time as torch has threads, each done by one thread.

    An item is computed in the same way whatever the number of threads, so that all give the same bits. Within an item
    a second call does its items one after another.

    >>> side_by_side(lambda row: row.sum(), torch.ones(2, 3))
    [tensor(3.), tensor(3.)]
    """
    num_threads = torch.get_num_threads()
    with one_blas_thread():
        if num_threads == 1:
            return [work(item) for item in items]
        return list(_pool(num_threads).map(work, items))


class _Turns(Generic[Task]):
    """Tasks that wait, and the keys of what the running tasks write to."""

    def __init__(self, tasks: Sequence[Task], touches: Callable[[Task], Sequence[Hashable]]) -> None:
        self._waiting, self._touches = deque(tasks), touches
        self._in_use: set[Hashable] = set()
        self._changed = Condition()

    def serve(self, work: Callable[[Task], None]) -> None:
        while (task := self._next()) is not None:
            try:
                work(task)
            except BaseException:
                # The others must not wait for a result that never comes.
                self.stop()
                raise
            finally:
                with self._changed:  # what the task wrote to is free
                    self._in_use.difference_update(self._touches(task))
                    self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def _next(self) -> Task | None:
        """The first task that no earlier task blocks; waits for one."""
        with self._changed:
            while self._waiting:
                place = self._first_free()
                if place is not None:
                    task = self._waiting[place]
                    del self._waiting[place]
                    # Taken while the lock is held: no other thread sees it free.
                    self._in_use.update(self._touches(task))
                    return task
                self._changed.wait()
            return None

    def _first_free(self) -> int | None:
        """Place of the first task that writes to nothing that is in use, or that a task before it waits for."""
        # No task overtakes one before it that writes to the same: each place gets its sums in the order of
        # tasks.
        blocked = set(self._in_use)
        for place, task in enumerate(self._waiting):
            touched = self._touches(task)
            if blocked.isdisjoint(touched):
                return place
            blocked.update(touched)
        return None


class only_values:  # noqa: N801 (called like a function; a generator and torch's own contexts took 10 us more)
    """Compute without derivatives and without subnormal numbers in this thread."""

    __slots__ = ("_before", "_were_flushed")

    def __enter__(self) -> None:
        # torch has no call that tells the mode: the least subnormal times 1 is 0 where they are flushed.
        self._were_flushed = LEAST_NUMBER * 1.0 == 0.0
        self._before = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()
        torch.set_flush_denormal(True)
        torch._C._set_grad_enabled(False)
        torch._C._set_fwd_grad_enabled(False)

    def __exit__(self, *_: object) -> None:
        torch._C._set_grad_enabled(self._before[0])
        torch._C._set_fwd_grad_enabled(self._before[1])
        torch.set_flush_denormal(self._were_flushed)


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads whose operations are not split any further."""
    # Each thread waits until all have come, so that none of them enters twice and one not at all.
    all_there = Barrier(num_threads + 1)

    def enter() -> None:
        torch.get_num_threads()  # sets the thread up; in its first operation that would overwrite our number
        torch.set_num_threads(1)
        all_there.wait()

    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="parts")
    for _ in range(num_threads):
        pool.submit(enter)
    all_there.wait()
    torch.set_num_threads(num_threads)  # a thread keeps its own number, but some libraries keep the last one set
    return pool


# The libraries' thread pools; looking for them takes some milliseconds, and callers have loaded theirs.
_thread_pools = cache(ThreadpoolController)


if hasattr(os, "register_at_fork"):  # Windows forks no process
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live on in a forked one
