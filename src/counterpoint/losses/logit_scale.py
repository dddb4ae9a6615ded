"""The factor of similarities in a loss, 1 / temperature: fixed, or learned as its logarithm."""

import math

import torch
from torch import Tensor, nn

from counterpoint.core.checks import check_positive


class LogitScale(nn.Module):
    """A positive factor.

    Learned, it is exp of the parameter ``log``, a scalar of torch's default dtype. Nothing bounds it by itself: an
    optimiser may overshoot, so call ``limit_`` after each step, as open_clip does (which also keeps the factor above
    1; that matters only where it starts below).

    Args:
        start: first value, > 0 and finite.
        is_learned: whether ``log`` is a parameter or None.
        most: what ``limit_`` brings a learned factor back to, at least ``start``.

    Raises:
        ValueError: a start <= 0 or not finite, or a most below the start.

    >>> scale = LogitScale(10.0, is_learned=True, most=100.0)
    >>> _ = scale.log.data.fill_(9.0)
    >>> scale.limit_()
    >>> round(scale.value, 3)
    100.0
    """

    log: nn.Parameter | None

    def __init__(self, start: float, *, is_learned: bool, most: float = math.inf) -> None:
        super().__init__()
        check_positive(start, "scale", hint="it is 1 / temperature")
        if is_learned and not most >= start:
            raise ValueError(
                f"max_scale must be >= the first scale, 1 / temperature = {start:g}, got {most}; CLIP uses 100"
            )
        self.start, self.most = start, most
        self.log = nn.Parameter(torch.tensor(math.log(start))) if is_learned else None

    def forward(self, like: Tensor) -> Tensor:
        """The factor as a scalar tensor of another tensor's dtype."""
        return like.new_full((), self.start) if self.log is None else self.log.to(like.dtype).exp()

    @property
    def value(self) -> float:
        """The factor as it stands."""
        return self.start if self.log is None else math.exp(float(self.log.detach()))

    @torch.no_grad()
    def limit_(self) -> None:
        """Bring a learned factor back to at most ``most``."""
        if self.log is not None:
            self.log.clamp_(max=math.log(self.most))
