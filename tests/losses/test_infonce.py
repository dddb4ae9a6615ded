"""InfoNCE in any setting, and in the forms that other papers give it; test_family has the rest."""

# N samples per view, D features

import math

import torch
import torch.nn.functional as F
from family_cases import KINDS, as_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_batch_checks import draw_views, gradients

from counterpoint.losses import InfoNCE
from counterpoint.losses.pairs import Negatives
from oracles import family_losses as oracle
from oracles.family_losses import Setting
from oracles.number_checks import assert_numbers
from tolerances import assert_close


@given(
    n=st.integers(2, 4),
    d=st.integers(1, 3),
    seed=st.integers(0, 999),
    tau=st.floats(0.05, 10),
    epsilon=st.one_of(st.just(0.0), st.floats(0.01, 5)),
    kind=st.sampled_from(KINDS),
    normalize=st.booleans(),
)
@settings(max_examples=40)
def test_any_setting_is_the_papers(
    *, n: int, d: int, seed: int, tau: float, epsilon: float, kind: Negatives, normalize: bool
) -> None:
    z0, z1 = draw_views(n, d, seed=seed)
    expected = complex(oracle.pair_loss(*as_rows(z0, z1), oracle.nce(tau, epsilon), Setting(kind, normalize))).real
    actual = InfoNCE(tau, epsilon, kind, normalize)(z0, z1)
    assert_numbers([1.0, float(actual.detach())], [1.0, expected])  # a loss near 0 is a difference of terms near 1


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


def test_cross_view_is_the_symmetric_loss_over_a_similarity_matrix() -> None:
    """Directclr2022 and CLIP: cross-entropy along the diagonal of z0 z1^T, both directions averaged."""
    z0, z1 = draw_views(5, 4)
    logits = F.normalize(z0, dim=1) @ F.normalize(z1, dim=1).T / 0.1
    own = torch.arange(5)
    expected = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
    ours = InfoNCE(temperature=0.1, negatives="cross-view")(z0, z1)
    assert_close(ours, expected)
    assert_close(gradients(ours, z0, z1), gradients(expected, z0, z1))


def test_each_anchor_gives_out_one_over_tau_less_what_epsilon_keeps() -> None:
    z0, z1 = draw_views(4)
    without, with_own = (InfoNCE(0.25, epsilon).importance(z0, z1).sum(1) for epsilon in (0.0, 1.0))
    assert_numbers(without, [4.0] * 8)
    assert bool((with_own < 4.0).all())
