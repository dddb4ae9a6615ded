r"""Processes that share one batch; the only module that talks to torch.distributed.

Every rank r turns its samples into a value :math:`L_r`, and what is optimised is their mean. The derivatives here are
those of the sum :math:`\sum_r L_r`: what one rank's tensor does to the values of all ranks is added up. Where gradients
are then averaged over the ranks, as data-parallel training does, the result is the gradient of the mean. All
collectives are linear and differentiable in either mode any number of times; every rank must call them in the same
order. Without an initialised process group, or with a group of one, all functions are what they are for one process.
"""

# W ranks, N samples per rank, M columns (keys), D features

import datetime
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from counterpoint.core.ranks import Ranks

Map = Callable[[Tensor], Tensor]
TIMEOUT_SECONDS = 1800  # how long a collective waits for the slowest rank, as torch has it
JOIN_SECONDS = 600  # how long a rank waits for the others to come
RETRY_SECONDS = 2.0


def join_ranks(ranks: Ranks, device: torch.device, *, timeout: float = TIMEOUT_SECONDS) -> None:
    """Join the other processes; do nothing for one process, or if the group is there already.

    Tensors on the CPU go through gloo on every device, so that flags and texts never wait for a GPU.

    Args:
        ranks: rank and address of this process.
        device: device that this process computes on.
        timeout: seconds that a collective waits for the slowest rank before it fails.
    """
    if ranks.world_size == 1 or dist.is_initialized():
        return
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.set_device(device)  # nccl takes the current one
    to_come = min(timeout, JOIN_SECONDS)
    # Under torchrun its agent keeps the store where ranks leave their addresses, and rank 0 joins as the others do.
    is_master = ranks.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not is_master:
        _await_first_rank(ranks, to_come)
    wait = datetime.timedelta(seconds=to_come)
    store = TCPStore(ranks.address, ranks.port, ranks.world_size, is_master=is_master, timeout=wait)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if is_gpu else "gloo",
        # torchrun keeps its store when it starts the ranks again, and in it the addresses of those that are gone: each
        # start has names of its own.
        store=PrefixStore(f"start-{ranks.restarts}", store),
        rank=ranks.rank,
        world_size=ranks.world_size,
        timeout=wait,
    )
    # A rank that computes is waited for longer than one that may never come.
    group: Any = dist.group.WORLD
    for kind in {"cpu", device.type}:
        group._get_backend(torch.device(kind))._set_default_timeout(datetime.timedelta(seconds=timeout))


def leave_ranks(*, is_orderly: bool = True) -> None:
    """Leave the other processes together: a rank that leaves early would break their connection.

    Args:
        is_orderly: whether to wait for the others; False after an error that they may never hear of.
    """
    if not dist.is_initialized():
        return
    try:
        if is_orderly:
            barrier()
    finally:
        # Always: a process that ends with its group still open is now and then aborted.
        dist.destroy_process_group()


def is_lost_contact(error: Exception) -> bool:
    """Tell whether an error of a collective says that another rank is gone."""
    # Which class is raised depends on backend and place; gloo's own errors are plain RuntimeErrors.
    words = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in words or "nccl" in words or "connection" in words


def is_first_rank() -> bool:
    """Tell whether this process is rank 0, which alone writes the run folder; True for one process.

    >>> is_first_rank()
    True
    """
    return rank() == 0


def barrier() -> None:
    """Wait until every rank is here."""
    if world_size() > 1:
        # Not `dist.barrier`, which takes the GPU where there is nccl: a tensor on the CPU goes through gloo, and no sum
        # is known before all have sent.
        dist.all_reduce(torch.zeros(1))


def gather_texts(text: str) -> list[str]:
    """Texts of all ranks in the order of ranks, on every rank; they travel as UTF-8, never as pickles.

    >>> gather_texts("ok")
    ['ok']
    """
    if world_size() == 1:
        return [text]
    # Paths may hold bytes that are no UTF-8.
    own = torch.tensor(list(text.encode("utf-8", errors="surrogateescape")), dtype=torch.uint8)
    # Lengths first: a collective takes tensors of one shape. All ranks then know whether there is anything to send.
    sizes: list[int] = gather_rows(torch.tensor([len(own)])).tolist()
    padded = torch.zeros(1, max(sizes), dtype=torch.uint8)
    padded[0, : len(own)] = own
    rows = gather_rows(padded) if max(sizes) else padded.expand(world_size(), 0)
    return [
        bytes(row[:size].tolist()).decode("utf-8", errors="surrogateescape")
        for row, size in zip(rows, sizes, strict=True)
    ]


def broadcast_text(text: str) -> str:
    """Rank 0's text on every rank.

    Args:
        text: text of rank 0; ignored on the other ranks.

    >>> broadcast_text("run-7")
    'run-7'
    """
    return gather_texts(text if is_first_rank() else "")[0]


def ranks_that_differ(text: str) -> list[int]:
    """Ranks whose text is not rank 0's; empty if all agree. Every rank gets the same answer.

    >>> ranks_that_differ("settings")
    []
    """
    texts = gather_texts(text)
    return [number for number, other in enumerate(texts) if other != texts[0]]


def world_size() -> int:
    """Number of ranks; 1 without a process group.

    >>> world_size()
    1
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process, 0 <= rank < world size; 0 without a process group.

    >>> rank()
    0
    """
    return dist.get_rank() if world_size() > 1 else 0


def own_rows(num_local: int) -> slice:
    """Positions of this rank's samples among the rows of ``gather_rows``.

    Args:
        num_local: samples per rank.

    >>> own_rows(4)
    slice(0, 4, None)
    """
    return slice(rank() * num_local, (rank() + 1) * num_local)


def gather_rows(x_ND: Tensor) -> Tensor:
    r"""Rows of all ranks in the order of ranks, shape (W n, ...).

    Its gradient sums over ranks, :math:`\bar x_r = \sum_q (\partial L_q / \partial X)_{\text{rows of } r}`: a sample is
    a key on every rank, and all of them pull at it. bfloat16 and float16 are summed in float32.

    Args:
        x_ND: rows of this rank, (n, ...), of the same shape and dtype on every rank (see ``check_equal_batches``).

    >>> gather_rows(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """
    return x_ND if world_size() == 1 else _over_ranks(x_ND, _all_rows, _sum_of_own_rows)


def sum_over_ranks(x: Tensor) -> Tensor:
    """Entrywise sum of a tensor over ranks, the same on every rank; its gradient is summed over ranks, too.

    Args:
        x: tensor of any shape, the same shape on every rank.

    >>> sum_over_ranks(torch.tensor([3.0]))
    tensor([3.])
    """
    return x if world_size() == 1 else _over_ranks(x, _total, _total)


def logsumexp_over_ranks(x: Tensor) -> Tensor:
    r"""Entrywise :math:`\log \sum_r e^{x_r}`: merges log-sum-exps over parts of the rows into those over all rows.

    Shifted by the largest entry over ranks, so that nothing overflows. Minus infinity on every rank (no pair counts)
    stays minus infinity and has gradient zero.

    Args:
        x: tensor of any shape, the same shape on every rank.

    >>> logsumexp_over_ranks(torch.tensor([0.5, -torch.inf]))
    tensor([0.5000,   -inf])
    """
    if world_size() == 1:
        return x
    largest = _over_ranks(x.detach(), _largest, _largest)  # detached: no derivative asks for an adjoint
    # -inf - (-inf) and the slope of log at 0 would make NaN where every rank has -inf; both are masked.
    is_empty = largest == -torch.inf
    # The shift is held fixed: it cancels, so that derivatives of any order are exact.
    total = sum_over_ranks(torch.exp(x - largest.masked_fill(is_empty, 0.0)))
    return torch.log(total.masked_fill(is_empty, 1.0)) + largest


def merge_columns(partial_M: Tensor, in_log_domain: bool) -> Tensor:
    """Statistics of all columns, from those over this rank's rows only.

    Args:
        partial_M: per column, the sum or log-sum-exp over this rank's rows.
        in_log_domain: whether they are log-sum-exps.
    """
    return logsumexp_over_ranks(partial_M) if in_log_domain else sum_over_ranks(partial_M)


def check_equal_batches(x_ND: Tensor, labels_N: Tensor | None = None) -> None:
    """Require batches of one size on all ranks; if they differ, every rank raises, so that none is left waiting.

    With unequal batches the mean over ranks of mean losses weighs samples unequally: it is not the loss of the batch.

    Args:
        x_ND: this rank's samples, (n, d).
        labels_N: their labels, or None.

    Raises:
        ValueError: numbers of samples or features differ, or labels are missing on some ranks.
    """
    if world_size() == 1:
        return
    # The counts travel as a batch of their own: one collective, and every rank sees all of them.
    own = torch.tensor([x_ND.shape[0], x_ND.shape[1], labels_N is not None], device=x_ND.device)
    samples, features, labelled = gather_rows(own[None, :]).mT.tolist()
    for noun, counts, remedy in (
        ("samples", samples, "leave the incomplete last batch out (drop_last=True)"),
        ("features", features, "use one encoder"),
        ("sets of labels", labelled, "pass labels on all ranks or on none"),
    ):
        if len(set(counts)) > 1:
            listed = ", ".join(map(str, counts))
            raise ValueError(
                f"batches must be equally large on all ranks, got {listed} {noun} on ranks 0, 1, ...; {remedy}"
            )


def _await_first_rank(ranks: Ranks, timeout: float) -> None:
    """Wait until the store can be reached; torch's own waiting writes its C++ stack to the terminal."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((ranks.address, ranks.port), timeout=RETRY_SECONDS).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                place = f"{ranks.address}:{ranks.port}"
                raise RuntimeError(f"no connection to rank 0 at {place} within {timeout:g} s: {error}") from None
        time.sleep(RETRY_SECONDS / 10)


def _over_ranks(x: Tensor, own: Map, adjoint: Map) -> Tensor:
    return _OverRanks.apply(x, own, adjoint)  # pyright: ignore[reportReturnType]


def _wide(x: Tensor) -> Tensor:
    """Copy a tensor to add up in: float32 at least, contiguous."""
    # Half precision would round once per rank; the copy is what the collective writes to.
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return x.to(dtype, copy=True, memory_format=torch.contiguous_format)


class _OverRanks(Function):
    """A linear map over ranks, and the adjoint that carries gradients back; its derivatives need nothing else."""

    @staticmethod
    def forward(x: Tensor, own: Map, adjoint: Map) -> Tensor:
        return own(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Map, Map], output: Tensor) -> None:
        _, ctx.own, ctx.adjoint = inputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        # The adjoint of the adjoint is the map itself, which gives derivatives of any order.
        return _over_ranks(gradient, ctx.adjoint, ctx.own), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _over_ranks(tangent, ctx.own, ctx.adjoint)  # linear: the tangent goes the same way


def _all_rows(x_ND: Tensor) -> Tensor:
    """Rows of all ranks; the adjoint of ``_sum_of_own_rows``."""
    # One tensor that is filled in place, not a list of W to be joined.
    all_MD = x_ND.new_empty(world_size() * len(x_ND), *x_ND.shape[1:])
    dist.all_gather_into_tensor(all_MD, x_ND.contiguous())
    return all_MD


def _sum_of_own_rows(x_MD: Tensor) -> Tensor:
    """Each rank's own rows of the sum over ranks; the adjoint of ``_all_rows``."""
    wide_MD = _wide(x_MD)
    own_ND = wide_MD.new_empty(len(x_MD) // world_size(), *x_MD.shape[1:])
    # Not all_reduce and a slice: each rank receives its own rows only.
    dist.reduce_scatter_tensor(own_ND, wide_MD)
    return own_ND.to(x_MD.dtype)


def _total(x: Tensor) -> Tensor:
    total = _wide(x)
    dist.all_reduce(total)
    return total.to(x.dtype)


def _largest(x: Tensor) -> Tensor:
    largest = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return largest
