"""The family beside other libraries: the same value and gradients as lightly and pytorch-metric-learning.

Other peers stand with their losses: DCLW, Barlow Twins, VICReg, SupCon, cross-modal and sigmoid.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import DCLLoss, NTXentLoss
from pytorch_metric_learning.losses import NTXentLoss as MetricLearningNTXent
from pytorch_metric_learning.losses import SelfSupervisedLoss
from torch import Tensor, nn

from counterpoint.losses import DCL, InfoNCE
from tolerances import assert_close

N, D = 7, 5


def draw_views(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Related views of unequal lengths: no one is helped by unit vectors."""
    generator = torch.Generator().manual_seed(11)
    z0 = torch.randn(N, D, generator=generator, dtype=torch.float64)
    z1 = 2 * z0 + torch.randn(N, D, generator=generator, dtype=torch.float64)
    return z0.to(dtype).requires_grad_(), z1.to(dtype).requires_grad_()


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (InfoNCE, NTXentLoss),
        (DCL, DCLLoss),
        (lambda temperature: InfoNCE(temperature, epsilon=0), DCLLoss),
        (InfoNCE, lambda temperature: SelfSupervisedLoss(MetricLearningNTXent(temperature=temperature))),
    ],
    ids=["lightly-ntxent", "lightly-dcl", "lightly-dcl-as-infonce", "pml-ntxent"],
)
def test_value_and_gradients_are_the_peers(
    ours: Callable[..., Any], theirs: Callable[..., Any], temperature: float, dtype: torch.dtype
) -> None:
    views = draw_views(dtype)
    loss, peer = ours(temperature=temperature), theirs(temperature=temperature)
    assert isinstance(peer, nn.Module)
    value, expected = loss(*views), peer(*views)
    assert_close(value, expected)
    for actual, wanted in zip(torch.autograd.grad(value, views), torch.autograd.grad(expected, views), strict=True):
        assert_close(actual, wanted)


def test_the_default_temperatures_are_lightlys() -> None:
    views = draw_views(torch.float64)
    assert_close(InfoNCE(temperature=0.5)(*views), NTXentLoss()(*views))
    assert_close(DCL()(*views), DCLLoss()(*views))


def test_dcl_as_lightly_had_it_is_another_loss() -> None:
    """Until 2025-06 it added two log-sum-exps, over the same view and the other one: mio2021's DCL columns have it."""
    views = draw_views(torch.float64)
    z0, z1 = (F.normalize(z, dim=1) for z in views)
    is_own = torch.eye(N, dtype=torch.bool)

    def parts(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the anchors a: positives, and the logits of both kinds of negatives."""
        same, cross = a @ a.T / 0.1, a @ b.T / 0.1
        return cross.diagonal(), same.masked_fill(is_own, -math.inf), cross.masked_fill(is_own, -math.inf)

    both = [parts(z0, z1), parts(z1, z0)]
    now = sum((torch.cat([same, cross], dim=1).logsumexp(1) - own).mean() for own, same, cross in both) / 2
    before = sum((same.logsumexp(1) + cross.logsumexp(1) - own).mean() for own, same, cross in both) / 2
    assert_close(DCL(0.1)(*views), torch.as_tensor(now))
    assert abs(float(torch.as_tensor(before - now).detach())) > 0.1
    slopes = [
        torch.cat(torch.autograd.grad(torch.as_tensor(value), views, retain_graph=True)) for value in (now, before)
    ]
    assert float((slopes[0] - slopes[1]).norm()) > 0.1 * float(slopes[0].norm())
