"""Whether a differentiation transform is at work: caches and first-order shortcuts keep out of its way."""

import torch


def is_transformed() -> bool:
    """Whether a ``torch.func`` transform or forward-mode differentiation is active.

    >>> is_transformed()
    False
    """
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
