"""State that torch keeps for a thread or a process: modes, defaults, generator, as work with fixed bits needs it."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch

from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import without_autocast
from counterpoint.core.process_setup import at_work, threads_to_take

# Held while something draws from torch's own generator: what another thread draws then would change the numbers. The
# same thread may take it again: a user's module may load an encoder within a step.
GENERATOR = threading.RLock()
_TRAINING = threading.Lock()


@contextmanager
def usual_modes() -> Iterator[None]:
    """Compute as a new process of ours does, whatever modes the caller is in, and on the CPU by default.

    It is also a decorator. ``process_setup`` decides how threads wait and memory is kept.

    >>> with torch.inference_mode(), usual_modes():
    ...     torch.is_grad_enabled()
    True
    """
    with ExitStack() as usual:
        usual.enter_context(at_work())
        number = torch.get_num_threads()
        if (num_threads := threads_to_take(number)) != number:
            usual.enter_context(with_threads(num_threads))
        usual.enter_context(torch.inference_mode(False))
        usual.enter_context(torch.enable_grad())
        if torch._C._is_any_autocast_enabled():
            usual.enter_context(without_autocast(["cpu", "cuda"]))
        if torch.empty(0).device.type != "cpu":  # `get_default_device` of torch 2.6 misses `with torch.device(...)`
            usual.enter_context(torch.device("cpu"))
        yield


def require_float32() -> None:
    """Refuse to build or train an encoder in anything but float32.

    Raises:
        UsageError: torch's default dtype, which belongs to the whole process, is another one.
    """
    if torch.get_default_dtype() != torch.float32:
        raise UsageError(
            f"torch's default dtype is {torch.get_default_dtype()}, and encoders are built in float32; call "
            "torch.set_default_dtype(torch.float32) first"
        )


@contextmanager
def only_training() -> Iterator[None]:
    """Let one training at a time be at work in this process; it is also a decorator.

    Raises:
        UsageError: another one is, in another thread or around this call.
    """
    if not _TRAINING.acquire(blocking=False):
        raise UsageError(
            "another training is at work in this process, and both would draw from torch's one generator; start each "
            "in separate processes, or one after the other"
        )
    try:
        yield
    finally:
        _TRAINING.release()


@contextmanager
def with_threads(number: int) -> Iterator[None]:
    """Let each operation be split over as many threads; their number decides the last bits of its sums.

    >>> with with_threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_draws(seed: int | None = None, devices: Iterable[torch.device] | None = None) -> Iterator[None]:
    """Draw from torch's generator alone, and leave it to the caller as it was.

    Args:
        seed: seed of the first state; None continues from the generator's present state.
        devices: GPUs whose generators are drawn from, too; None for all of them.

    >>> before = torch.get_rng_state()
    >>> with own_draws(seed=0):
    ...     first = torch.rand(1)
    >>> with own_draws(seed=0):
    ...     bool(torch.rand(1) == first)
    True
    >>> bool((torch.get_rng_state() == before).all())
    True
    """
    with GENERATOR, torch.random.fork_rng(devices):
        if seed is not None:
            torch.manual_seed(seed)
        yield
