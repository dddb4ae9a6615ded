"""InfoNCE where it may break: two samples, duplicates, silent rows, extreme temperatures, half precision, bad input."""

# N samples per view, D features

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpoint.losses import InfoNCE
from counterpoint.losses.blocks import Negatives
from oracles import family_losses as oracle
from oracles.number_checks import as_float64, assert_numbers
from tolerances import assert_low_precision

KINDS = ["two-view", "cross-view", "same-view"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def draw_views(n: int = 4, d: int = 3) -> tuple[Tensor, Tensor]:
    z0, z1 = torch.randn(2, n, d, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    return z0.requires_grad_(), z1.requires_grad_()


@each_kind
@pytest.mark.parametrize("epsilon", [1.0, 0.0])
def test_two_samples(kind: Negatives, epsilon: float) -> None:
    """By hand: views agree, the samples are orthogonal, so every gap is (0 - 1) / tau."""
    basis = torch.eye(2, dtype=torch.float64)
    num_negatives = 2 if kind == "two-view" else 1
    expected = math.log(epsilon + num_negatives * math.exp(-1 / 0.5))
    assert_numbers(InfoNCE(0.5, epsilon, kind)(basis, basis), expected)


@each_kind
def test_duplicated_samples_keep_a_finite_gradient(kind: Negatives) -> None:
    """Two equal samples: each has a negative as close as its positive."""
    z = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-2.0, 1.0]], dtype=torch.float64, requires_grad=True)
    loss = InfoNCE(0.5, negatives=kind)(z, z)
    loss.backward()
    rows = z.tolist()
    assert_numbers(loss, oracle.info_nce(rows, rows, 0.5, 1.0, kind, True).real)
    first, second = oracle.info_nce_gradient(rows, rows, 0.5, 1.0, kind, True)
    assert_numbers(z.grad, as_float64(first) + as_float64(second))


@each_kind
def test_a_silent_row_has_cosine_zero_with_everything_and_gets_no_gradient(kind: Negatives) -> None:
    z0, z1 = draw_views()
    with torch.no_grad():
        z0[1] = 0.0
        z1[2] = 0.0
    loss = InfoNCE(0.5, negatives=kind)(z0, z1)
    loss.backward()
    rows = (z0.tolist(), z1.tolist())
    assert_numbers(loss, complex(oracle.info_nce(*rows, 0.5, 1.0, kind, True)).real)
    first, second = oracle.info_nce_gradient(*rows, 0.5, 1.0, kind, True)
    assert_numbers(z0.grad, first)
    assert_numbers(z1.grad, second)
    for z, silent in ((z0, 1), (z1, 2)):
        assert z.grad is not None
        assert bool(torch.isfinite(z.grad).all())
        assert [i for i in range(4) if not z.grad[i].any()] == [silent]


@each_kind
def test_a_wholly_silent_batch_is_at_chance_without_gradient(kind: Negatives) -> None:
    z = torch.zeros(3, 4, requires_grad=True)
    loss = InfoNCE(0.1, negatives=kind)
    value = loss(z, z)
    value.backward()
    assert_numbers(value, loss.chance(3), dtype=torch.float32)
    assert z.grad is not None
    assert not z.grad.any()


@each_kind
@pytest.mark.parametrize("tau", [0.01, 100.0])
@pytest.mark.parametrize("epsilon", [1.0, 0.0])
def test_extreme_temperatures_keep_value_and_gradient(kind: Negatives, tau: float, epsilon: float) -> None:
    z0, z1 = draw_views()
    loss = InfoNCE(tau, epsilon, kind)(z0, z1)
    slopes = torch.stack(torch.autograd.grad(loss, (z0, z1)))
    rows = (z0.tolist(), z1.tolist())
    assert_numbers(loss, oracle.info_nce(*rows, tau, epsilon, kind, True).real)
    assert_numbers(slopes, list(oracle.info_nce_gradient(*rows, tau, epsilon, kind, True)))
    assert float(slopes.abs().max()) > 1e-4
    single = InfoNCE(tau, epsilon, kind)(z0.float(), z1.float())
    assert_numbers(single, loss, dtype=torch.float32)


@each_kind
def test_long_raw_vectors_at_a_low_temperature_neither_overflow_nor_lose_the_gradient(kind: Negatives) -> None:
    """|z| = 1e3 and tau = 0.01 make exponents of 1e8; whole numbers keep them exact, so that the oracle can tell."""
    z0 = torch.tensor([[617.0, -283.0], [-412.0, 903.0], [155.0, 761.0]], dtype=torch.float64, requires_grad=True)
    z1 = torch.tensor([[-820.0, 441.0], [333.0, -699.0], [-58.0, -947.0]], dtype=torch.float64, requires_grad=True)
    loss = InfoNCE(0.01, negatives=kind, normalize=False)(z0, z1)
    slopes = torch.stack(torch.autograd.grad(loss, (z0, z1)))
    rows = (z0.tolist(), z1.tolist())
    assert_numbers(loss, oracle.info_nce(*rows, 0.01, 1.0, kind, False).real)
    assert_numbers(slopes, list(oracle.info_nce_gradient(*rows, 0.01, 1.0, kind, False)))
    assert float(loss.detach()) > 1e6
    assert float(slopes.abs().max()) > 1e3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_kind
def test_half_precision_is_lifted_before_anything_is_computed(dtype: torch.dtype, kind: Negatives) -> None:
    z0, z1 = (z.detach().to(dtype).requires_grad_() for z in draw_views())
    infonce = InfoNCE(0.1, negatives=kind)
    loss = infonce(z0, z1)
    exact = oracle.info_nce(z0.tolist(), z1.tolist(), 0.1, 1.0, kind, True).real
    assert loss.dtype == torch.float32
    assert infonce.importance(z0, z1).dtype == torch.float32
    assert_numbers(loss, exact, dtype=torch.float32)
    loss.backward()
    assert z0.grad is not None
    assert z0.grad.dtype == dtype  # autograd casts the float32 gradient back: only that rounding is left
    gradient = as_float64(oracle.info_nce_gradient(z0.tolist(), z1.tolist(), 0.1, 1.0, kind, True)[0])
    assert_low_precision(z0.grad, gradient.to(dtype), gradient)


def with_row(row: int, value: float) -> Tensor:
    z = torch.ones(4, 2)
    z[row, 1] = value
    return z


GOOD = torch.ones(4, 2)
BAD_INPUT: list[tuple[Any, Any, type[Exception], str]] = [
    (
        GOOD.long(),
        GOOD,
        TypeError,
        r"z0 must be a floating-point tensor, got torch\.int64; convert it with \.float\(\)",
    ),
    (GOOD, GOOD.tolist(), TypeError, r"z1 must be a floating-point tensor, got list"),
    (GOOD.tolist(), GOOD, TypeError, r"z0 must be a floating-point tensor, got list"),
    (GOOD[:, 0], GOOD[:, 0], ValueError, r"z0 must have shape \(samples, features\), got \(4,\)"),
    (GOOD, GOOD[None], ValueError, r"z1 must have shape \(samples, features\), got \(1, 4, 2\)"),
    (GOOD[:1], GOOD[:1], ValueError, r"z0 must have at least 2 rows, got 1"),
    (GOOD[:0], GOOD[:0], ValueError, r"z0 must have at least 2 rows, got 0"),
    (GOOD, GOOD.double(), TypeError, r"z0 and z1 must have the same dtype, got torch\.float32 and torch\.float64"),
    (GOOD, GOOD.to("meta"), ValueError, r"z0 and z1 must be on one device, got cpu and meta"),
    (GOOD, GOOD[:3], ValueError, r"z0 and z1 must have the same shape, got \(4, 2\) and \(3, 2\)"),
    (with_row(2, math.nan), GOOD, ValueError, r"z0 must be finite, but row 2 holds NaN or infinity"),
    (GOOD, with_row(3, -math.inf), ValueError, r"z1 must be finite, but row 3 holds NaN or infinity"),
]


@pytest.mark.parametrize("ask", ["forward", "importance"])
@pytest.mark.parametrize(("z0", "z1", "error", "sentence"), BAD_INPUT, ids=[case[3][:24] for case in BAD_INPUT])
def test_bad_embeddings_are_named(ask: str, z0: Any, z1: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        getattr(InfoNCE(), ask)(z0, z1)


BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"temperature": 0}, r"temperature must be > 0, got 0; common values are 0\.1 to 0\.5"),
    ({"temperature": -1}, r"temperature must be > 0, got -1"),
    ({"temperature": math.nan}, r"temperature must be > 0, got nan"),
    ({"epsilon": -0.5}, r"epsilon must be >= 0, got -0\.5; 1 is NT-Xent, 0 is DCL"),
    ({"epsilon": math.nan}, r"epsilon must be >= 0, got nan"),
    ({"epsilon": math.inf}, r"epsilon must be >= 0.*, got inf"),
    ({"negatives": "all"}, r"negatives must be one of two-view, cross-view, same-view, got 'all'"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD_SETTINGS, ids=[str(case[0]) for case in BAD_SETTINGS])
def test_bad_settings_are_named_with_their_range(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        InfoNCE(**wrong)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (torch.tensor([0, 1]), r"labels must be one per sample, shape \(4,\), got \(2,\)"),
        (torch.zeros(4, 1).long(), r"labels must be one per sample, shape \(4,\), got \(4, 1\)"),
        (torch.zeros(4), r"labels must be whole numbers, got torch\.float32"),
    ],
)
def test_bad_labels_are_named_though_unused(labels: Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        InfoNCE()(GOOD, GOOD, labels)
