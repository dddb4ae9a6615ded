"""Features with a fault: an offset, or views whose rows are in another order."""

# N samples, D features

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
SpoilFeatures = Callable[[Tensor, Tensor, np.random.Generator], tuple[Tensor, Tensor | None]]


def as_they_are(z_ND: Tensor, other_ND: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor | None]:
    """Features that nobody knows a run of."""
    return z_ND, None


def with_offset(size: float) -> SpoilFeatures:
    """One constant is added to all, of so many deviations of a feature."""

    def spoil(z_ND: Tensor, other_ND: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor | None]:
        added = size * float(z_ND.std(dim=0).mean())
        return z_ND + added, other_ND + added

    return spoil


def with_rows_shuffled(z_ND: Tensor, other_ND: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor | None]:
    """The second view's rows are in random order."""
    return z_ND, other_ND[torch.from_numpy(draws.permutation(len(other_ND)))]


def with_rows_moved(z_ND: Tensor, other_ND: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor | None]:
    """The second view's rows are one further down."""
    return z_ND, other_ND.roll(1, dims=0)
