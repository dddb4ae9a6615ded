"""The rows of a small matrix in blocks: one thread for each where that pays, otherwise all by the calling thread.

Whoever calls stays ``alone``: no operation is split over threads, which would wait for each other at its end. Blocks do
not depend on the number of threads, hence bits do not either.
"""

# V rows

import itertools
from collections.abc import Callable

import torch

from counterpoint.core.thread_parts import alone, in_turn

BLOCK = 256  # most rows
FOR_A_THREAD = 1 << 24  # multiplications below which waking another thread does not pay


def blocks(num_rows: int, num_parts: int = 1) -> list[slice]:
    """Ranges of at most ``BLOCK`` rows, of which none lies in two of as many equal parts; everything, if that is one.

    >>> blocks(256, 2), blocks(600, 2)
    ([slice(0, 256, None)], [slice(0, 150, None), slice(150, 300, None), slice(300, 450, None), slice(450, 600, None)])
    """
    if num_rows <= BLOCK:
        return [slice(0, num_rows)]
    number = num_parts * -(-num_rows // (num_parts * BLOCK))
    edges = [num_rows * place // number for place in range(number + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(edges)]


def each_block(rows: list[slice], work: Callable[[slice], None], num_multiplications: int) -> None:
    """Do the work of all blocks, none of which writes to another's rows.

    Args:
        rows: from ``blocks``.
        work: done without automatic derivatives.
        num_multiplications: of all blocks.
    """
    if len(rows) > 1 and num_multiplications >= FOR_A_THREAD and torch.get_num_threads() > 1:
        in_turn(rows, lambda: work, lambda own: [own.start])
        return
    with alone():
        for own in rows:
            work(own)
