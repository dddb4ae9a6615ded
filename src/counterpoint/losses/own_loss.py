"""A loss that is no member of the catalogue: the user's own object, or what a function of the user's makes."""

import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from torch import Tensor, nn

from counterpoint.core.errors import UsageError, first_line
from counterpoint.losses.inputs import check_views
from counterpoint.losses.loss import Loss, LossCard, Part

CUSTOM = "custom"  # name of such a loss in settings; a run folder never says where its code lies
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


@dataclass(frozen=True)
class LoadedLoss:
    """A loss from a function that the user named.

    Attributes:
        loss: what the function made.
        origin: ``package.module:name``.
        sha256: of the file that holds the function; empty where there is none.
    """

    loss: Loss
    origin: str
    sha256: str


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


def load_loss(origin: str, options: Mapping[str, Any]) -> LoadedLoss:
    """Import what the user named on this command line, call it, and take what it returns for the loss.

    Args:
        origin: ``package.module:name`` of a class or function; modules of the current folder are found, too.
        options: its keyword arguments.

    Raises:
        UsageError: there is no such thing, it cannot be called with these options, or it gives no loss.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        make: Callable[..., Any] = resolve_name(origin)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"loss.name {origin}: {first_line(error)}; give it as package.module:name") from None
    finally:
        sys.path.pop(0)
    try:
        loss = as_loss(make(**options))
    except (TypeError, ValueError) as error:
        raise UsageError(f"loss.name {origin}: {first_line(error)}") from None
    file = inspect.getsourcefile(make) if inspect.isroutine(make) or inspect.isclass(make) else None
    return LoadedLoss(loss, origin, hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else "")
