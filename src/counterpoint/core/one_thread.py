"""One thread for work of many small operations, and whole pieces of work side by side, one thread each.

An operation that is split over threads ends when the last of them is done. Beside another program one of them often
waits for a core, and thousands of small operations wait as often: a linear probe took 12 times as long.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

from counterpoint.core.thread_parts import _pool

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread(*, is_wanted: bool = True) -> Iterator[None]:
    """Compute with one thread, in torch and in NumPy's and SciPy's linear algebra.

    Args:
        is_wanted: False leaves everything as it is, for sizes at which more threads pay.
    """
    if not is_wanted:
        yield
        return
    num_threads = torch.get_num_threads()
    with one_blas_thread():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(num_threads)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute with one thread in NumPy's and SciPy's linear algebra; torch keeps its own."""
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What ``work`` gives for each item, in order; as many at a time as torch has threads, each done by one thread.

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


@cache
def _thread_pools() -> ThreadpoolController:
    """The libraries' thread pools; looking for them takes some milliseconds, and callers have loaded theirs."""
    return ThreadpoolController()
