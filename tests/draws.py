"""Rows drawn from a normal distribution, the same in every run of tests."""

# N samples, D features

from functools import partial

import torch
from torch import Tensor


def draw(n: int = 1000, width: int = 64, seed: int = 0, *, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)


draw_single = partial(draw, dtype=torch.float32)
