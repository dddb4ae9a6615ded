"""Batches already solved have weights too small to be normal numbers, with which processors are slow: none are made."""

# N samples, D features

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from counterpoint.kernels.select import use
from counterpoint.losses import CrossModal, InfoNCE, Loss

N, D = 64, 8
EXPONENT, FRACTION = 0x7F800000, 0x007FFFFF  # bits of a float32

UNWRITTEN = {"new_empty", "slice", "view", "t", "as_strided"}


class Subnormals(TorchDispatchMode):
    """Counts them in all results as large as a matrix of pairs, but for views and memory not yet written to."""

    count = 0
    num_seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = [] if func.overloadpacket.__name__ in UNWRITTEN else tree_leaves(result)
        for leaf in leaves:
            if isinstance(leaf, Tensor) and leaf.dtype == torch.float32 and leaf.numel() >= N * N:
                bits = leaf.detach().contiguous().view(torch.int32)
                self.count += int((((bits & EXPONENT) == 0) & ((bits & FRACTION) != 0)).sum())
                self.num_seen += 1
        return result


def solved_views() -> list[Tensor]:
    """Cosines of positives near 1, of negatives of all sizes: scores 0 to 200 below."""
    z = torch.nn.functional.normalize(torch.randn(N, D, generator=torch.Generator().manual_seed(0)))
    return [z.clone().requires_grad_(), (z + 1e-3).requires_grad_()]


def count(loss: Loss) -> Subnormals:
    views = solved_views()
    with Subnormals() as found:
        torch.autograd.grad(loss(*views), views)
    return found


@pytest.mark.parametrize("loss", [InfoNCE(0.01), CrossModal(0.01)], ids=lambda loss: loss.card.name)
def test_tiles_make_none(loss: Loss) -> None:
    with use("tiled"):
        found = count(loss)
    assert found.num_seen > 0
    assert found.count == 0


def test_a_small_batch_makes_none() -> None:
    found = count(InfoNCE(0.01))
    assert found.num_seen > 0
    assert found.count == 0
