"""Every member of the family against the paper's loops: value, gradient, importance and Theorem 1."""

# N samples per view, D features

from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from family_cases import CASES, KINDS, SETTINGS, Case, as_rows, sampled_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_checks import KERNELS, assert_parts_average_to_the_whole, draw_views, gradients, on_kernel

from counterpoint.losses import DCL, InfoNCE, family
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.pairs import Negatives
from oracles import family_losses as oracle
from oracles.family_losses import Setting
from oracles.number_checks import assert_numbers
from tolerances import assert_close


@cache
def truth(name: str, setting: Setting, dtype: torch.dtype) -> tuple[float, Any]:
    """Value and gradient by loops, once for all kernels."""
    of_gaps = next(case.of_gaps for case in CASES if case.name == name)
    rows = as_rows(*draw_views(4, 3, dtype=dtype))
    value = complex(oracle.pair_loss(*rows, of_gaps, setting)).real
    return value, list(oracle.pair_gradient(*rows, of_gaps, setting))


def test_no_member_is_left_out() -> None:
    made = {case(Setting()).card.name for case in CASES}
    assert made >= {entry.__name__ for entry in family.CATALOGUE.values()}


@pytest.mark.parametrize("name", [name for name, loss in family.CATALOGUE.items() if loss().phi.of_log_sum])
def test_phi_and_its_slope_by_the_logarithm_are_those_of_the_sum(name: str) -> None:
    phi, log_xi = family.CATALOGUE[name]().phi, torch.linspace(-2.0, 3.0, 9, dtype=torch.float64, requires_grad=True)
    assert phi.of_log_sum is not None
    assert phi.slope_of_log_sum is not None
    value = phi.of_log_sum(log_xi)
    (slope,) = torch.autograd.grad(value.sum(), log_xi)
    assert_numbers(phi.of_sum(log_xi.detach().exp()), value.tolist())
    assert_numbers(phi.slope_of_log_sum(log_xi.detach()), slope.tolist())


@sampled_cases("case, setting, dtype, kernel", CASES, SETTINGS, [torch.float64, torch.float32], KERNELS, num=64)
@pytest.mark.sampled(2)
def test_value_and_gradient_are_the_papers(case: Case, setting: Setting, dtype: torch.dtype, kernel: str) -> None:
    value, gradient = truth(case.name, setting, dtype)
    z0, z1 = draw_views(4, 3, dtype=dtype)
    with on_kernel(kernel):
        ours = case(setting)(z0, z1)
        slopes = gradients(ours, z0, z1)
    assert ours.dtype == slopes.dtype == dtype
    assert_numbers(ours, value, dtype=dtype)
    assert_numbers(slopes, gradient, dtype=dtype)


@sampled_cases("case, setting", CASES, SETTINGS, num=32)
def test_importance_is_the_slope_of_an_anchors_loss_for_each_gap(case: Case, setting: Setting) -> None:
    z0, z1 = draw_views(4, 3)
    alpha = case(setting).importance(z0, z1)
    assert_numbers(alpha, oracle.pair_importance(*as_rows(z0, z1), case.of_gaps, setting))
    assert not alpha.requires_grad


@sampled_cases("case, setting", CASES, SETTINGS, num=32)
def test_the_gradient_is_that_of_the_weighted_gaps(case: Case, setting: Setting) -> None:
    """Theorem 1: alpha held fixed, the gradient of mean_i sum_j alpha_ij (d_i^2 - d_ij^2)."""
    z0, z1 = draw_views(4, 3)
    loss = case(setting)
    alpha = loss.importance(z0, z1)
    z = torch.cat([z0, z1])
    z = F.normalize(z, dim=1) if setting.normalize else z
    half_squares = (z[:, None] - z[None]).square().sum(2) / 2
    own = half_squares[torch.arange(8), torch.arange(8).roll(4)]
    per_anchor = (alpha * (own[:, None] - half_squares)).sum(1)
    num_anchors = 1 if setting.reduction == "sum" else 4 if setting.anchors == "first" else 8
    assert_close(gradients(per_anchor.sum() / num_anchors, z0, z1), gradients(loss(z0, z1), z0, z1))


@sampled_cases("case, setting, kernel", CASES, SETTINGS, KERNELS, num=32)
@pytest.mark.sampled(2)
def test_parts_of_the_batch_average_to_the_whole(case: Case, setting: Setting, kernel: str) -> None:
    z0, z1 = draw_views(6, 3)
    with on_kernel(kernel):
        for num_parts in (2, 3):
            assert_parts_average_to_the_whole(case(setting), z0, z1, num_parts)


def test_defaults_by_name() -> None:
    z0, z1 = draw_views(4, 3)
    rows = as_rows(z0, z1)
    for make, of_gaps in (
        (InfoNCE, oracle.nce(0.5, 1.0)),
        (DCL, oracle.nce(0.1, 0.0)),
        (family.Triplet, oracle.triplet(1.0)),
        (family.SoftTriplet, oracle.soft_triplet(1.0, 0.0)),
        (family.LiftedStructured, oracle.lifted_structured(1.0)),
        (family.ModifiedTriplet, oracle.modified_triplet(1.0)),
    ):
        loss = make()
        assert isinstance(loss, PairLoss)
        assert_numbers(loss(z0, z1), complex(oracle.pair_loss(*rows, of_gaps, Setting())).real)


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
def test_infonce_in_any_setting_is_the_papers(
    *, n: int, d: int, seed: int, tau: float, epsilon: float, kind: Negatives, normalize: bool
) -> None:
    z0, z1 = draw_views(n, d, seed=seed)
    expected = complex(oracle.pair_loss(*as_rows(z0, z1), oracle.nce(tau, epsilon), Setting(kind, normalize))).real
    actual = InfoNCE(tau, epsilon, kind, normalize)(z0, z1)
    assert_numbers([1.0, float(actual.detach())], [1.0, expected])  # a loss near 0 is a difference of terms near 1
