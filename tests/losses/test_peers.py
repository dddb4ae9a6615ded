"""Losses beside other libraries: the same value and gradients as lightly and pytorch-metric-learning.

Other peers stand with their losses: SupCon, cross-modal and sigmoid.
"""

from typing import Any

import pytest
import torch
from lightly.loss import BarlowTwinsLoss, DCLLoss, DCLWLoss, NegativeCosineSimilarity, NTXentLoss, VICRegLoss
from loss_checks import draw_views, gradients
from pytorch_metric_learning.losses import NTXentLoss as MetricLearningNTXent
from pytorch_metric_learning.losses import SelfSupervisedLoss
from torch import nn

from counterpoint.losses import DCL, DCLW, BarlowTwins, InfoNCE, Loss, Regression, VICReg
from tolerances import assert_close

TEMPERATURES = (0.1, 0.5, 2.0)
PEERS: list[tuple[Loss, Any]] = [
    *((InfoNCE(tau), NTXentLoss(tau)) for tau in TEMPERATURES),
    *((InfoNCE(tau), SelfSupervisedLoss(MetricLearningNTXent(temperature=tau))) for tau in TEMPERATURES),
    *((DCL(tau), DCLLoss(tau)) for tau in TEMPERATURES),
    *((DCLW(tau, sigma), DCLWLoss(tau, sigma)) for tau, sigma in ((0.1, 0.5), (0.5, 0.2))),
    (BarlowTwins(), BarlowTwinsLoss()),
    (BarlowTwins(0.3), BarlowTwinsLoss(0.3)),
    (VICReg(), VICRegLoss()),
    (VICReg(1.0, 2.0, 3.0), VICRegLoss(1.0, 2.0, 3.0)),
    (Regression(detach_target=False), NegativeCosineSimilarity()),
]


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("ours", "theirs"), PEERS, ids=lambda loss: str(loss).partition("(")[0])
def test_value_and_gradients_are_the_peers(ours: Loss, theirs: nn.Module, dtype: torch.dtype) -> None:
    views = draw_views(16, 8, dtype=dtype)
    value, expected = ours(*views), theirs(*views)
    assert_close(value, expected)
    assert_close(gradients(value, *views), gradients(expected, *views))
