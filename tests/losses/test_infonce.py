"""InfoNCE in the forms that other papers give it, which the errata rest on; test_family has the rest."""

import math

import torch
import torch.nn.functional as F
from loss_checks import draw_views, gradients
from torch import Tensor

from counterpoint.losses import DCL, InfoNCE
from tolerances import assert_close


def test_the_default_is_nt_xent() -> None:
    """Simclr2020: cross-entropy of picking the other view among the 2n - 1 other vectors."""
    z0, z1 = draw_views(6, 4)
    for tau in (0.1, 0.5):
        z = F.normalize(torch.cat([z0, z1]), dim=1)
        logits = (z @ z.T / tau).masked_fill(torch.eye(12).bool(), -math.inf)
        partner = torch.arange(12).roll(6)
        nt_xent = F.cross_entropy(logits, partner)
        ours = InfoNCE(temperature=tau)(z0, z1)
        assert_close(ours, nt_xent)
        assert_close(gradients(ours, z0, z1), gradients(nt_xent, z0, z1))
    assert_close(InfoNCE()(z0, z1), nt_xent)  # 0.5 is the default temperature


def test_epsilon_zero_is_dcl() -> None:
    """Yeh et al.: minus cosine to the positive over tau plus one log-sum-exp over all 2n - 2 negatives."""
    z0, z1 = draw_views(5, 4)
    z = F.normalize(torch.cat([z0, z1]), dim=1)
    cosines = z @ z.T / 0.2
    partner = torch.arange(10).roll(5)
    is_out = torch.eye(10).bool() | torch.eye(10).bool()[partner]
    dcl = (cosines.masked_fill(is_out, -math.inf).logsumexp(1) - cosines[torch.arange(10), partner]).mean()
    ours = InfoNCE(temperature=0.2, epsilon=0)(z0, z1)
    assert_close(ours, dcl)
    assert_close(gradients(ours, z0, z1), gradients(dcl, z0, z1))


def test_dcl_as_lightly_had_it_is_another_loss() -> None:
    """Until 2025-06 it added two log-sum-exps, over the same view and the other one: mio2021's DCL columns have it."""
    views = draw_views(16, 8)
    z0, z1 = (F.normalize(z, dim=1) for z in views)
    is_own = torch.eye(16, dtype=torch.bool)

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
