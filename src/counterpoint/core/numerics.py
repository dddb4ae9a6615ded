"""Functions of rows that more than one layer needs; large matrices a few hundred rows at a time, one thread each.

Torch's sum over a row has other bits for other numbers of threads, and each operation split over all threads waits for
the last of them.
"""

# N rows, D features; N, K, M: sides of factors

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

from counterpoint.core.processor_routines import multiply
from counterpoint.core.stored_rows import row_slices
from counterpoint.core.thread_parts import blocks, each_block, ordered_writes

# Lengths whose squares neither overflow nor vanish in float32.
ORDINARY_LENGTHS = (1e-15, 1e15)
ROWS = 512  # a part: what a core's cache holds
FEW = 1 << 15  # numbers that torch does not split over threads either
FOR_A_THREAD = 1 << 20  # numbers below which waking another thread does not pay

Pull = Callable[..., tuple[Tensor, ...]]
Value = TypeVar("Value")


def unit_rows(z_ND: Tensor) -> Tensor:
    """Scale each row to unit length; a zero row has no direction and stays zero, with zero gradient.

    Differs from ``torch.nn.functional.normalize``, whose gradient at a zero row is 1 / eps = 1e12: a single sample
    whose features are all silent would then wreck the optimiser's state. A row so short that its gradient could leave
    the dtype keeps its direction and gets zero gradient, too.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000], [0.0000, 0.0000]])
    """
    # Dividing by the largest entry first keeps the squares from over- or underflowing.
    # The largest entry is held fixed: it cancels, so that derivatives are exact without its own.
    largest_N1 = torch.linalg.vector_norm(z_ND.detach(), ord=torch.inf, dim=1, keepdim=True)
    tiny = torch.finfo(z_ND.dtype).tiny
    # Size below which 1 / size, times an ordinary gradient, may overflow, and what lifts shorter rows from it; float16
    # has no room for more.
    shortest, lift = (tiny, 2.0**10) if z_ND.dtype == torch.float16 else (tiny * 2.0**26, 2.0**100)
    # The same bits, with a fifth of the memory traffic.
    if not z_ND.requires_grad and z_ND.device.type == "cpu" and is_readable(z_ND) and (largest_N1 >= shortest).all():
        scaled_ND = z_ND / largest_N1
        return scaled_ND.div_(torch.linalg.vector_norm(scaled_ND, dim=1, keepdim=True))
    is_short_N1 = largest_N1 < shortest
    z_ND = torch.where(is_short_N1, z_ND.detach() * lift, z_ND)  # by a power of two: the same direction to the last bit
    largest_N1 = torch.where(is_short_N1, largest_N1 * lift, largest_N1)
    is_zero_N1 = largest_N1 == 0
    scaled_ND = z_ND / torch.where(is_zero_N1, 1.0, largest_N1)
    # Ones replace zero rows: the second derivative of a length at zero is NaN, and 0 times NaN in the outer
    # `where` is, too.
    norm_N1 = torch.where(
        is_zero_N1, 1.0, torch.linalg.vector_norm(torch.where(is_zero_N1, 1.0, scaled_ND), dim=1, keepdim=True)
    )
    return torch.where(is_zero_N1, 0.0, scaled_ND / norm_N1)


def take_radial(gradient_ND: Tensor, unit_ND: Tensor) -> Tensor:
    """Take from each row, in place, its part along a unit vector, which scaling to unit length has no slope in.

    Returns:
        The length of that part, (n, 1).

    >>> gradient, unit = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    >>> take_radial(gradient, unit), gradient
    (tensor([[2.]]), tensor([[0., 3.]]))
    """
    radial_N1 = (unit_ND * gradient_ND).sum(1, keepdim=True)
    gradient_ND.addcmul_(unit_ND, radial_N1, value=-1)
    return radial_N1


def into_ball(z_ND: Tensor, radius: float) -> Tensor:
    """Shorten the rows that are longer than the radius, > 0, to that length; the others stay as they are.

    >>> into_ball(torch.tensor([[6.0, 8.0], [0.3, 0.4]]), 5.0)
    tensor([[3.0000, 4.0000], [0.3000, 0.4000]])
    """
    # A step function: no derivative.
    is_inside_N1 = torch.linalg.vector_norm(z_ND.detach(), dim=1, keepdim=True) <= radius
    return torch.where(is_inside_N1, z_ND, radius * unit_rows(z_ND))


def row_entropy(weight_NM: Tensor) -> Tensor:
    r"""Entropy of each row scaled to sum 1, :math:`-\sum_j p_{ij} \log p_{ij}` in nats; NaN for a row without weight.

    Args:
        weight_NM: finite weights (n, m), none negative.

    >>> row_entropy(torch.tensor([[2.0, 2.0, 0.0], [0.0, 3.0, 0.0]])).exp()
    tensor([2., 1.])
    """
    p_NM = weight_NM / weight_NM.amax(dim=1, keepdim=True)  # 0 / 0 is the NaN; sums of large weights stay finite
    p_NM = p_NM / p_NM.sum(dim=1, keepdim=True)
    return torch.special.entr(p_NM).sum(dim=1)


def is_transformed() -> bool:
    """Tell whether a ``torch.func`` transform or forward-mode differentiation is active.

    >>> is_transformed()
    False
    """
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def is_readable(x: Tensor) -> bool:
    """Tell whether the numbers of a tensor may be read: nothing is compiled, traced, captured, mapped or made up.

    >>> is_readable(torch.ones(2))
    True
    """
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    if is_traced or is_transformed():
        return False
    # Modes that see every operation may run it on tensors without numbers.
    return torch._C._len_torch_dispatch_stack() == 0 and not (x.is_cuda and torch.cuda.is_current_stream_capturing())


@contextmanager
def holding(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Give a variable a value inside the block, in this context alone."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def without_autocast(devices: Iterable[str]) -> Iterator[None]:
    """Compute in the precision of the inputs, whatever autocast says.

    >>> with torch.autocast("cpu", torch.bfloat16), without_autocast(["cpu"]):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.float32
    """
    with ExitStack() as off:
        for device in devices:
            off.enter_context(torch.autocast(device, enabled=False))
        yield


def rowwise(function: Callable[..., Tensor], *inputs_ND: Tensor, pull: Pull | None = None) -> Tensor:
    """Value of a function whose rows depend on the same rows of its inputs; differentiable to any order.

    Args:
        function: function of tensors with any number of rows.
        inputs_ND: tensors with the same number of rows.
        pull: gradient for each input from the upstream one and the inputs, of any rows; None derives it, which takes
            longer. Second derivatives are always derived.

    >>> rowwise(torch.add, torch.ones(2, 2), torch.eye(2))
    tensor([[2., 1.],
            [1., 2.]])
    """
    first = inputs_ND[0]
    is_derived = first.numel() <= FEW or (first.device.type != "cpu" and pull is None)
    if is_derived or is_transformed() or torch.compiler.is_compiling():
        return function(*inputs_ND)
    return _Rowwise.apply(function, pull, *inputs_ND)  # pyright: ignore[reportReturnType]


def unit_doubles(z_ND: Tensor) -> Tensor:
    """Rows at unit length, float64; the only copy of such a size that is made."""
    return rowwise(lambda rows: unit_rows(rows.double()), z_ND)


def row_dots(left_ND: Tensor, right_ND: Tensor) -> Tensor:
    """Inner product of each row with the same row of another matrix, (n,).

    >>> row_dots(torch.ones(2, 3), torch.arange(6.0).view(2, 3))
    tensor([ 3., 12.])
    """
    return rowwise(
        lambda left_ND, right_ND: (left_ND * right_ND).sum(1),
        left_ND,
        right_ND,
        pull=lambda upstream_N, left_ND, right_ND: (upstream_N[:, None] * right_ND, upstream_N[:, None] * left_ND),
    )


def product(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    """A B, block by block; differentiable to any order.

    >>> product(torch.eye(2), torch.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    # Small ones go by blocks as well: with some instruction sets the bits of theirs depend on the threads, too.
    if a_NK.device.type != "cpu" or torch.compiler.is_compiling() or is_transformed():
        return a_NK @ b_KM
    return _Product.apply(a_NK, b_KM)  # pyright: ignore[reportReturnType]


def evenly_spaced(positions_N: Tensor, at_most: int) -> Tensor:
    """Choose a limited number of positions, evenly spaced, as samples of one class often lie together.

    >>> evenly_spaced(torch.arange(9), 3)
    tensor([0, 4, 8])
    """
    return positions_N[torch.linspace(0, len(positions_N) - 1, min(len(positions_N), at_most)).long()]


def by_rows(vectors_ND: Tensor, work: Callable[[slice], Any]) -> None:
    """Do some work for a few hundred rows at a time, on a CPU in several threads; in one go elsewhere."""
    if vectors_ND.device.type != "cpu":
        work(slice(0, len(vectors_ND)))
        return
    most_threads = 1 + vectors_ND.numel() // FOR_A_THREAD
    ordered_writes(row_slices(len(vectors_ND), ROWS), lambda: work, lambda own: [own.start], most_threads=most_threads)


class _Rowwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], pull: Pull | None, *inputs_ND: Tensor) -> Tensor:
        ctx.function, ctx.pull = function, pull
        ctx.save_for_backward(*inputs_ND)
        if inputs_ND[0].device.type != "cpu":
            return function(*inputs_ND)
        like = function(*(value[:1] for value in inputs_ND))  # dtype and shape of a row of the result
        result = like.new_empty(len(inputs_ND[0]), *like.shape[1:])

        def work(rows: slice) -> None:
            result[rows] = function(*(value[rows] for value in inputs_ND))

        by_rows(inputs_ND[0], work)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        inputs_ND, is_wanted = ctx.saved_tensors, ctx.needs_input_grad[2:]
        # A graph of the gradient is asked for, which the threads of `ordered_writes` do not record: one pass over all
        # rows.
        if torch.is_grad_enabled():
            return None, None, *_gradients(ctx.function, inputs_ND, is_wanted, upstream[0], is_differentiable=True)
        gradients = [torch.empty_like(z) if wanted else None for z, wanted in zip(inputs_ND, is_wanted, strict=True)]

        def work(rows: slice) -> None:
            parts_ND = [value[rows].detach() for value in inputs_ND]  # leaves, which `_gradients` turns into inputs
            if ctx.pull is None:
                pulled = _gradients(ctx.function, parts_ND, is_wanted, upstream[0][rows])
            else:
                pulled = ctx.pull(upstream[0][rows], *parts_ND)
            for all_N, own in zip(gradients, pulled, strict=True):
                if all_N is not None and own is not None:
                    all_N[rows] = own

        by_rows(inputs_ND[0], work)
        return None, None, *gradients


def _gradients(
    function: Callable[..., Tensor],
    inputs_ND: Any,
    is_wanted: tuple[bool, ...],
    upstream: Tensor,
    *,
    is_differentiable: bool = False,
) -> list[Tensor | None]:
    with torch.enable_grad():
        # Nodes of their own stop the inner pass here: one input may be a function of the other.
        nodes = [
            z.view_as(z) if is_differentiable else z.requires_grad_(w)
            for z, w in zip(inputs_ND, is_wanted, strict=True)
        ]
        wanted = [node for node, w in zip(nodes, is_wanted, strict=True) if w]
        gradients = iter(torch.autograd.grad(function(*nodes), wanted, upstream, create_graph=is_differentiable))
    return [next(gradients) if w else None for w in is_wanted]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a_NK: Tensor, b_KM: Tensor) -> Tensor:
        ctx.save_for_backward(a_NK, b_KM)
        product_NM = a_NK.new_empty(len(a_NK), b_KM.shape[1])

        def work(rows: slice) -> None:
            room_HM = product_NM[rows]
            if (own_HM := multiply(a_NK[rows], b_KM, room_HW=room_HM)) is not room_HM:
                room_HM.copy_(own_HM)

        each_block(blocks(len(a_NK)), work, a_NK.numel() * b_KM.shape[1])
        return product_NM

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        a_NK, b_KM = ctx.saved_tensors
        (upstream_NM,), (wants_a, wants_b) = upstream, ctx.needs_input_grad
        for_a_NK = product(upstream_NM, b_KM.mT) if wants_a else None
        return for_a_NK, product(a_NK.mT, upstream_NM) if wants_b else None
