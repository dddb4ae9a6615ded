"""Losses that take labels, as losses without: so that all checks of streamed pairs serve them too."""

# N samples per view

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from counterpoint.losses.loss import Loss, Part
from oracles.whole_batch_losses import Number, Rows

LABELS = {
    "none": None,
    "two classes": [4, 9, 4, 9, 9],
    "uneven": [7, 7, -1, 7, 3],
    "all different": [3, 1, 0, 2, 9],
    "four of one": [0, 0, 1, 0, 0],
}


class WithLabels(Loss):
    """A loss with its labels and other arguments given beforehand."""

    def __init__(self, loss: Loss, labels: list[int] | None, **arguments: Any) -> None:
        super().__init__()
        self.loss, self.arguments = loss, arguments
        self.labels = None if labels is None else torch.tensor(labels)

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        assert labels is None
        return self.loss(z0, z1, self.labels, part=part, **self.arguments)

    def chance(self, n: int) -> float:
        return self.loss.chance(n)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        return self.loss.floor(n, nonnegative=nonnegative)


def classes_of(labels: list[int] | None, n: int = 5) -> list[int]:
    """What the paper's loops take: without labels each sample is its own class."""
    return list(range(n)) if labels is None else labels


def truth_of(
    oracle: Callable[..., Number], labels: list[int] | None, *arguments: Any
) -> Callable[[Rows, Rows], Number]:
    """An oracle as a function of the two views."""
    return lambda z0, z1: oracle(z0, z1, classes_of(labels, len(z0)), *arguments)
