"""InfoNCE where it may break: two samples, duplicates, silent rows, extreme temperatures, half precision, bad input."""

# N samples per view, D features

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpoint.losses import InfoNCE
from counterpoint.losses.pairs import Negatives
from oracles import family_losses as oracle
from oracles.number_checks import assert_numbers

KINDS = ["two-view", "cross-view", "same-view"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def draw_views(n: int = 4, d: int = 3) -> tuple[Tensor, Tensor]:
    z0, z1 = torch.randn(2, n, d, generator=torch.Generator().manual_seed(11), dtype=torch.float64)
    return z0.requires_grad_(), z1.requires_grad_()


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
