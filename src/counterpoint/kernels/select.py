"""Choice of the kernel that computes a reduction, with the reason: by device, dtype, size and psi."""

# N anchors, M keys

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import torch

from counterpoint.core.checks import check_choice
from counterpoint.core.numerics import holding
from counterpoint.kernels import dense
from counterpoint.kernels.contract import IDENTITY, PairFunction, PairReduction, PairScores
from counterpoint.kernels.cpu import linear, tiled
from counterpoint.kernels.triton import triton_pairs

LARGEST_SMALL = 1024 * 1024  # pairs of a whole matrix in one operation: 4 MiB in float32, which a cache holds
# Pairs whose upper triangle is kept, 34 MiB; tiles, which compute pairs twice, took 1.1 to 1.9 times as long (D = 128).
LARGEST_KEPT = 4096 * 4096
DENSE_PAIRS = 512 * 512  # up to this many pairs a matrix fits the cache, and fewer calls win
# How float32 products are made on a GPU follows torch.set_float32_matmul_precision.
FUSED = {"highest": "triton", "high": "triton-tf32", "medium": "triton-bf16"}
FUSED_HALF = {torch.bfloat16: "triton-bf16", torch.float16: "triton-fp16"}
# A constant of its own, so that tests can let the interpreter run programs on the CPU.
PROGRAM_DEVICES = ("cuda",)

CATALOGUE: Mapping[str, PairReduction] = {
    "dense": dense,
    "linear": linear,
    "tiled": tiled,
    "triton": triton_pairs.TritonPairs(),
    "triton-tf32": triton_pairs.TritonPairs("tf32"),
    "triton-bf16": triton_pairs.TritonPairs("bf16"),
    "triton-fp16": triton_pairs.TritonPairs("fp16"),
}

# Context variables: what one thread asks for or records holds in that thread only.
_forced: ContextVar[str | None] = ContextVar("counterpoint_kernel", default=None)

_inputs: ContextVar[torch.dtype | None] = ContextVar("counterpoint_input_dtype", default=None)

_failures: dict[str, str] = {}  # programs that did not start, and why: a training run tries each once

_records: ContextVar[tuple[list["Choice"], ...]] = ContextVar("counterpoint_kernel_choices", default=())


@dataclass(frozen=True)
class Choice:
    """A kernel and the reason for it, as recorded in ``run.json``."""

    name: str
    reason: str
    is_asked_for: bool = False

    @property
    def kernel(self) -> PairReduction:
        """The implementation; a fused program that was chosen automatically has a fallback."""
        if self.is_asked_for or not self.name.startswith("triton"):
            return CATALOGUE[self.name]
        functions = ("reduce", "gradient", "reduce_tangent", "gradient_tangent")
        return cast(
            PairReduction, SimpleNamespace(**{name: partial(_run_guarded, self.name, name) for name in functions})
        )


def _run_guarded(program: str, function: str, scores: PairScores, *arguments: Any) -> Any:
    """Run a function of a fused program, or the same function of tiles if the program does not start."""
    run = partial(getattr(CATALOGUE[program], function), scores, *arguments)
    result = None if program in _failures else unless_it_fails(program, run)
    if result is not None:
        return result
    note(_stand_in(program))
    return getattr(tiled, function)(scores, *arguments)


def unless_it_fails(program: str, run: Callable[[], Any]) -> Any:
    """Run a fused program; return None, with a warning, if it does not start: it is then tried no more."""
    try:
        return run()
    except torch.OutOfMemoryError:
        raise  # torch operations would need more
    except Exception as error:  # compilers, drivers and launchers raise what they like
        _failures[program] = f"{type(error).__name__}: {error}".splitlines()[0]
        warnings.warn(
            f"fused CUDA program {program} did not start and is not tried again in this process; torch "
            f"operations take its place ({_failures[program]})",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


def _stand_in(program: str) -> Choice:
    return Choice("tiled", f"fused program {program} did not start: {_failures[program]}")


SMALL_BATCH = Choice("small batch", "pairs are kept from value to gradient")


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
    name = _forced.get()
    if name == "linear" and (psi != IDENTITY or scores.mask.anchor_labels_N is not None):
        raise ValueError(f"kernel linear is for psi = identity without labels, got {psi.name}; leave it to select")
    if name is not None:
        return Choice(name, "asked for", is_asked_for=True)
    # Compared by value, not by identity: a loss that was pickled or copied holds a copy of psi.
    if psi == IDENTITY and scores.mask.anchor_labels_N is None:
        return Choice("linear", "psi is linear: sums of keys suffice")
    num_pairs, device = len(scores.terms.anchors_ND) * len(scores.keys_MD), scores.terms.anchors_ND.device
    if num_pairs <= DENSE_PAIRS:
        return Choice("dense", f"{num_pairs:,} pairs fit the cache")
    if device.type not in PROGRAM_DEVICES:
        return Choice("tiled", f"{num_pairs:,} pairs on {device.type}")
    reason = triton_pairs.why_not(scores, psi)
    if reason is not None:
        return Choice("tiled", f"{num_pairs:,} pairs on cuda; no fused program: {reason}")
    # Losses lift half precision to float32; the products may be made in what the inputs came in.
    inputs = _inputs.get() if scores.terms.anchors_ND.dtype == torch.float32 else None
    return fused(inputs, f"{num_pairs:,} pairs on cuda")


def fused(inputs: torch.dtype | None, what: str) -> Choice:
    """The fused program for inputs of a dtype, or tiles if it did not start before.

    Args:
        inputs: half-precision dtype in which products may be made; anything else means float32.
        what: first words of the reason.
    """
    precision = torch.get_float32_matmul_precision()
    name, why = FUSED[precision], f"float32 products as for {precision!r}"
    if inputs in FUSED_HALF:
        short = str(inputs).removeprefix("torch.")
        name, why = FUSED_HALF[inputs], f"products in {short}, as the inputs; sums in float32"
    return _stand_in(name) if name in _failures else Choice(name, f"{what}, fused; {why}")


def note(choice: Choice) -> Choice:
    """Add a choice to all recordings."""
    for record in _records.get():
        if choice not in record:
            record.append(choice)
    return choice


@contextmanager
def recording() -> Iterator[list[Choice]]:
    """Collect the distinct choices made inside the block."""
    record: list[Choice] = []
    # Enclosing blocks continue recording: each of them gets the choice.
    with holding(_records, (*_records.get(), record)):
        yield record


def inputs_in(dtype: torch.dtype | None) -> AbstractContextManager[None]:
    """Tell kernels what half precision a loss was given, which it lifts to float32; None leaves it as it is.

    On CUDA products are then made in that precision: unit vectors are computed in float32 and rounded once.
    """
    return holding(_inputs, _inputs.get() if dtype is None else dtype)


def is_free() -> bool:
    """Tell whether no kernel is asked for by ``use``."""
    return _forced.get() is None


def use(name: str) -> AbstractContextManager[None]:
    """Make every reduction inside the block use one kernel.

    Raises:
        ValueError: an unknown name.

    >>> with use("tiled"):
    ...     pass
    """
    check_choice(name, "kernel", CATALOGUE)
    return holding(_forced, name)
