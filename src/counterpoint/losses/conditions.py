"""What must hold of values, not of shapes: looked at in as few reads of the device as can be.

Reading a value is free on a CPU; elsewhere it waits for all that was started before. There the conditions of a call are
gathered and read once, at its end. In compiled code nothing can be read: the device itself asserts them.
"""

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

READS_ARE_FREE = ("cpu",)


@dataclass(frozen=True)
class Condition:
    """One of a call.

    Attributes:
        is_met: boolean scalar.
        complain: raises, and may read what it likes for it.
    """

    is_met: Tensor
    complain: Callable[[], None]


_gathered: ContextVar[list[Condition] | None] = ContextVar("counterpoint_conditions", default=None)


def can_read(like: Tensor) -> bool:
    """Whether values may be looked at to choose a way: on a CPU, outside compiled code."""
    return not torch.compiler.is_compiling() and like.device.type in READS_ARE_FREE


def is_number(value: Tensor) -> bool:
    """Whether a scalar is finite; taken for granted under torch.func.vmap, where no value can be looked at."""
    try:
        return math.isfinite(value.item())
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        return True


def require(is_met: Tensor, complain: Callable[[], None], words: str) -> None:
    """Raise unless a condition holds: at once, at the end of the call, or, in compiled code, by the device.

    Args:
        is_met: boolean scalar.
        complain: raises the error that names the fault.
        words: what compiled code says instead, as a RuntimeError.
    """
    gathered = None if torch.compiler.is_compiling() else _gathered.get()
    if torch.compiler.is_compiling() or (gathered is None and is_captured(is_met)):
        torch._assert_async(is_met, words)  # pyright: ignore[reportPrivateImportUsage]
    elif gathered is not None and is_met.device.type not in READS_ARE_FREE:
        gathered.append(Condition(is_met, complain))
    elif not _holds(is_met):
        complain()


def gathering(function: Callable[[], Tensor]) -> Tensor:
    """Call a function and settle all its conditions, and those of losses inside it, in one read."""
    if _gathered.get() is not None:
        return function()
    gathered: list[Condition] = []
    token = _gathered.set(gathered)
    try:
        value = function()
    finally:
        _gathered.reset(token)
    if not gathered:
        return value
    all_met = torch.stack([condition.is_met for condition in gathered]).all()
    if is_captured(all_met):
        words = "a loss or its inputs are not finite, or its labels are out of range"
        torch._assert_async(all_met, words)  # pyright: ignore[reportPrivateImportUsage]
    elif not _holds(all_met):
        for condition in gathered:
            if not _holds(condition.is_met):
                condition.complain()
    return value


def is_captured(like: Tensor) -> bool:
    """Work is being recorded as a CUDA graph, in which nothing can be read."""
    return like.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _holds(is_met: Tensor) -> bool:
    """Whether it is met; taken for granted under torch.func.vmap: the loss itself then carries the NaN."""
    try:
        return bool(is_met)
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        return True
