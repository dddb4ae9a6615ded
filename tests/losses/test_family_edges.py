"""Every member where it may break: few or equal samples, silent rows, extreme scales, half precision; bounds."""

# N samples per view, D features

import math
from typing import Any

import pytest
import torch
from family_cases import BOTH, CASES, KINDS, Case, as_rows, each_case, sampled_cases
from loss_checks import KERNELS, draw_views, gradients, least_on_descent, on_kernel, simplex, with_edges
from torch import Tensor

from counterpoint.losses import DCL, InfoNCE, family
from oracles import family_losses as oracle
from oracles.family_losses import Setting
from oracles.number_checks import assert_numbers

ROUNDING = 1e-12  # a bound may be missed by no more than the rounding of a mean of a few float64 numbers
DTYPES = [torch.float64, torch.float32]


def assert_is_the_papers(case: Case, setting: Setting, z0: Tensor, z1: Tensor) -> None:
    """Value and gradient by loops."""
    value = case(setting)(z0, z1)
    rows = as_rows(z0, z1)
    assert_numbers(value, complex(oracle.pair_loss(*rows, case.of_gaps, setting)).real, dtype=z0.dtype)
    assert_numbers(gradients(value, z0, z1), list(oracle.pair_gradient(*rows, case.of_gaps, setting)), dtype=z0.dtype)


@sampled_cases("case, kind, kernel", CASES, KINDS, KERNELS, num=28)
def test_duplicated_samples_and_silent_rows(case: Case, kind: str, kernel: str) -> None:
    """A zero vector has cosine 0 with everything, and no direction: it gets no gradient."""
    z0, z1 = with_edges(1.0, torch.float64)
    setting = Setting(kind)
    with on_kernel(kernel):
        assert_is_the_papers(case, setting, z0, z1)
        slopes = gradients(case(setting)(z0, z1), z0, z1)
    assert not slopes[0, 2].any()
    assert not slopes[1, 3].any()


MAKERS: dict[str, tuple[Any, Any]] = {
    "infonce": (InfoNCE, lambda tau: oracle.nce(tau, 1.0)),
    "infonce-eps0.3": (lambda tau, **rest: InfoNCE(tau, 0.3, **rest), lambda tau: oracle.nce(tau, 0.3)),
    "dcl": (DCL, lambda tau: oracle.nce(tau, 0.0)),
    "soft-triplet": (family.SoftTriplet, lambda tau: oracle.soft_triplet(tau, 0.0)),
    "modified-triplet": (
        lambda tau, **rest: family.ModifiedTriplet(1 / tau, **rest),
        lambda tau: oracle.modified_triplet(1 / tau),
    ),
}


@sampled_cases("name, tau, dtype, kernel", list(MAKERS), [0.01, 100.0], DTYPES, KERNELS, num=12)
def test_extreme_temperatures_keep_value_and_gradient(name: str, tau: float, dtype: torch.dtype, kernel: str) -> None:
    make, of_gaps = MAKERS[name]
    for kind in KINDS:
        z0, z1 = draw_views(4, 3, seed=11, dtype=dtype)
        case = Case(
            name,
            lambda negatives, normalize: make(tau, negatives=negatives, normalize=normalize),
            of_gaps(tau),
            torch.sin,
        )
        with on_kernel(kernel):
            value = case(Setting(kind))(z0, z1)
            slopes = gradients(value, z0, z1)
        rows = as_rows(z0, z1)
        truth = complex(oracle.pair_loss(*rows, case.of_gaps, Setting(kind))).real
        assert_numbers([1.0, float(value.detach())], [1.0, truth], dtype=dtype)
        # At tau = 0.01 the rounding of a float32 cosine is multiplied by 100 in the exponent.
        if dtype == torch.float64 or tau > 1:
            assert_numbers(slopes, list(oracle.pair_gradient(*rows, case.of_gaps, Setting(kind))), dtype=dtype)
        assert bool(torch.isfinite(slopes).all())
        if name != "modified-triplet":
            assert float(slopes.abs().max()) > 1e-4


# exp of 1e6, outside the log domain, is what these users ask for
IN_RANGE = [case for case in CASES if case.name not in ("user", "user-exp")]
WHOLE = (
    [[617.0, -283.0], [-412.0, 903.0], [155.0, 761.0], [-27.0, -988.0]],
    [[-820.0, 441.0], [333.0, -699.0], [-58.0, -947.0], [604.0, 610.0]],
)


@sampled_cases("case, kind, kernel", IN_RANGE, KINDS, KERNELS, num=24)
def test_long_raw_vectors_neither_overflow_nor_lose_the_gradient(case: Case, kind: str, kernel: str) -> None:
    """|z| up to 1e3: gaps of 1e6, in whole numbers that loops keep exact."""
    z0, z1 = (torch.tensor(rows, dtype=torch.float64, requires_grad=True) for rows in WHOLE)
    setting = Setting(kind, normalize=False)
    with on_kernel(kernel):
        assert_is_the_papers(case, setting, z0, z1)
        single = tuple(z.detach().float().requires_grad_() for z in (z0, z1))
        value = case(setting)(*single)
        slopes = gradients(value, *single)
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(slopes).all())
    if case.name != "modified-triplet":
        assert float(slopes.abs().max()) > 1


@sampled_cases("case, setting", CASES, BOTH)
def test_equal_vectors_are_at_chance(case: Case, setting: Setting) -> None:
    for n in (2, 3, 7):
        for anchors, reduction in (("both", "mean"), ("first", "mean"), ("both", "sum")):
            loss = case(Setting(setting.negatives, setting.normalize, anchors, reduction))
            z = torch.tensor([[3.0, -4.0, 1.0]], dtype=torch.float64).expand(n, 3)
            assert_numbers(loss(z, z), loss.chance(n))


@sampled_cases("case, kind", CASES, KINDS)
def test_a_simplex_attains_the_floor(case: Case, kind: str) -> None:
    """Non-negative: an orthonormal basis does."""
    for n in (2, 3, 6):
        loss, basis = case(Setting(kind)), torch.eye(n, dtype=torch.float64)
        at_simplex, at_basis = float(loss(simplex(n), simplex(n))), float(loss(basis, basis))
        assert at_simplex >= loss.floor(n) - ROUNDING
        assert at_basis >= loss.floor(n, nonnegative=True) - ROUNDING
        if case.attains_floor:
            assert_numbers([1.0, at_simplex], [1.0, loss.floor(n)])
            assert_numbers([1.0, at_basis], [1.0, loss.floor(n, nonnegative=True)])
        assert loss.floor(n) <= loss.floor(n, nonnegative=True) <= loss.chance(n)


@sampled_cases("case, kind, anchors, nonnegative", CASES, KINDS, ["both", "first"], [False, True], num=28)
@pytest.mark.sampled(7)
def test_descent_never_goes_below_the_floor(case: Case, kind: str, anchors: str, nonnegative: bool) -> None:
    for n, d in ((2, 1), (3, 2), (5, 3)):
        loss = case(Setting(kind, anchors=anchors))
        floor = loss.floor(n, nonnegative=nonnegative)
        start = torch.randn(2, n, d, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        reached = least_on_descent(
            lambda z, loss=loss: loss(*(z.square() if nonnegative else z)), start, lr=0.3, num_steps=25
        )
        assert reached >= floor - ROUNDING * max(1.0, abs(floor))


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_negatives(kind: Any) -> None:
    for n in (2, 5):
        alpha = InfoNCE(negatives=kind).importance(torch.eye(n), torch.eye(n))
        assert (alpha > 0).sum(1).tolist() == [InfoNCE(negatives=kind).num_negatives(n)] * (2 * n)


@each_case
def test_raw_vectors_have_the_floor_of_gaps_without_end(case: Case) -> None:
    loss = case(Setting(normalize=False))
    for size in (1.0, 10.0, 100.0):
        z = size * simplex(4)
        assert float(loss(z, z)) >= loss.floor(4) - ROUNDING
    if case.name in ("dcl", "mine", "linear-triplet"):
        assert loss.floor(4) == -math.inf
    if case.name in (
        "infonce",
        "infonce-eps0.3",
        "n-plus-one-tuplet",
        "soft-triplet",
        "lifted-structured",
        "modified-triplet",
        "triplet",
    ):
        assert_numbers([1.0, float(loss(z, z))], [1.0, loss.floor(4)])


BAD_SETTINGS: list[tuple[Any, dict[str, Any], str]] = [
    (DCL, {"temperature": 0}, r"temperature must be > 0, got 0; common values are 0\.1 to 0\.5"),
    (InfoNCE, {"temperature": math.inf}, r"temperature must be between 1e-30 and 1e\+30, got inf"),
    (InfoNCE, {"epsilon": -0.5}, r"epsilon must be >= 0, got -0\.5; 1 is NT-Xent, 0 is DCL"),
    (InfoNCE, {"epsilon": math.nan}, r"epsilon must be >= 0, got nan"),
    (InfoNCE, {"epsilon": math.inf}, r"epsilon must be >= 0.*, got inf"),
    (family.SoftTriplet, {"temperature": -1.0}, r"temperature must be > 0, got -1"),
    (family.SoftTriplet, {"margin": math.nan}, r"margin must be a finite number, got nan"),
    (family.Triplet, {"margin": math.inf}, r"margin must be a finite number, got inf; unit vectors have gaps"),
    (family.LiftedStructured, {"margin": -math.inf}, r"margin must be a finite number, got -inf"),
    (family.ModifiedTriplet, {"steepness": 0}, r"steepness must be > 0, got 0"),
    (family.MINE, {"negatives": "all"}, r"negatives must be one of two-view, cross-view, same-view, got 'all'"),
    (InfoNCE, {"anchors": "second"}, r"anchors must be one of both, first, got 'second'"),
    (InfoNCE, {"reduction": "none"}, r"reduction must be one of mean, sum, got 'none'"),
]


@pytest.mark.parametrize(("make", "wrong", "sentence"), BAD_SETTINGS, ids=[str(case[1]) for case in BAD_SETTINGS])
def test_bad_settings_are_named_with_their_range(make: Any, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(**wrong)
