"""What torch does around an operation: transforms that shortcuts keep out of the way of, autocast that is kept out."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch


def is_transformed() -> bool:
    """Whether a ``torch.func`` transform or forward-mode differentiation is active.

    >>> is_transformed()
    False
    """
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


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
