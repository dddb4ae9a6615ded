"""A batch in parts, one thread each: many small operations run faster side by side than each split over all threads."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import torch
from torch import Tensor

SMALLEST_PART = 32  # rows below which a second thread does not pay


def in_parts(work: Callable[[slice], Tensor], num_rows: int) -> Tensor:
    """Rows worked on in as many parts as torch has threads; the result is that of one part.

    Args:
        work: gives the rows of a slice, each independent of the others.
        num_rows: of the batch.

    >>> in_parts(lambda rows: torch.arange(100)[rows], 100).sum()
    tensor(4950)
    """
    num_parts = min(torch.get_num_threads(), num_rows // SMALLEST_PART)
    if num_parts < 2:
        return work(slice(0, num_rows))
    edges = [num_rows * number // num_parts for number in range(num_parts + 1)]
    slices = [slice(first, last) for first, last in itertools.pairwise(edges)]
    return torch.cat(list(_pool(torch.get_num_threads()).map(work, slices)))


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads whose own operations are not split any further."""
    all_there = Barrier(num_threads + 1)

    def enter() -> None:
        torch.set_num_threads(1)
        all_there.wait()

    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="views")
    for _ in range(num_threads):
        pool.submit(enter)
    all_there.wait()
    torch.set_num_threads(num_threads)  # a thread keeps its own number, but some libraries keep the last one set
    return pool


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live on in a forked process
