"""The solvers on hard costs, also with the fixed number of steps taken where nobody can look whether they are done."""

# M keys

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterpoint.losses import inputs
from counterpoint.losses.simplex_solvers import inverse_power_root, inverse_powers, water_level
from tolerances import assert_close


def hard_costs(num: int, span: float) -> list[Tensor]:
    """Costs above the least, up to the span: on these the solvers need most steps."""
    place_M = torch.arange(num, dtype=torch.float64)
    share_M = torch.rand(num, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    found = [
        torch.lgamma(place_M + 1).exp().clamp(max=span),  # factorials: one key leaves in each step of the water level
        3 ** place_M.clamp(max=80),
        span**share_M,
        span * share_M,
        span * (place_M > 0),
        span * (place_M < num // 2),
    ]
    return [(cost_M - cost_M.min()).clamp(max=span)[None] for cost_M in found]


HARD = [cost_1M for num in (2, 31, 1000) for span in (1e-6, 1.0, 1e6, 1e30) for cost_1M in hard_costs(num, span)]
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


@each_dtype
@pytest.mark.parametrize("can_look", [True, False])
def test_the_water_covers_the_costs_with_its_volume(
    dtype: torch.dtype, can_look: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "READS_ARE_FREE", ("cpu",) if can_look else ())
    for cost_1M in HARD:
        level = water_level(cost_1M.to(dtype), 1.0).double()
        assert_close(torch.relu(level - cost_1M.to(dtype).double()).sum(), torch.ones(()).double(), dtype=dtype)


@each_dtype
@pytest.mark.parametrize("gamma", [0.1, 1.0, 3.0])
@pytest.mark.sampled(5)
def test_inverse_powers(gamma: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    for exact_1M in HARD:
        cost_1M = exact_1M.to(dtype)
        check(lambda cost_1M=cost_1M: inverse_powers(cost_1M, gamma), monkeypatch)
        check(lambda cost_1M=cost_1M: inverse_power_root(cost_1M, cost_1M < 0, gamma), monkeypatch)


def check(solve: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = solve()
    with monkeypatch.context() as unseen:
        unseen.setattr(inputs, "READS_ARE_FREE", ())
        found = solve()
    assert_close(found, expected)
