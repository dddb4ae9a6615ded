r"""A momentum copy: a module whose weights follow those of another.

Own code beside torch's ``AveragedModel``, whose momentum is fixed where methods raise theirs, and whose first step only
copies.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn


class MomentumCopy(nn.Module):
    r"""An exponential moving average of a module's weights, as a module.

    .. math:: \xi \leftarrow m \xi + (1 - m) \theta

    It starts as an exact copy, has no gradient, and takes over buffers (BatchNorm's running statistics) as they are.
    All of it is in ``state_dict()``. In training mode its BatchNorm uses the statistics of the batch at hand. The
    source is not part of it: hand it to ``follow`` each time.

    Source: he2020, Eq. 2; grill2020, Eq. 1.

    Args:
        source: what is copied; it stays as it is.

    >>> online = nn.Linear(1, 1, bias=False)
    >>> average = MomentumCopy(online)
    >>> start = float(average.module.weight)
    >>> with torch.no_grad():
    ...     _ = online.weight.add_(1.0)
    >>> average.follow(online, momentum=0.75)
    >>> round(float(average.module.weight) - start, 6)
    0.25
    """

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(source).requires_grad_(False)

    @torch.no_grad()
    def forward(self, *inputs: Any) -> Any:
        """What the copy returns, without gradient."""
        return self.module(*inputs)

    @torch.no_grad()
    def follow(self, source: nn.Module, momentum: float) -> None:
        """One step towards the source.

        Args:
            source: a module with the same structure.
            momentum: m, share of the copy that is kept, 0 to 1.

        Raises:
            ValueError: momentum out of range.
        """
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be between 0 and 1, got {momentum}; 0.99 to 0.999 are common")
        ours, theirs = list[Tensor](self.module.parameters()), [each.detach() for each in source.parameters()]
        if ours:  # foreach operations refuse empty lists: nn.Identity, for example
            # xi + (1 - m) (theta - xi): he2020, Eq. 2
            torch._foreach_lerp_(ours, theirs, 1 - momentum)  # pyright: ignore[reportPrivateImportUsage]
        # Running statistics are averages already, and the number of batches is a whole number: neither is averaged.
        for own, other in zip(self.module.buffers(), source.buffers(), strict=True):
            own.copy_(other)
