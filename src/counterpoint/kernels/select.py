"""Which kernel computes a reduction, and why: by device, dtype, size and psi."""

# N anchors, M keys

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from counterpoint.core.checks import check_choice
from counterpoint.kernels import dense, linear, reference, tiled, triton_pairs
from counterpoint.kernels.contract import PairFunction, PairKernel, PairScores
from counterpoint.kernels.pair_functions import IDENTITY

DENSE_PAIRS = 512 * 512  # up to this many pairs a matrix fits the cache, and fewer calls win
# How float32 products are made on a GPU follows torch.set_float32_matmul_precision.
FUSED = {"highest": "triton", "high": "triton-tf32", "medium": "triton-bf16"}

CATALOGUE: Mapping[str, PairKernel] = {
    "dense": dense,
    "linear": linear,
    "reference": reference,
    "tiled": tiled,
    "triton": triton_pairs,
    "triton-tf32": triton_pairs.TritonPairs("tf32"),
    "triton-bf16": triton_pairs.TritonPairs("bf16"),
}

_forced: ContextVar[str | None] = ContextVar("counterpoint_kernel", default=None)

_records: ContextVar[tuple[list["Choice"], ...]] = ContextVar("counterpoint_kernel_choices", default=())


@dataclass(frozen=True)
class Choice:
    """A kernel and the reason for it, as recorded in ``run.json``."""

    name: str
    reason: str

    @property
    def kernel(self) -> PairKernel:
        """The implementation."""
        return CATALOGUE[self.name]


def select(scores: PairScores, psi: PairFunction) -> Choice:
    """Choose the kernel for some scores.

    Raises:
        TypeError: no kernel takes this dtype.
    """
    dtype = scores.terms.anchors_ND.dtype
    if not dtype.is_floating_point:
        raise TypeError(f"pair kernels take floating tensors, got {dtype}; convert with .float()")
    return note(_choose(scores, psi))


def _choose(scores: PairScores, psi: PairFunction) -> Choice:
    """The choice, unless one is asked for."""
    name = _forced.get()
    if name == "linear" and psi is not IDENTITY:
        raise ValueError(f"kernel linear is for psi = identity, got {psi.name}; leave the choice to select")
    if name is not None:
        return Choice(name, "asked for")
    if psi is IDENTITY:
        return Choice("linear", "psi is linear: sums of keys suffice")
    num_pairs, device = len(scores.terms.anchors_ND) * len(scores.keys_MD), scores.terms.anchors_ND.device
    if num_pairs <= DENSE_PAIRS:
        return Choice("dense", f"{num_pairs:,} pairs fit the cache")
    if device.type != "cuda":
        return Choice("tiled", f"{num_pairs:,} pairs on {device.type}")
    obstacle = triton_pairs.why_not(scores, psi)
    if obstacle is not None:
        return Choice("tiled", f"{num_pairs:,} pairs on cuda; no fused program: {obstacle}")
    precision = torch.get_float32_matmul_precision()
    return Choice(FUSED[precision], f"{num_pairs:,} pairs on cuda, fused; float32 products as for {precision!r}")


def note(choice: Choice) -> Choice:
    """Tell whoever records choices."""
    for record in _records.get():
        if choice not in record:
            record.append(choice)
    return choice


@contextmanager
def recording() -> Iterator[list[Choice]]:
    """Collect the distinct choices made inside the block."""
    record: list[Choice] = []
    token = _records.set((*_records.get(), record))
    try:
        yield record
    finally:
        _records.reset(token)


def is_free() -> bool:
    """Whether no kernel is asked for by ``use``."""
    return _forced.get() is None


@contextmanager
def use(name: str) -> Iterator[None]:
    """Make every reduction inside the block use one kernel.

    Raises:
        ValueError: an unknown name.

    >>> with use("tiled"):
    ...     pass
    """
    check_choice(name, "kernel", CATALOGUE)
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)
