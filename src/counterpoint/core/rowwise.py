"""Functions of large matrices, row by row: a few hundred rows at a time, forward and backward, one thread each.

Of a sum over a row torch gives other bits for other numbers of threads, and each operation split over all threads waits
for the last of them.
"""

# N rows, D features; N, K, M: sides of factors

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.thread_parts import blocks, each_block, in_turn
from counterpoint.core.transforms import is_transformed

ROWS = 512  # a part: what a core's cache holds
FEW = 1 << 15  # numbers that torch does not split over threads either
FOR_A_THREAD = 1 << 20  # numbers below which waking another thread does not pay

Pull = Callable[..., tuple[Tensor, ...]]


def rowwise(function: Callable[..., Tensor], *inputs_ND: Tensor, pull: Pull | None = None) -> Tensor:
    """Value of a function whose rows depend on the same rows of its inputs; differentiable to any order.

    Args:
        function: of tensors with any number of rows.
        inputs_ND: tensors with the same number of rows.
        pull: gradient for each input from the upstream one and the inputs, of any rows; None derives it, which takes
            longer. Second derivatives are always derived.

    >>> rowwise(torch.add, torch.ones(2, 2), torch.eye(2))
    tensor([[2., 1.],
            [1., 2.]])
    """
    first = inputs_ND[0]
    if first.numel() <= FEW or first.device.type != "cpu" or is_transformed() or torch.compiler.is_compiling():
        return function(*inputs_ND)
    return _Rowwise.apply(function, pull, *inputs_ND)  # pyright: ignore[reportReturnType]


def row_dots(left_ND: Tensor, right_ND: Tensor) -> Tensor:
    """Inner product of each row with the same row of another matrix, (n,).

    >>> row_dots(torch.ones(2, 3), torch.arange(6.0).view(2, 3))
    tensor([ 3., 12.])
    """
    return rowwise(_dots, left_ND, right_ND, pull=_pull_dots)


def product(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    """A B, block by block; differentiable to any order.

    >>> product(torch.eye(2), torch.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    if a_NK.device.type != "cpu" or torch.compiler.is_compiling() or is_transformed():
        return a_NK @ b_KM
    return _Product.apply(a_NK, b_KM)  # pyright: ignore[reportReturnType]


def by_rows(vectors_ND: Tensor, work: Callable[[slice], Any]) -> None:
    """Do some work for a few hundred rows at a time, on a CPU in several threads; in one go elsewhere."""
    if vectors_ND.device.type != "cpu":
        work(slice(0, len(vectors_ND)))
        return
    rows = [slice(first, min(first + ROWS, len(vectors_ND))) for first in range(0, len(vectors_ND), ROWS)]
    most_threads = 1 + vectors_ND.numel() // FOR_A_THREAD
    in_turn(rows, lambda: work, lambda own: [own.start], most_threads=most_threads)


class _Rowwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], pull: Pull | None, *inputs_ND: Tensor) -> Tensor:
        ctx.function, ctx.pull = function, pull
        ctx.save_for_backward(*inputs_ND)
        like = function(*(value[:1] for value in inputs_ND))
        result = like.new_empty(len(inputs_ND[0]), *like.shape[1:])

        def work(rows: slice) -> None:
            result[rows] = function(*(value[rows] for value in inputs_ND))

        by_rows(inputs_ND[0], work)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        inputs_ND, is_wanted = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return None, None, *_gradients(ctx.function, inputs_ND, is_wanted, upstream[0], is_differentiable=True)
        found = [torch.empty_like(z) if wanted else None for z, wanted in zip(inputs_ND, is_wanted, strict=True)]

        def pulled(rows: slice) -> Sequence[Tensor | None]:
            parts_ND = [value[rows].detach() for value in inputs_ND]
            if ctx.pull is not None:
                return ctx.pull(upstream[0][rows], *parts_ND)
            return _gradients(ctx.function, parts_ND, is_wanted, upstream[0][rows])

        def work(rows: slice) -> None:
            for all_N, own in zip(found, pulled(rows), strict=True):
                if all_N is not None and own is not None:
                    all_N[rows] = own

        by_rows(inputs_ND[0], work)
        return None, None, *found


def _gradients(
    function: Callable[..., Tensor],
    inputs_ND: Any,
    is_wanted: tuple[bool, ...],
    upstream: Tensor,
    *,
    is_differentiable: bool = False,
) -> list[Tensor | None]:
    """Gradient for each input that wants one."""
    with torch.enable_grad():
        # Nodes of their own stop the inner pass here: one input may be a function of the other.
        nodes = [
            z.view_as(z) if is_differentiable else z.requires_grad_(w)
            for z, w in zip(inputs_ND, is_wanted, strict=True)
        ]
        wanted = [node for node, w in zip(nodes, is_wanted, strict=True) if w]
        found = iter(torch.autograd.grad(function(*nodes), wanted, upstream, create_graph=is_differentiable))
    return [next(found) if w else None for w in is_wanted]


def _pull_dots(upstream_N: Tensor, left_ND: Tensor, right_ND: Tensor) -> tuple[Tensor, Tensor]:
    return upstream_N[:, None] * right_ND, upstream_N[:, None] * left_ND


def _dots(left_ND: Tensor, right_ND: Tensor) -> Tensor:
    return (left_ND * right_ND).sum(1)


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
