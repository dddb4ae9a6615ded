"""The rows of a matrix in blocks: one thread for each where that pays, otherwise all by the calling thread.

Whoever calls stays ``alone``: no operation is split over threads, which would wait for each other at its end. Blocks do
not depend on the number of threads, hence bits do not either.
"""

# N, K, M: sides of matrices

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from counterpoint.core.numerics import is_transformed
from counterpoint.core.thread_parts import alone, in_turn

BLOCK = 512  # most rows; smaller blocks cost more calls than a second thread gains
FOR_A_THREAD = 1 << 24  # multiplications below which waking another thread does not pay

Result = TypeVar("Result")


def blocks(num_rows: int, num_parts: int = 1) -> list[slice]:
    """Ranges of at most ``BLOCK`` rows, of which none lies in two of as many equal parts; everything, if that is one.

    >>> blocks(512, 2), blocks(1200, 2)
    ([slice(0, 512, None)], [slice(0, 300, None), slice(300, 600, None), slice(600, 900, None), slice(900, 1200, None)])
    """
    if num_rows <= BLOCK:
        return [slice(0, num_rows)]
    number = num_parts * -(-num_rows // (num_parts * BLOCK))
    edges = [num_rows * place // number for place in range(number + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(edges)]


def each_block(rows: list[slice], work: Callable[[slice], Result], num_multiplications: int) -> list[Result]:
    """What the work gives for each block, in order; none writes to another's rows.

    Args:
        rows: from ``blocks``.
        work: done without automatic derivatives.
        num_multiplications: of all blocks.
    """
    if len(rows) > 1 and num_multiplications >= FOR_A_THREAD and torch.get_num_threads() > 1:
        found: dict[int, Result] = {}
        in_turn(rows, lambda: lambda own: found.update({own.start: work(own)}), lambda own: [own.start])
        return [found[own.start] for own in rows]
    with alone():
        return [work(own) for own in rows]


def own_rows(matrix: Tensor, rows: slice) -> Tensor:
    """Those rows of a matrix; where they are all, the matrix itself, which takes no call."""
    return matrix if rows.stop - rows.start == matrix.shape[0] else matrix[rows]


def joined(parts: list[Tensor]) -> Tensor:
    """Blocks below each other."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def product(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    """A B, block by block; differentiable to any order.

    >>> product(torch.eye(2), torch.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    if a_NK.device.type != "cpu" or torch.compiler.is_compiling() or is_transformed():
        return a_NK @ b_KM
    return _Product.apply(a_NK, b_KM)  # pyright: ignore[reportReturnType]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a_NK: Tensor, b_KM: Tensor) -> Tensor:
        ctx.save_for_backward(a_NK, b_KM)
        product_NM = a_NK.new_empty(len(a_NK), b_KM.shape[1])

        def work(rows: slice) -> None:
            torch.mm(a_NK[rows], b_KM, out=product_NM[rows])

        each_block(blocks(len(a_NK)), work, a_NK.numel() * b_KM.shape[1])
        return product_NM

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        a_NK, b_KM = ctx.saved_tensors
        (upstream_NM,), (wants_a, wants_b) = upstream, ctx.needs_input_grad
        for_a_NK = product(upstream_NM, b_KM.mT) if wants_a else None
        return for_a_NK, product(a_NK.mT, upstream_NM) if wants_b else None
