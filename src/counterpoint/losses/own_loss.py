"""A loss that is no member of the catalogue: the user's own object, or what a function of the user's makes."""

import math
from typing import Any

from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.losses.inputs import check_views
from counterpoint.losses.loss import Loss, LossCard, Part

TAKEN = (
    "a loss of counterpoint.losses (PairLoss(phi, psi), AlphaCL(OwnRule(f)), a subclass of Loss), or any torch module "
    "called as loss(z0, z1)"
)


class OwnLoss(Loss):
    """Any module that is called as ``loss(z0, z1)`` and gives a scalar.

    With several ranks each computes the whole batch. It has no chance level, no floor and no importance.

    Args:
        module: takes two views (n, d).

    >>> import torch
    >>> mse = OwnLoss(nn.MSELoss())
    >>> mse(torch.ones(2, 3), torch.zeros(2, 3))
    tensor(1.)
    """

    why_no_class_level = "it is not a loss of the catalogue"

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        name = type(module).__name__
        unknown = "as the module has it"
        self.card = LossCard(name, "-", "-", "-", unknown, unknown, "your own module", "autograd", "no pairs")

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """What the module gives; see ``Loss.forward``. Labels are only checked, ``part`` is ignored.

        Raises:
            TypeError: it gives no scalar tensor.
        """
        check_views(z0, z1, labels)
        value = self.module(z0, z1)
        if not isinstance(value, Tensor) or value.numel() != 1:
            given = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{self.card.name} must give a scalar tensor, got {given}")
        return value.reshape(())

    def chance(self, n: int) -> float:
        """Not known."""
        return math.nan

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Not known."""
        return -math.inf


def as_loss(value: Any) -> Loss:
    """A loss as training takes it.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, Loss):
        return value
    if isinstance(value, nn.Module):
        return OwnLoss(value)
    raise UsageError(f"loss must be {TAKEN}, got {type(value).__name__}")
