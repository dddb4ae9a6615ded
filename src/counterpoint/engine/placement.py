"""Placement of a run: device, precision, the processes that share it, and what one or all of them do together."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from counterpoint.core.dist import broadcast_text, gather_texts, is_lost_contact, join_ranks, leave_ranks, rank
from counterpoint.core.errors import (
    InterruptedRunError,
    LoneTrainingError,
    RunError,
    TrainingError,
    UsageError,
    first_line,
)
from counterpoint.core.ranks import Ranks, read_ranks

Result = TypeVar("Result")


@dataclass(frozen=True)
class Placement:
    """Device and precision in which a run is computed, and the reasons.

    Attributes:
        device: device that computes: cpu or cuda.
        precision: precision of the encoder: fp32, bf16 or fp16.
        reasons: reason for each choice that was left to ``auto``, by name of the setting.
        ranks: place of this process among those that train together.
    """

    device: str
    precision: str
    reasons: dict[str, str]
    ranks: Ranks = field(default_factory=Ranks)

    @property
    def world_size(self) -> int:
        """Number of processes that share a batch."""
        return self.ranks.world_size

    @property
    def torch_device(self) -> torch.device:
        """This process's own device."""
        if self.device != "cuda":
            return torch.device(self.device)
        return torch.device("cuda", self.ranks.local_rank)


def place(device: str, precision: str, *, environment: Mapping[str, str] | None = None) -> Placement:
    """Fill in ``auto``, and find out which of several processes this one is.

    Args:
        device: device to compute on: auto, cpu or cuda.
        precision: precision of the encoder: auto, fp32, bf16 or fp16.
        environment: environment variables, which torchrun sets (default: this process's).

    Raises:
        UsageError: a GPU is asked for and none is there, or more ranks than GPUs, or float16 without a GPU.
    """
    ranks = read_ranks(os.environ if environment is None else environment)
    reasons: dict[str, str] = {}
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        device = "cuda" if num_gpus else "cpu"
        reasons["engine.device"] = "a GPU is there" if num_gpus else "no GPU was found"
    elif device == "cuda" and not num_gpus:
        raise UsageError("engine.device is cuda, but torch finds no GPU here; use --engine.device cpu")
    if device == "cuda" and ranks.local_world_size > num_gpus:
        raise UsageError(
            f"{ranks.local_world_size} ranks on this machine, but it has {num_gpus} GPU{'s' * (num_gpus != 1)}; start "
            "at most one rank per GPU, or use --engine.device cpu"
        )
    if precision == "auto":
        # Older GPUs only emulate bfloat16, which saves no time.
        has_bf16 = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "fp32"
        reasons["engine.precision"] = (
            "the GPU computes bfloat16 natively" if has_bf16 else "full precision on this device"
        )
    if precision == "fp16" and device != "cuda":
        raise UsageError("engine.precision fp16 needs a GPU, and the device is cpu; use fp32 or bf16")
    return Placement(device, precision, reasons, ranks)


@contextmanager
def ranks_joined(placement: Placement) -> Iterator[None]:
    """Join the ranks that torchrun started to one group inside the block; nothing for one process.

    Args:
        placement: placement of this process: its rank and its device.

    Raises:
        LoneTrainingError: another rank is lost, or never came.
    """
    try:
        join_ranks(placement.ranks, placement.torch_device)
        try:
            yield
        except BaseException as error:
            # All stop by a verdict or a signal that all know of; after any other error, only this one may be leaving.
            is_shared = isinstance(error, TrainingError | InterruptedRunError)
            with suppress(RuntimeError):  # the error itself says more than a rank that is gone after all
                leave_ranks(is_orderly=is_shared and not isinstance(error, LoneTrainingError))
            raise
        leave_ranks()
    except RuntimeError as error:
        if placement.world_size == 1 or not is_lost_contact(error):
            raise
        raise LoneTrainingError(
            f"lost contact with another rank, whose own message may say why ({first_line(error)}); torchrun "
            "--max-restarts N starts all again"
        ) from None


def on_all_ranks(body: Callable[[], Result]) -> Result:
    """Run something on every rank; if it fails on any of them, all raise, so that none is left waiting.

    Args:
        body: function without arguments that calls no collective.

    Raises:
        Exception: where the body failed, what it raised; elsewhere a RunError that names the rank.

    >>> on_all_ranks(lambda: 1 + 1)
    2
    """
    outcome, texts = _run_and_tell(body)
    for number, text in enumerate(texts):
        if text:
            raise RunError(f"rank {number}: {text}")
    return outcome[0]


def from_first_rank(body: Callable[[], str]) -> str:
    """Return on every rank what rank 0 finds: machines may see a shared folder differently for a while.

    Args:
        body: function without arguments that returns a text; it runs on rank 0 only.

    Raises:
        Exception: as ``on_first_rank`` raises.

    >>> from_first_rank(lambda: "begin")
    'begin'
    """
    texts: list[str] = []  # empty on the other ranks
    on_first_rank(lambda: texts.append(body()))
    return broadcast_text(texts[0] if texts else "")


def on_first_rank(body: Callable[[], Any]) -> None:
    """Run something on rank 0 while the others wait. Every rank must call it.

    Args:
        body: function without arguments; its result is dropped.

    Raises:
        Exception: on rank 0 what the body raised, on the others a RunError with the same text.

    >>> on_first_rank(lambda: print("once"))
    once
    """
    _, texts = _run_and_tell(body if rank() == 0 else lambda: None)
    if texts[0]:
        raise RunError(texts[0])


def _run_and_tell(body: Callable[[], Result]) -> tuple[list[Result], list[str]]:
    """Run a body; return its result and the error of each rank in words; raise what it raised here."""
    outcome: list[Result] = []
    failure: Exception | None = None
    try:
        outcome.append(body())
    except Exception as error:  # of any kind: the other ranks must know of it
        failure = error
    # First all hear of it, then each raises: a rank that left now would let the others wait for it.
    texts = gather_texts("" if failure is None else str(failure) or type(failure).__name__)
    if failure is not None:
        raise failure
    return outcome, texts
